"""A process in which an EP's engine is imported once, and those of checks are forked.

PyTorch takes a second and a half to import, which is more than most checks take.  A
process that was forked has no threads but the one that forked it: an engine that has
started others waits for them forever.  So checks are forked from here only if the EP,
asked what it takes, started none, and drives the processor, and not a device whose
handles are not for children.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.errors import InvalidArgument
from onnxplug_testing.conformance import isolation
from onnxplug_testing.conformance.check import Check
from onnxplug_testing.conformance.forked import CAN_FORK, in_child
from onnxplug_testing.conformance.isolation import Outcome, run_apart
from onnxplug_testing.conformance.networks import draw_network, vocabulary
from onnxplug_testing.conformance.preparation import surveyed
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import ignoring_failures

_THREADS: Final = Path("/proc/self/task")
"""Where Linux lists a process's threads, an engine's among them."""

_READY, _UNSAFE, _HANGS = "ready", "has started threads", "hangs"


@contextmanager
def fork_server(
    subject: Subject, checks: Sequence[Check], *, isolated: bool = True
) -> Iterator[ForkServer | None]:
    """A context with a process to fork *checks* from; ``None`` where each is to be
    forked from this one.

    Raises:
        InvalidArgument: an engine has started threads in this process, and the EP hangs
            in one that is forked from it, and does not in one that is not.
    """
    if not isolated or not CAN_FORK or not _THREADS.is_dir():
        yield None
        return
    foreign = _threads() - threading.active_count()
    # as many as there are processors, but for one, are of numpy's products
    suspected = foreign >= len(os.sched_getaffinity(0))
    server = ForkServer(subject, checks, suspected=suspected)
    try:
        state = server.state()
        if state == _HANGS and suspected and _runs_afresh(subject):
            raise InvalidArgument(
                f"{subject.name} hangs in a process that is forked from this one, in "
                f"which {foreign} threads are those of engines; examine it in a "
                "process that has run no session, or without processes of its own "
                "(isolated=False)"
            )
        yield server if state == _READY else None
    finally:
        server.close()


class ForkServer:
    """The process.

    Args:
        checks: those that may be asked for.
        suspected: this process may have threads of an engine, without which the EP
            hangs in another: it is tried.
    """

    def __init__(
        self, subject: Subject, checks: Sequence[Check], *, suspected: bool
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        arguments = (subject, checks, suspected, theirs, self._connection)
        self._process: Any = context.Process(target=_serve, args=arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of each check's own process
            self._process.start()
        theirs.close()

    def state(self) -> str:
        """What came of starting; waits for it."""
        said = self._receive(2 * isolation.PATIENCE + 5)
        return _HANGS if said is None else str(said)

    def run(self, check: Check, seconds: float, **settings: Any) -> Outcome | None:
        """What came of *check*; ``None``: the process has ended.

        Args:
            seconds: what the check has.
            settings: others of :class:`Trial`.
        """
        try:
            self._connection.send((check.full_name, seconds, settings))
        except OSError:
            return None
        outcome: Outcome | None = self._receive(None)
        return outcome

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.join(1.0)
        self._process.kill()
        self._process.join()

    def _receive(self, timeout: float | None) -> Any:
        try:
            return self._connection.recv() if self._connection.poll(timeout) else None
        except (EOFError, OSError):
            return None


def _threads() -> int:
    return len(os.listdir(_THREADS))


def _serve(
    subject: Subject,
    checks: Sequence[Check],
    suspected: bool,
    connection: Connection,
    others: Connection,
) -> None:
    others.close()  # so that the end of whoever asks is seen
    by_name = {each.full_name: each for each in checks}
    warnings.simplefilter("ignore")
    try:
        state = _start(subject, suspected)
        if state == _READY:
            subject = surveyed(subject, checks)
        connection.send(state)
        while True:
            name, seconds, settings = connection.recv()
            connection.send(run_apart(by_name[name], subject, seconds, **settings))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)


def _start(subject: Subject, suspected: bool) -> str:
    """Import the EP's engine, and see whether children can use it."""
    before = _threads()
    with ignoring_failures():
        vocabulary(subject)
    threads = _threads()
    if suspected and in_child(lambda: run_once(subject), isolation.PATIENCE).hung:
        return _HANGS
    on_processor = subject.pair.device.type is ep.DeviceType.CPU
    return _READY if threads == before and on_processor else _UNSAFE


def run_once(subject: Subject) -> str:
    """Run a network of what the EP takes; gives an empty text."""
    words = vocabulary(subject)
    if words is not None:
        network = draw_network(words, random.Random(0))
        case = network.case(np.random.default_rng(0), 2)
        subject.run(case.model, case.feeds, alone=False)
    return ""


_AFRESH: Final = """
import sys
from onnxplug_testing.conformance.fork_server import run_once
from onnxplug_testing.conformance.subject import find_subject
run_once(find_subject(sys.argv[1], sys.argv[2]))
"""


def _runs_afresh(subject: Subject) -> bool:
    """Whether the EP runs in a process that is not forked; not if it is not found
    there, being registered in this one."""
    place = str(subject.pairs.index(subject.pair))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _AFRESH, subject.name, place],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * isolation.PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
