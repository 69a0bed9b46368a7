"""Another EP that serves while an EP compiles for new shapes in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep

from .shapes_lab import DOUBLE, EP, WAIT, Lab, counted, ended, model, run, started

CPU = "CPUExecutionProvider"


def opened(text: bytes = DOUBLE, providers: Any = (EP,)) -> Any:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.serve_while_compiling", "1")
    return onnxplug.InferenceSession(text, options, providers=list(providers))


def until(said: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not said():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_runs_are_served_until_it_is_compiled(lab: Lab) -> None:
    session = opened()
    lab.gate(7)
    for _ in range(3):
        run(session, 7)
    assert lab.began[7].wait(WAIT)
    found = counted(session)
    assert (found.elsewhere, found.kept) == ({CPU: 3}, ())
    assert f"3 runs on {CPU} meanwhile" in str(session.explain())
    lab.gates[7].set()
    until(lambda: counted(session).kept)
    run(session, 7)
    assert lab.runs[7] == 1
    found = counted(session)
    assert found.elsewhere == {CPU: 3}
    assert found.compiled == {"run": 0, "prepare": 0, "background": 1}
    assert lab.compiled == [((7, 3),)]


def test_one_is_compiled_after_the_other(lab: Lab) -> None:
    session = opened()
    lab.gate(1)
    for size in (1, 2, 3):
        run(session, size)
    assert lab.began[1].wait(WAIT)
    assert lab.compiled == [((1, 3),)]
    lab.gates[1].set()
    until(lambda: len(counted(session).kept) == 3)
    for size in (1, 2, 3):
        run(session, size)
    assert sum(lab.runs.values()) == 3


def test_what_fails_is_told_and_served_elsewhere(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    session = opened()
    lab.fails[7] = ValueError("no such tile")
    with caplog.at_level(logging.WARNING, "onnxplug"):
        run(session, 7)
        until(lambda: counted(session).failed == 1)
        assert "no such tile" in counted(session).last_failure
        assert "last failure: " in str(session.explain())
        for _ in range(20):
            run(session, 7)
            time.sleep(0.005)
    assert lab.compiled == [((7, 3),)] * 3  # and not again and again
    assert len(caplog.records) == 3
    assert "no such tile" in caplog.records[0].getMessage()
    lab.fails.clear()
    session.prepare({"x": (7, 3)})
    run(session, 7)
    assert lab.runs[7] == 1


def test_what_is_declined_is_asked_once(lab: Lab) -> None:
    session = opened()
    lab.fails[7] = ep.Declined(ep.Reason(ep.RefusalCode.OTHER, "too odd"))
    run(session, 7)
    until(lambda: counted(session).failed == 1)
    for _ in range(5):
        run(session, 7)
        time.sleep(0.005)
    assert lab.compiled == [((7, 3),)]
    assert counted(session).elsewhere == {CPU: 6}


def test_threads_that_are_not_to_be_had(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", start)
        run(session, 7)
        run(session, 7)
    assert not lab.compiled
    run(session, 7)
    until(lambda: counted(session).kept)


@pytest.mark.parametrize("asks", [False, True], ids=["waits", "cancels"])
def test_closing_ends_what_is_compiled(lab: Lab, asks: bool) -> None:
    session = opened()
    lab.gate(7)
    lab.asks = asks
    run(session, 7)
    run(session, 8)  # waits its turn, and is never compiled
    assert lab.began[7].wait(WAIT)
    thread, outcome = started(session.close)
    if not asks:
        time.sleep(0.05)
        assert thread.is_alive()
        lab.gates[7].set()
    ended(thread)
    assert outcome == [None]
    assert lab.compiled == [((7, 3),)]
    assert lab.closed == ([] if asks else [7])
    names = [thread.name for thread in threading.enumerate()]
    assert "onnxplug-compile" not in names


def test_an_ep_that_takes_some_nodes_only_does_not_serve(lab: Lab) -> None:
    # of com.acme, of which the CPU EP has nothing
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.serve_while_compiling", "1")
    odd = model("g (float[N,3] x) => (float[N,3] y) { a = Add (x, x) y = Relu (a) }")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxplug.InferenceSession(odd, options, providers=[EP])
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    assert counted(session).notes == (
        "no other EP serves while it compiles: there is none",
    )
    assert counted(session).compiled["run"] == 1
    assert "no other EP serves" in str(session.explain())


def test_many_threads_lose_no_run(lab: Lab) -> None:
    lab.specialises = 4
    session = opened()

    def work(first: int) -> None:
        for turn in range(60):
            run(session, 1 + (first + turn * 7) % 10)

    threads = [started(lambda first=first: work(first)) for first in range(6)]
    for thread, outcome in threads:
        ended(thread)
        assert outcome == [None]
    found = counted(session)
    assert sum(lab.runs.values()) + found.elsewhere[CPU] == 6 * 60
    session.close()
    assert len(lab.closed) == found.compiled["background"] or len(lab.closed) == len(
        lab.compiled
    )
