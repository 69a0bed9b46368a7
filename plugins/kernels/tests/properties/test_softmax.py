"""Softmax, its logarithm and Hardmax against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from .comparison import assert_near, result_of, wide
from .strategies import Draw, examples


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("version", [28, 11])
@examples(50)
def test_softmax(op_type: str, version: int, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    x = draw.array(dtype, draw.shape(1), draw.one_of(["any", "special", "ordinary"]))
    rank, default = x.ndim, -1 if version > 12 else 1
    if default == 1 and rank == 1:
        default = 0  # there is no axis 1
    axis = default if draw.flag() else draw.axis(rank)
    # up to version 12 all axes from that one on are one
    axes = tuple(range(axis % rank, rank)) if version < 13 else axis
    with np.errstate(all="ignore"):
        exact = wide(x)
        if exact.size:
            exact = exact - exact.max(axis=axes, keepdims=True)
        # the logarithm is that of a sum from one on
        away = np.maximum(np.nan_to_num(np.abs(exact), posinf=0), 1)
        total = np.exp(exact).sum(axis=axes, keepdims=True)
        exact = exact - np.log(total)
        if op_type == "Softmax":
            exact = np.exp(exact)
            # the distance from the largest is rounded, too
            away = np.maximum(exact, 1e-30) * away
    found = result_of(op_type, x, axis=axis, version=version)
    assert_near(found, exact, dtype, 8 if dtype.itemsize > 2 else 1, away)


@pytest.mark.parametrize("version", [28, 11])
@examples(50)
def test_hardmax(version: int, draw: Draw) -> None:
    """NaN has no place in an order that ONNX would tell."""
    dtype = draw.dtype("Hardmax")
    x = draw.array(dtype, draw.shape(1, empty=False), "finite")
    axis = draw.axis(x.ndim)
    if version > 12:
        rows = np.moveaxis(wide(x), axis, -1)
    else:
        rows = wide(x).reshape(*x.shape[: axis % x.ndim], -1)
    expected = np.zeros(rows.shape)
    for place in np.ndindex(rows.shape[:-1]):
        row = rows[place].tolist()
        expected[place][row.index(max(row))] = 1
    if version > 12:
        expected = np.moveaxis(expected, -1, axis)
    found = result_of("Hardmax", x, axis=axis, version=version)
    assert_near(found, expected.reshape(x.shape), dtype, 0)
