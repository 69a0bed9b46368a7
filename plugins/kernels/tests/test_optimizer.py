"""Optimizers against the pseudo code of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .node_oracles import run

RANDOM = np.random.default_rng(7)
RATE = np.array(0.1)
SHAPES: list[tuple[int, ...]] = [(3,), (2, 2), ()]


def tensors(count: int) -> list[list[Any]]:
    """For each kind of tensor one of each shape; all positive, as squares are."""
    return [
        [np.array(RANDOM.random(shape), dtype=np.float32) for shape in SHAPES]
        for _ in range(count)
    ]


def check(results: tuple[Any, ...], expected: list[list[Any]]) -> None:
    flat = [array for group in zip(*expected, strict=True) for array in group]
    assert len(results) == len(flat)
    for result, array in zip(results, flat, strict=True):
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, array, rtol=1e-5)


def step(op_type: str, count: int, groups: list[list[Any]], **attributes: Any) -> Any:
    flat = [array for group in groups for array in group]
    return run(
        op_type,
        RATE,
        np.array(count),
        *flat,
        domain="ai.onnx.preview.training",
        version=1,
        **attributes,
    )


@pytest.mark.parametrize("count", [0, 3])
def test_adagrad(count: int) -> None:
    groups = tensors(3)
    expected = []
    for x, g, h in zip(*groups, strict=True):
        r = 0.1 / (1 + count * 0.2)
        g = 0.3 * x + g
        h = h + g * g
        expected.append([x - r * g / (np.sqrt(h) + 0.01), h])
    results = step(
        "Adagrad", count, groups, norm_coefficient=0.3, decay_factor=0.2, epsilon=0.01
    )
    check(results, expected)


@pytest.mark.parametrize("count", [0, 3])
def test_adam(count: int) -> None:
    groups = tensors(4)
    expected = []
    for x, g, v, h in zip(*groups, strict=True):
        g = 0.3 * x + g
        v = 0.8 * v + 0.2 * g
        h = 0.7 * h + 0.3 * g * g
        r = 0.1 * np.sqrt(1 - 0.7**count) / (1 - 0.8**count) if count else 0.1
        x = x - r * v / (np.sqrt(h) + 0.01)
        expected.append([(1 - 0.4) * x, v, h])
    results = step(
        "Adam",
        count,
        groups,
        alpha=0.8,
        beta=0.7,
        norm_coefficient=0.3,
        norm_coefficient_post=0.4,
        epsilon=0.01,
    )
    check(results, expected)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(mode: str, count: int) -> None:
    groups = tensors(3)
    expected = []
    for x, g, v in zip(*groups, strict=True):
        g = 0.3 * x + g
        v = 0.8 * v + (0.7 if count else 1) * g
        expected.append([x - 0.1 * (g + 0.8 * v if mode == "nesterov" else v), v])
    attributes = {"alpha": 0.8, "beta": 0.7, "norm_coefficient": 0.3}
    check(step("Momentum", count, groups, mode=mode, **attributes), expected)


def test_refusals() -> None:
    attributes = {"alpha": 0.8, "beta": 0.7, "norm_coefficient": 0.3}
    with pytest.raises(ValueError, match="'fast'"):
        step("Momentum", 0, tensors(3), mode="fast", **attributes)
    with pytest.raises(ValueError, match=r"4 inputs per tensor.*got 9"):
        step("Adam", 0, tensors(3))
