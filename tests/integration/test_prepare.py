"""What is made ready before a run, for model inputs of given shapes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.errors import EpError, InputError, InvalidModel, RunError

from .shapes_lab import DOUBLE, EP, WAIT, Lab, counted, ended, model, run, started


def test_what_is_prepared_is_not_compiled_in_a_run(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    found = session.prepare([{"x": [2, 3]}, {"x": (5, 3)}, {"x": (2, 3)}])
    assert [(each.ready, each.shapes) for each in found] == [
        (True, {"x": (2, 3)}),
        (True, {"x": (5, 3)}),
        (True, {"x": (2, 3)}),
    ]
    assert len(lab.compiled) == 2
    run(session, 2)
    run(session, 5)
    assert len(lab.compiled) == 2
    assert counted(session).compiled == {"run": 0, "prepare": 2, "background": 0}


def test_shapes_are_followed_to_every_partition(lab: Lab) -> None:
    session = onnxplug.InferenceSession(
        model(
            """g (float[N,3] x, int64 n, bool c) => (float[M,3] y, float[K,M,3] z) {
                a = Concat <axis = 0> (x, x)  b = Erf (a)  y = Mul (b, a)
                t, z = Loop (n, , y) <
                    body = l (int64 i, bool d, float[J,3] v) => (e, u, k) {
                        e = Identity (d)  k = Add (y, y)  u = Add (v, v)
                    }>
            }"""
        ),
        providers=[EP],
    )
    found = session.prepare({"x": (4, 3)})
    assert {each.ep for each in found} == {EP, "CPUExecutionProvider"}
    ready = {each.partition: each.ready for each in found}
    reasons = {each.reason for each in found if not each.ready}
    assert ((4, 3),) in lab.compiled
    assert ((8, 3), (8, 3)) in lab.compiled
    # the body adds what is captured, of a shape that follows, and what goes round
    assert any("do not follow" in reason and "v" in reason for reason in reasons)
    assert list(ready.values()).count(False) == 1
    before = list(lab.compiled)
    feed: dict[str, Any] = {"x": np.ones((4, 3), np.float32), "n": np.array(1)}
    session.run(None, feed | {"c": np.array(True)})
    assert len(lab.compiled) == len(before) + 1  # that of the body


def test_the_cpu_ep_plans_ahead() -> None:
    session = onnxplug.InferenceSession(
        model("g (float[N,3] x) => (float[N,3] y) { a = Relu (x) y = Softmax (a) }")
    )
    (prepared,) = session.prepare({"x": (5, 3)})
    assert prepared.ready
    session.run(None, {"x": np.ones((5, 3), np.float32)})


def test_an_ep_that_makes_nothing_by_shapes_says_so(lab: Lab) -> None:
    lab.specialises = 0
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    (prepared,) = session.prepare({"x": (5, 3)})
    assert not prepared.ready
    assert prepared.reason == f"{EP} makes nothing of it by shapes"


def test_inputs_that_are_left_out(lab: Lab) -> None:
    two = model(
        "g (float[N,3] x, float[N,M] w) => (float[N,L] y) {"
        "  y = Concat <axis = 1> (x, w) }"
    )
    session = onnxplug.InferenceSession(two, providers=[EP])
    (prepared,) = session.prepare({"x": (5, 3)})
    assert not prepared.ready
    assert "w is [5, 'M']" in prepared.reason
    (prepared,) = session.prepare({"w": (5, 2)})
    assert prepared.ready
    assert lab.compiled == [((5, 3), (5, 2))]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": (1,)}, "no input 'z'"),
        ({"x": (1,)}, "rank"),
        ({"x": (1, 4)}, "fixed, 3"),
    ],
)
def test_shapes_that_cannot_be_fed(lab: Lab, shapes: Any, words: str) -> None:
    two = model("g (float[N,3] x, float[N,3] w) => (float[N,3] y) { y = Add (x, w) }")
    session = onnxplug.InferenceSession(two, providers=[EP])
    with pytest.raises(InputError, match=words):
        session.prepare(shapes)
    assert not lab.compiled


def test_shapes_with_which_a_node_cannot_run(lab: Lab) -> None:
    short = model(
        """g (float[N] x) => (float[M] y) <int64[1] five = {5}> {
            n = Shape (x)  less = Sub (n, five)  y = ConstantOfShape (less) }"""
    )
    session = onnxplug.InferenceSession(short, providers=[EP])
    with pytest.raises(InvalidModel, match="ConstantOfShape"):
        session.prepare({"x": (4,)})
    with pytest.raises(RunError, match=r"for x\[4\].*ConstantOfShape"):
        session.run(None, {"x": np.ones(4, np.float32)})


def test_failures_are_raised(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    lab.fails[7] = ValueError("no such tile")
    with pytest.raises(EpError, match="no such tile"):
        session.prepare({"x": (7, 3)})
    session.close()
    with pytest.raises(RunError, match="closed"):
        session.prepare({"x": (7, 3)})


def test_runs_go_on_while_it_prepares_and_closing_waits(lab: Lab) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[EP])
    gate: threading.Event = lab.gate(7)
    thread, outcome = started(lambda: session.prepare({"x": (7, 3)}))
    assert lab.began[7].wait(WAIT)
    run(session, 2)
    session.close()
    assert not lab.closed
    gate.set()
    ended(thread)
    assert outcome[0][0].ready
    assert sorted(lab.closed) == [2, 7]
