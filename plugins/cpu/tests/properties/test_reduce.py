"""Reductions and running sums of the compiled tier against NumPy's widest floats."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from ....kernels.tests.properties.comparison import (
    assert_near,
    assert_same,
    objects,
    wide,
    wrapped,
)
from ....kernels.tests.properties.formulas import REDUCTIONS, reduced_size
from ....kernels.tests.properties.strategies import Array, Draw, Dtype, examples
from .compiled import Compiled, Node, shapes

AXES = [(-1,), (0,), (1,), (0, 2), (-2, -1), (0, 1, 2)]
"""Of arrays of rank 3."""


def reductions(names: list[str], dtype: Dtype) -> Compiled:
    nodes = {}
    for number, name in enumerate(names):
        for axes in AXES:
            keepdims = (number + len(axes)) % 2
            nodes[f"{name} {axes} {keepdims}"] = Node(
                name, ("x", np.array(axes)), dtype, {"keepdims": keepdims}
            )
    return Compiled(nodes, {"x": dtype})


def told(name: str) -> tuple[str, dict[str, Any]]:
    """The operator, and NumPy's parameters."""
    op_type, rest = name.split(" ", 1)
    axes, keepdims = rest.rsplit(" ", 1)
    return op_type, {
        "axis": AXES[[*map(str, AXES)].index(axes)],
        "keepdims": keepdims == "1",
    }


@functools.cache
def of_floats() -> Compiled:
    return reductions([*REDUCTIONS, "ReduceLogSumExp"], np.dtype(np.float32))


@examples(24)
def test_floats(draw: Draw) -> None:
    shape = draw.one_of(shapes(3, 3))
    values = draw.one_of(["special", "ordinary"])
    x = draw.array(np.float32, shape, values)
    few = draw.array(np.float32, tuple(min(n, 3) for n in shape), "powers")
    products = of_floats().run(x=few)
    for name, result in of_floats().run(x=x).items():
        op_type, over = told(name)
        if op_type == "ReduceProd":
            with np.errstate(all="ignore"):
                exact = wide(few).prod(**over)
            assert_near(products[name], np.asarray(exact), np.float32, 0)
            continue
        if op_type == "ReduceMean" and not x.size:
            continue  # of nothing there is none
        if op_type == "ReduceLogSumExp":
            exact = log_sum_exp(wide(x), **over)
            size: Any = np.nan_to_num(np.maximum(np.abs(exact), 1), posinf=0)
        else:
            with np.errstate(all="ignore"):
                exact = REDUCTIONS[op_type](wide(x), **over)
            size = reduced_size(op_type, x, **over)
        assert_near(result, np.asarray(exact), np.float32, 64, size)


def log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Of numbers whose exponentials the widest type holds."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(x).sum(axis=axis, keepdims=keepdims)))


@functools.cache
def of_integers(dtype: Dtype) -> Compiled:
    return reductions(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"], dtype)


@pytest.mark.parametrize("dtype", [np.dtype("int64"), np.dtype("int32")], ids=str)
@examples(12)
def test_integers(dtype: Dtype, draw: Draw) -> None:
    x = draw.array(dtype, draw.one_of(shapes(3, 3, empty=False)))
    functions = {
        "ReduceMax": np.maximum,
        "ReduceMin": np.minimum,
        "ReduceSum": np.add,
        "ReduceProd": np.multiply,
    }
    for name, result in of_integers(dtype).run(x=x).items():
        op_type, over = told(name)
        exact = objects(x)
        for axis in sorted((a % 3 for a in over["axis"]), reverse=True):
            exact = functions[op_type].reduce(exact, axis=axis)
        exact = np.asarray(exact, object).reshape(result.shape)
        assert_same(result, wrapped(exact, dtype))
        shape = np.empty(x.shape, bool).any(**over).shape
        assert result.shape == shape


@functools.cache
def running_sums(dtype: Dtype) -> Compiled:
    nodes = {
        f"{axis}{exclusive}{reverse}": Node(
            "CumSum",
            ("x", np.array(axis)),
            dtype,
            {"exclusive": exclusive, "reverse": reverse},
        )
        for axis in (0, 1, 2)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    }
    return Compiled(nodes, {"x": dtype})


@pytest.mark.parametrize("name", ["float32", "int64", "float64", "int32"])
@examples(10)
def test_running_sums(name: str, draw: Draw) -> None:
    dtype = np.dtype(name)
    x = draw.array(dtype, draw.one_of(shapes(3, 3)), "whole")
    for told_, result in running_sums(dtype).run(x=x).items():
        axis, exclusive, reverse = map(int, told_)
        rows = np.moveaxis(x.astype(np.int64), axis, -1)
        rows = rows[..., ::-1] if reverse else rows
        sums = np.cumsum(rows, axis=-1) - (rows if exclusive else 0)
        sums = sums[..., ::-1] if reverse else sums
        np.testing.assert_array_equal(result, np.moveaxis(sums, -1, axis))
        assert result.dtype == dtype
