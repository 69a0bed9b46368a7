"""EPs whose compiled partitions the host keeps by input shapes."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, EpWarning, OutOfMemory, RunCancelled, RunError

from .shapes_lab import DOUBLE, EP, WAIT, Lab, counted, ended, model, run, started


def test_each_set_of_shapes_is_compiled_once(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    assert not lab.compiled
    for size in (2, 5, 2, 5, 2):
        run(session, size)
    assert lab.compiled == [((2, 3),), ((5, 3),)]
    found = counted(session)
    assert (found.limit, found.kept) == (8, ("x[5, 3]", "x[2, 3]"))
    assert found.compiled == {"run": 2, "prepare": 0, "background": 0}
    assert "by input shapes: 2 kept of at most 8, 2 compiled" in str(session.explain())
    (data,) = session.explain().to_dict()["partitions"]
    assert data["specialisations"]["kept"] == ("x[5, 3]", "x[2, 3]")
    json.dumps(data)
    assert data["tiers"] == {"size 2": 1}


def test_static_partitions_are_compiled_with_the_session(lab: Lab) -> None:
    static = model("g (float[2,3] x) => (float[2,3] y) { y = Add (x, x) }")
    session = onnxplug.InferenceSession(static, providers=[EP])
    assert lab.compiled == [((2, 3),)]
    run(session, 2)
    assert counted(session) is None


def test_an_ep_that_does_not_ask_has_one_for_all(lab: Lab) -> None:
    lab.specialises = 0
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    assert lab.compiled == [(("N", 3),)]
    assert counted(session) is None


@pytest.mark.parametrize("limit", [-1, "8"])
def test_a_limit_that_is_none(lab: Lab, limit: Any) -> None:
    lab.specialises = limit
    with pytest.raises(EpError, match=r"specialiser\.limit of"):
        onnxplug.InferenceSession(DOUBLE, providers=[EP])


def test_what_was_not_used_for_longest_is_closed(lab: Lab) -> None:
    lab.specialises = 2
    with onnxplug.InferenceSession(DOUBLE, providers=[EP]) as session:
        for size in (1, 2, 1, 3):
            run(session, size)
        assert lab.closed == [2]
        assert counted(session).evicted == 1
        assert counted(session).kept == ("x[1, 3]", "x[3, 3]")
        run(session, 2)
        assert lab.closed == [2, 1]
    assert sorted(lab.closed) == [1, 2, 2, 3]


def test_what_is_evicted_is_closed_after_its_runs(lab: Lab) -> None:
    lab.specialises = 1
    with onnxplug.InferenceSession(DOUBLE, providers=[EP]) as session:
        run(session, 1)
        lab.in_run[1] = threading.Event()
        thread, outcome = started(lambda: run(session, 1))
        while lab.runs[1] < 2:
            time.sleep(0.001)
        run(session, 2)
        assert not lab.closed
        lab.in_run[1].set()
        ended(thread)
        assert (outcome, lab.closed) == ([None], [1])


def test_a_compilation_stops_nobody_but_who_wants_it(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    run(session, 1)
    lab.gate(7)
    waiting = [started(lambda: run(session, 7)) for _ in range(3)]
    assert lab.began[7].wait(WAIT)
    run(session, 1)  # compiled before
    run(session, 2)  # and meanwhile
    while counted(session).waits < 2:
        time.sleep(0.001)
    assert lab.compiled.count(((7, 3),)) == 1
    lab.gates[7].set()
    for thread, outcome in waiting:
        ended(thread)
        assert outcome == [None]
    assert lab.compiled.count(((7, 3),)) == 1


def test_a_failure_is_raised_for_all_who_wait_and_is_tried_again(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.gate(7)
    lab.fails[7] = ValueError("no such tile")
    waiting = [started(lambda: run(session, 7)) for _ in range(3)]
    while counted(session).waits < 2:
        time.sleep(0.001)
    lab.gates[7].set()
    errors = []
    for thread, found in waiting:
        ended(thread)
        (outcome,) = found
        assert isinstance(outcome, EpError)
        assert (outcome.ep, outcome.stage) == (EP, "compile")
        assert "for x[7, 3]" in str(outcome) and "no such tile" in str(outcome)
        assert "leave the EP out" in str(outcome)
        errors.append(outcome)
    assert len({id(error) for error in errors}) == 3
    assert counted(session).failed == 1
    assert "no such tile" in counted(session).last_failure
    lab.fails.clear()
    run(session, 7)


def test_shapes_that_the_ep_declines(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.fails[7] = ep.Declined(ep.Reason(ep.RefusalCode.OTHER, "too odd"))
    with pytest.raises(EpError, match=r"(?s)for x\[7, 3\]: declined: .*too odd.*feed"):
        run(session, 7)
    run(session, 8)


def test_memory_that_is_not_to_be_had(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.fails[7] = MemoryError("1 TB")
    with pytest.raises(OutOfMemory, match="1 TB"):
        run(session, 7)


def test_an_interrupt_leaves_it_to_the_next(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.fails[7] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(session, 7)
    lab.fails.clear()
    run(session, 7)


def test_what_the_ep_declines_before_goes_to_the_next(lab: Lab) -> None:
    lab.declines = "never"
    with pytest.warns(EpWarning, match="never"):
        session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    run(session, 3)
    assert not lab.compiled
    assert [part.ep for part in session.explain().partitions] == [
        "CPUExecutionProvider"
    ]


def test_a_cancelled_run_waits_no_longer(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.gate(7)
    first, outcome = started(lambda: run(session, 7))
    assert lab.began[7].wait(WAIT)
    options = onnxplug.RunOptions()
    options.timeout = 0.05
    with pytest.raises(RunCancelled, match="timeout"):
        run(session, 7, options)
    lab.gates[7].set()
    ended(first)
    assert outcome == [None]


def test_a_compilation_that_nobody_wants_any_more_is_cancelled(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.gate(7)
    lab.asks = True
    options = onnxplug.RunOptions()
    first, outcome = started(lambda: run(session, 7, options))
    assert lab.began[7].wait(WAIT)
    other, waited = started(lambda: run(session, 7))
    while counted(session).waits < 1:
        time.sleep(0.001)
    options.terminate = True
    time.sleep(0.05)
    assert first.is_alive()  # another run wants it
    lab.gates[7].set()
    ended(first)
    ended(other)
    assert waited == [None]
    assert isinstance(outcome[0], RunCancelled)
    lab.gate(9)
    options = onnxplug.RunOptions()
    first, outcome = started(lambda: run(session, 9, options))
    assert lab.began[9].wait(WAIT)
    options.terminate = True
    ended(first)
    assert isinstance(outcome[0], RunCancelled) and "terminate" in str(outcome[0])
    lab.gates[9].set()
    run(session, 9)


def test_how_its_first_run_ends_does_not_matter_later(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    options = onnxplug.RunOptions()
    run(session, 7, options)
    (partition,) = lab.partitions
    options.terminate = True
    assert not partition.cancelled
    reference = weakref.ref(partition)
    del partition
    lab.partitions.clear()
    session.close()
    del session
    gc.collect()
    assert reference() is None


def test_closing_while_another_thread_compiles(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    run(session, 1)
    lab.gate(7)
    thread, outcome = started(lambda: run(session, 7))
    assert lab.began[7].wait(WAIT)
    session.close()
    assert not lab.closed  # the run is not over
    with pytest.raises(RunError, match="closed"):
        run(session, 1)
    lab.gates[7].set()
    ended(thread)
    assert (outcome, sorted(lab.closed)) == ([None], [1, 7])


def test_runs_that_may_not_overlap(lab: Lab) -> None:
    lab.limit = 1
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    run(session, 1)
    run(session, 2)
    lab.in_run[1] = threading.Event()
    threads = [started(lambda: run(session, 1)) for _ in range(2)]
    while lab.runs[1] < 2:
        time.sleep(0.001)
    run(session, 2)  # has turns of its own
    time.sleep(0.05)
    assert lab.runs[1] == 2
    lab.in_run[1].set()
    for thread, outcome in threads:
        ended(thread)
        assert outcome == [None]


def test_several_partitions_and_bodies(lab: Lab) -> None:
    several = model(
        """g (float[N,3] x, bool c, int64 n) => (float[N,3] y, float[N,6] z,
            float[K,N,3] w) {
            a = Add (x, x)  b = Erf (a)  y = Mul (b, a)
            z = If (c) <
                then_branch = t () => (p) { p = Concat <axis = 1> (a, x) },
                else_branch = e () => (q) { q = Concat <axis = 1> (x, a) } >
            s, w = Loop (n, , x) <body = l (int64 i, bool d, float[M,3] v) => (e, u, k)
                { e = Identity (d)  k = Erf (v)  u = Add (v, x) }>
        }"""
    )
    session = onnxplug.InferenceSession(several, providers=[EP])
    erf = np.vectorize(math.erf, otypes=[np.float32])
    for size, condition in ((2, True), (2, False), (5, True), (2, True)):
        x = np.random.default_rng(size).standard_normal((size, 3)).astype(np.float32)
        feed = {"x": x, "c": np.array(condition), "n": np.array(2)}
        expected = [
            erf(2 * x) * 2 * x,
            np.concatenate([2 * x, x] if condition else [x, 2 * x], axis=1),
            np.stack([erf(x), erf(2 * x)]),
        ]
        for found, wanted in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert all(
        isinstance(size, int) for shapes in lab.compiled for s in shapes for size in s
    )


def test_8_threads_and_40_shapes(lab: Lab, tmp_path: Path) -> None:
    """No run waits for another's shapes: while one compilation is held up, all others
    go on, and the trace has nobody waiting."""
    lab.specialises = 40
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = onnxplug.InferenceSession(DOUBLE, options, providers=[EP])
    lab.gate(40)
    held, outcome = started(lambda: run(session, 40))
    assert lab.began[40].wait(WAIT)

    def work(first: int) -> None:
        for turn in range(3):
            for size in range(1, 40):
                run(session, 1 + (size + 5 * first + turn) % 39)

    threads = [started(lambda first=first: work(first)) for first in range(8)]
    for thread, found in threads:
        ended(thread)
        assert found == [None]
    assert held.is_alive()
    lab.gates[40].set()
    ended(held)
    assert outcome == [None]
    assert sorted(shapes[0][0] for shapes in lab.compiled) == list(range(1, 41))
    assert counted(session).compiled["run"] == 40
    events = json.loads(Path(session.end_profiling()).read_text())
    compiled = [e for e in events if e["name"].startswith("compile for x[")]
    assert len(compiled) == 40
    (slow,) = [e for e in compiled if e["name"] == "compile for x[40, 3]"]
    end = slow["ts"] + slow["dur"]
    runs = [e for e in events if e["name"] == "model_run"]
    within = [r for r in runs if slow["ts"] < r["ts"] and r["ts"] + r["dur"] < end]
    assert len(within) == len(runs) - 1 == 8 * 3 * 39
    waits = [e for e in events if e["name"].startswith("wait until compiled for")]
    assert all("[40, 3]" not in e["name"] for e in waits)
    json.dumps(compiled[0]["args"]["shapes"])
