"""Processes of checks are forked from one that has imported the EP's engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.errors import InvalidArgument
from onnxplug.plugins import registry
from onnxplug_testing import ToyFactory
from onnxplug_testing.conformance import (
    Settings,
    chosen_checks,
    examine,
    find_subject,
    fork_server,
    isolation,
)
from onnxplug_testing.toy import ToyExecutionProvider

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(),
    reason="nothing here lists an engine's threads",
)


@pytest.fixture
def starting() -> Iterator[Callable[..., str]]:
    """Makes an EP known that does something when a session asks for it."""
    names = []

    def make(start: Callable[[], None], compiling: Any = None) -> str:
        class Starting(ToyExecutionProvider):
            def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
                if compiling is not None:
                    compiling()
                return super().compile(partition)

        class Factory(ToyFactory):
            name = "StartingExecutionProvider"

            def create(self, *_: Any) -> ep.ExecutionProvider:
                start()
                return Starting()

        registry.add(Factory())
        names.append(Factory.name)
        return Factory.name

    yield make
    for name in names:
        registry.remove(name)


# which fork no processes of their own
CHECKS = [
    "costs/of-pairs",
    "costs/estimates",
    "factory/facts",
    "factory/operators",
    "factory/versions",
    "factory/sessions",
]


def processes_that_started(name: str, notes: Path) -> list[int]:
    """Those in which the engine was started, by the checks."""
    report = examine(name, only=CHECKS, settings=Settings(budget=1.0))
    assert report.findings == []
    return sorted(set(map(int, notes.read_text().split())))


def test_an_engine_is_imported_once(starting, tmp_path: Path) -> None:
    notes, imported = tmp_path / "notes", []

    def start() -> None:
        if not imported:  # as a module is, in each process that has not inherited it
            imported.append(1)
            with notes.open("a") as file:
                print(os.getpid(), file=file)

    assert len(processes_that_started(starting(start), notes)) == 1


def test_an_engine_that_starts_threads_starts_in_each_process(
    starting, tmp_path: Path
) -> None:
    notes, imported = tmp_path / "notes", []

    def start() -> None:
        if not imported:
            imported.append(
                threading.Thread(target=time.sleep, args=(60,), daemon=True)
            )
            imported[0].start()
            with notes.open("a") as file:
                print(os.getpid(), file=file)

    # the one that was asked, and those of the checks
    assert len(processes_that_started(starting(start), notes)) == 1 + len(CHECKS)


def test_a_server_that_ends_is_done_without(starting) -> None:
    name = starting(lambda: None)
    checks = chosen_checks(["factory/facts"])
    subject = find_subject(name)
    with fork_server.fork_server(subject, checks) as server:
        assert server is not None
        server.close()
        assert server.run(checks[0], 1.0, seed=0, quick=True, folder=None) is None


@pytest.mark.parametrize("runs_afresh", [True, False])
def test_an_engine_that_has_started_here_and_hangs_when_forked(
    starting, monkeypatch: pytest.MonkeyPatch, runs_afresh: bool
) -> None:
    """It is said; unless it hangs anywhere, which checks tell of."""
    monkeypatch.setattr(isolation, "PATIENCE", 1.0)
    started_in = os.getpid()
    name = starting(
        lambda: None, lambda: None if os.getpid() == started_in else time.sleep(600)
    )
    monkeypatch.setattr(fork_server, "_threads", lambda: 1000)
    # one that is registered by an object is not found in another process
    monkeypatch.setattr(fork_server, "_runs_afresh", lambda subject: runs_afresh)
    opened = fork_server.fork_server(find_subject(name), chosen_checks(["costs"]))
    if runs_afresh:
        with pytest.raises(InvalidArgument, match="hangs in a process that is forked"):
            opened.__enter__()
    else:
        with opened as server:
            assert server is None


def test_an_ep_is_tried_in_another_process() -> None:
    assert fork_server._runs_afresh(find_subject("cpu"))


def test_one_that_is_registered_here_only_is_not_found_there(starting) -> None:
    assert not fork_server._runs_afresh(find_subject(starting(lambda: None)))
