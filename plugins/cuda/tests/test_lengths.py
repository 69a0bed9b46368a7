"""Plans for sizes that change: how many are kept, and that kernels serve all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_compiler.gpu.execution import segment

from .standin import Machine

Alone = Callable[..., onnxplug.InferenceSession]
Parse = Callable[..., onnx.ModelProto]


def plans(session: onnxplug.InferenceSession) -> int:
    (partition,) = session.explain().partitions
    return int(partition.counts["plans"])


@pytest.mark.parametrize(
    ("fewest", "most", "steps", "kept"),
    [(2, 5, 100, 5), (2, 5, 6, 3), (4, 9, 6, 4), (2, 9, 100, 7)],
)
def test_small_plans_are_kept_in_larger_numbers(
    alone: Alone,
    parse: Parse,
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    fewest: int,
    most: int,
    steps: int,
    kept: int,
) -> None:
    """Of seven lengths, each of two launches of a kernel."""
    monkeypatch.setattr(segment, "FEWEST_PLANS", fewest)
    monkeypatch.setattr(segment, "MOST_PLANS", most)
    monkeypatch.setattr(segment, "MOST_STEPS", steps)
    body = "m = Softmax (x)\n y = Softmax <axis = 0> (m)"
    session = alone(parse(body, "float[n, 3] x", "float[n, 3] y"))

    def run(length: int) -> Any:
        return session.run(None, {"x": np.zeros((length, 3), np.float32)})[0]

    for length in range(1, 8):
        np.testing.assert_allclose(run(length), 1 / length, rtol=1e-6)
    assert plans(session) == kept
    compiled = machine.counts["compileProgram"]
    for length in (7, 1):  # kept, and made anew
        np.testing.assert_allclose(run(length), 1 / length, rtol=1e-6)
    assert plans(session) == kept
    assert machine.counts["compileProgram"] == compiled == 1
