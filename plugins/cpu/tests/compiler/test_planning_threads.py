"""Runs of several threads, while one of them plans for new shapes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx

import onnxplug

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[n,3] x) => (float[n,3] y) { a = Neg (x) b = Softmax (a) y = Neg (b) }
    """
)


def run(session: onnxplug.InferenceSession, rows: int, options: Any = None) -> None:
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    (found,) = session.run(None, {"x": x}, options)
    weights = np.exp(-x - np.max(-x, axis=-1, keepdims=True))
    expected = -weights / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Held(onnxplug.RunOptions):
    """Holds its run up where it is asked, for the second time, whether it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.is_held = threading.Event()
        self.go_on = threading.Event()

    @property
    def is_terminated(self) -> bool:
        self.asked += 1
        if self.asked == 2:
            self.is_held.set()
            assert self.go_on.wait(60)
        return False


def test_runs_of_shapes_that_are_planned_go_on() -> None:
    session = onnxplug.InferenceSession(MODEL)
    for rows in (2, 3):
        run(session, rows)
    options = Held()
    planning = threading.Thread(target=run, args=(session, 5, options))
    planning.start()
    assert options.is_held.wait(60)

    def others() -> None:
        for rows in (2, 3, 2, 3):
            run(session, rows)

    running = threading.Thread(target=others, daemon=True)
    running.start()
    running.join(20)
    was_stopped = running.is_alive()
    options.go_on.set()
    planning.join()
    running.join()
    assert not was_stopped
    run(session, 5)
