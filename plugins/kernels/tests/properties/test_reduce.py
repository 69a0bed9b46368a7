"""Reductions against sums and extremes in NumPy's widest floats, or of integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from .comparison import (
    assert_near,
    assert_same,
    objects,
    result_of,
    wide,
    wrapped,
)
from .formulas import REDUCTIONS, reduced_size
from .strategies import Array, Draw, examples, is_float, is_integer, limits

INTEGERS: dict[str, Any] = {
    "ReduceL1": lambda row: sum(map(abs, row)),
    "ReduceL2": lambda row: math.isqrt(sum(n * n for n in row)),
    "ReduceMax": max,
    "ReduceMean": lambda row: abs(sum(row)) // len(row) * (1 if sum(row) > 0 else -1),
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceSumSquare": lambda row: sum(n * n for n in row),
}
UNDEFINED_FOR_NONE = {"ReduceMean"}


class Reduction:
    """How one node reduces: the inputs and attributes after the first, and what axes.

    Older versions have an attribute in place of the input.
    """

    def __init__(self, draw: Draw, op_type: str, rank: int) -> None:
        given = draw.axes(rank) if draw.flag() else None
        self.version = draw.one_of([28, 28, 12 if op_type == "ReduceSum" else 17])
        self.inputs: list[Array] = []
        self.attributes: dict[str, Any] = {}
        self.axes: tuple[int, ...] = tuple(given or range(rank))
        self.keepdims = True
        if draw.flag():
            self.keepdims = draw.flag()
            self.attributes["keepdims"] = int(self.keepdims)
        if self.version == 28:
            if given is not None:
                self.inputs.append(np.array(given, np.int64))
            if draw.flag():
                noop = draw.integer(0, 1)
                self.attributes["noop_with_empty_axes"] = noop
                if noop and not given:
                    self.axes = ()
        elif given:
            self.attributes["axes"] = given

    def result(self, op_type: str, x: Array) -> Array:
        found: Array = result_of(
            op_type, x, *self.inputs, version=self.version, **self.attributes
        )
        return found

    @property
    def over(self) -> dict[str, Any]:
        """As NumPy's functions take it."""
        return {"axis": self.axes, "keepdims": self.keepdims}

    def rows(self, x: Array) -> tuple[list[list[int]], tuple[int, ...]]:
        """What is reduced to one number each, and the shape of those."""
        axes = {axis % x.ndim for axis in self.axes} if x.ndim else set()
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        moved = objects(x).transpose([*kept, *axes])
        sizes = [x.shape[axis] for axis in kept]
        rows = moved.reshape(math.prod(sizes), math.prod(moved.shape[len(kept) :]))
        shape = [1 if n in axes else size for n, size in enumerate(x.shape)]
        return rows.tolist(), tuple(shape if self.keepdims else sizes)


@pytest.mark.parametrize("op_type", REDUCTIONS)
@examples(40)
def test_floats(op_type: str, draw: Draw) -> None:
    dtype = draw.dtype(op_type, kind=is_float)
    values = "any" if op_type in ("ReduceMax", "ReduceMin") else "special"
    x = draw.array(
        dtype,
        draw.shape(empty=op_type not in UNDEFINED_FOR_NONE),
        "powers" if op_type == "ReduceProd" else values,
    )
    if op_type == "ReduceProd" and x.size > 60:
        x = x[:1]  # powers that are in the range of float32 in any order
    reduction = Reduction(draw, op_type, x.ndim)
    with np.errstate(all="ignore"):
        exact = np.asarray(REDUCTIONS[op_type](wide(x), **reduction.over))
    size = reduced_size(op_type, x, **reduction.over)
    units = max(4, x.size) if dtype.itemsize > 2 else 1
    assert_near(reduction.result(op_type, x), exact, dtype, units, size)


@examples(50)
def test_log_sum_exp(draw: Draw) -> None:
    """Of any numbers: their exponentials may be infinite, but not the result."""
    dtype = draw.dtype("ReduceLogSumExp", kind=is_float)
    x = draw.array(dtype, draw.shape(), draw.one_of(["any", "special"]))
    reduction = Reduction(draw, "ReduceLogSumExp", x.ndim)
    with np.errstate(all="ignore"):
        exact = np.asarray(log_sum_exp(wide(x), reduction.axes))
        size = np.maximum(np.abs(exact), 1)
    if reduction.keepdims:
        shape = np.empty(x.shape, bool).any(**reduction.over).shape
        exact, size = exact.reshape(shape), size.reshape(shape)
    found = reduction.result("ReduceLogSumExp", x)
    units = max(8, x.size) if dtype.itemsize > 2 else 1
    assert_near(found, exact, dtype, units, np.nan_to_num(size, posinf=0))


def log_sum_exp(x: Array, axes: tuple[int, ...]) -> Any:
    """One axis after the other."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = np.logaddexp.reduce(x, axis=axis, initial=-np.inf)
    return x


@pytest.mark.parametrize("op_type", INTEGERS)
@examples(30)
def test_integers(op_type: str, draw: Draw) -> None:
    dtype = draw.dtype(op_type, kind=is_integer)
    x = draw.array(
        dtype,
        draw.shape(empty=op_type not in UNDEFINED_FOR_NONE),
        # a product of many is beyond the type, and so is the opposite of the smallest
        "any" if op_type in ("ReduceMax", "ReduceMin", "ReduceSum") else "whole",
    )
    reduction = Reduction(draw, op_type, x.ndim)
    rows, shape = reduction.rows(x)
    if op_type == "ReduceMax":
        rows = [[limits(dtype)[0], *row] for row in rows]
    if op_type == "ReduceMin":
        rows = [[limits(dtype)[1], *row] for row in rows]
    results = np.array([INTEGERS[op_type](row) for row in rows], object)
    expected = wrapped(results.reshape(shape), dtype)
    assert_same(reduction.result(op_type, x), expected)


@pytest.mark.parametrize(
    ("op_type", "extreme"), [("ReduceMax", any), ("ReduceMin", all)]
)
@examples(20)
def test_truths(op_type: str, extreme: Any, draw: Draw) -> None:
    x = draw.array(bool, draw.shape())
    reduction = Reduction(draw, op_type, x.ndim)
    reduction.version = 28
    if "axes" in reduction.attributes:
        reduction.inputs = [np.array(reduction.attributes.pop("axes"))]
    rows, shape = reduction.rows(x.astype(np.int8))
    expected = np.array([extreme(row) for row in rows], bool).reshape(shape)
    assert_same(reduction.result(op_type, x), expected)


@pytest.mark.parametrize(("op_type", "extreme"), [("ArgMax", max), ("ArgMin", min)])
@examples(50)
def test_arg_extremes(op_type: str, extreme: Any, draw: Draw) -> None:
    """NaN has no place in an order that ONNX would tell."""
    dtype = draw.dtype(op_type)
    x = draw.array(dtype, draw.shape(1), draw.one_of(["finite", "whole"]))
    axis = draw.axis(x.ndim)
    if not x.shape[axis]:
        return
    last = draw.integer(0, 1)
    keepdims = draw.flag()
    rows = np.moveaxis(objects(x) if is_integer(dtype) else wide(x), axis, -1)
    expected = np.zeros(rows.shape[:-1], np.int64)
    for place in np.ndindex(expected.shape):
        row = rows[place].tolist()
        best = extreme(row)
        first = row.index(best)
        expected[place] = len(row) - 1 - row[::-1].index(best) if last else first
    if keepdims:
        expected = np.expand_dims(expected, axis)
    found = result_of(
        op_type, x, axis=axis, keepdims=int(keepdims), select_last_index=last
    )
    assert_same(found, expected)
