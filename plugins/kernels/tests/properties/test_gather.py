"""Operators that find elements by positions, against loops over the positions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from .comparison import assert_near, assert_same, objects, result_of, wide, wrapped
from .strategies import Array, Draw, Dtype, examples, is_float, is_integer

INDICES: Final = (np.int64, np.int32)


@examples(60)
def test_gather(draw: Draw) -> None:
    x = draw.array(draw.dtype("Gather"), draw.shape(1))
    axis = draw.axis(x.ndim)
    size, shape = x.shape[axis], draw.shape(0, 2)
    indices = positions(draw, size, shape)
    at = axis % x.ndim
    expected = np.empty((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), x.dtype)
    for place in np.ndindex(indices.shape):
        target = (slice(None),) * at + place
        expected[target] = x[(slice(None),) * at + (int(indices[place]),)]
    assert_same(result_of("Gather", x, indices, axis=axis), expected)


def positions(draw: Draw, size: int, shape: tuple[int, ...]) -> Array:
    """Positions along an axis of *size*, from either end; none if there are none."""
    if not size:
        shape = (*shape, 0)
    return draw.integers(-size, max(size - 1, 0), shape, draw.one_of(INDICES))


@examples(60)
def test_gather_elements(draw: Draw) -> None:
    x = draw.array(draw.dtype("GatherElements"), draw.shape(1))
    axis = draw.axis(x.ndim)
    indices = element_indices(draw, x, axis)
    expected = np.empty(indices.shape, x.dtype)
    for place in np.ndindex(indices.shape):
        expected[place] = x[_moved(place, axis, indices[place])]
    assert_same(result_of("GatherElements", x, indices, axis=axis), expected)


def element_indices(draw: Draw, x: Array, axis: int) -> Array:
    """Positions along *axis*, of no more elements along the others."""
    shape = [draw.integer(min(1, size), size) for size in x.shape]
    size = x.shape[axis]
    shape[axis] = draw.integer(0, 4) if size else 0
    return draw.integers(-size, max(size - 1, 0), shape, draw.one_of(INDICES))


def _moved(place: tuple[int, ...], axis: int, index: Any) -> tuple[int, ...]:
    moved = list(place)
    moved[axis] = int(index)
    return tuple(moved)


@examples(60)
def test_gather_nd(draw: Draw) -> None:
    x = draw.array(draw.dtype("GatherND"), draw.shape(1))
    batch_dims = draw.integer(0, x.ndim - 1)
    indices = tuples(draw, x, batch_dims)
    length = indices.shape[-1]
    shape = indices.shape[:-1] + x.shape[batch_dims + length :]
    expected = np.empty(shape, x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        expected[place] = x[(*place[:batch_dims], *map(int, indices[place]))]
    assert_same(result_of("GatherND", x, indices, batch_dims=batch_dims), expected)


def tuples(draw: Draw, x: Array, batch_dims: int = 0) -> Array:
    """Index tuples into the axes of *x* after the batch's."""
    length = draw.integer(1, x.ndim - batch_dims)
    sizes = x.shape[batch_dims : batch_dims + length]
    shape = x.shape[:batch_dims] + draw.shape(0, 2)
    if 0 in sizes:
        shape = (*shape, 0)
    columns = [draw.integers(-n, max(n - 1, 0), shape) for n in sizes]
    return np.stack(columns, axis=-1)


Combine = Callable[[Any, Any], Any]
REDUCTIONS: Final[dict[str, Combine]] = {
    "none": lambda old, new: new,
    "add": operator.add,
    "mul": operator.mul,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@examples(40)
def test_scatter_elements(reduction: str, draw: Draw) -> None:
    dtype = scattered_dtype(draw, "ScatterElements", reduction)
    x = draw.array(dtype, draw.shape(1), "whole")
    axis = draw.axis(x.ndim)
    indices = element_indices(draw, x, axis)
    updates = draw.array(dtype, indices.shape, "whole")
    places = [
        _moved(place, axis % x.ndim, indices[place] % x.shape[axis])
        for place in np.ndindex(indices.shape)
    ]
    if reduction == "none" and len(set(places)) < len(places):
        return  # of two updates of an element ONNX does not say which one is the last
    found = result_of(
        "ScatterElements", x, indices, updates, axis=axis, reduction=reduction
    )
    check_scattered(found, x, places, list(updates.ravel()), REDUCTIONS[reduction])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@examples(40)
def test_scatter_nd(reduction: str, draw: Draw) -> None:
    dtype = scattered_dtype(draw, "ScatterND", reduction)
    x = draw.array(dtype, draw.shape(1), "whole")
    indices = tuples(draw, x)
    length = indices.shape[-1]
    updates = draw.array(dtype, indices.shape[:-1] + x.shape[length:], "whole")
    places = [
        (*(int(i) % n for i, n in zip(indices[at], x.shape, strict=False)), *inner)
        for at in np.ndindex(indices.shape[:-1])
        for inner in np.ndindex(x.shape[length:])
    ]
    if reduction == "none" and len(set(places)) < len(places):
        return
    found = result_of("ScatterND", x, indices, updates, reduction=reduction)
    check_scattered(found, x, places, list(updates.ravel()), REDUCTIONS[reduction])


def scattered_dtype(draw: Draw, op_type: str, reduction: str) -> Dtype:
    """Numbers alone are added."""
    if reduction == "none":
        return draw.dtype(op_type)
    return draw.dtype(op_type, kind=lambda dtype: is_float(dtype) or is_integer(dtype))


def check_scattered(
    found: Array,
    x: Array,
    places: list[tuple[int, ...]],
    updates: list[Any],
    combine: Combine,
) -> None:
    """Whole numbers are combined without any error."""
    if is_integer(x.dtype):
        expected = objects(x).copy()
        for place, update in zip(places, updates, strict=True):
            expected[place] = combine(expected[place], int(update))
        assert_same(found, wrapped(expected, x.dtype))
        return
    # the products of many may be beyond float16
    expected = wide(x).copy() if is_float(x.dtype) else x.copy()
    for place, update in zip(places, updates, strict=True):
        expected[place] = combine(expected[place], update)
    if is_float(x.dtype):
        assert_near(found, expected, x.dtype, 1)
    else:
        assert_same(found, expected)


@examples(50)
def test_tensor_scatter(draw: Draw) -> None:
    dtype, shape = draw.dtype("TensorScatter"), draw.shape(2, empty=False)
    axis = draw.integer(1, len(shape) - 1) - (len(shape) if draw.flag() else 0)
    past = draw.array(dtype, shape)
    capacity = shape[axis]
    sizes = list(shape)
    sizes[axis] = length = draw.integer(1, capacity)
    update = draw.array(dtype, sizes)
    mode = draw.one_of(["linear", "circular"])
    last = capacity - length if mode == "linear" else capacity - 1
    starts = draw.integers(0, last, shape[:1]) if draw.flag() else None
    expected = past.copy()
    for place in np.ndindex(tuple(sizes)):
        start = 0 if starts is None else int(starts[place[0]])
        position = (start + place[axis]) % capacity
        expected[_moved(place, axis, position)] = update[place]
    found = result_of("TensorScatter", past, update, starts, axis=axis, mode=mode)
    assert_same(found, expected)


@examples(50)
def test_compress(draw: Draw) -> None:
    x = draw.array(draw.dtype("Compress"), draw.shape(1))
    axis = draw.axis(x.ndim) if draw.flag() else None
    size = x.size if axis is None else x.shape[axis]
    condition = draw.array(bool, (draw.integer(0, min(size, 12)),))
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    kept = [row for row, keep in enumerate(condition.tolist()) if keep]
    expected = rows[kept]
    if axis is not None:
        expected = np.moveaxis(expected, 0, axis)
    given = {} if axis is None else {"axis": axis}
    assert_same(result_of("Compress", x, condition, **given), expected)


@examples(35)
def test_non_zero(draw: Draw) -> None:
    """Of numbers: what the zero of strings is, is not told."""
    dtype = draw.dtype("NonZero", kind=lambda dtype: dtype.kind != "O")
    x = draw.array(dtype, draw.shape())
    places = [place for place in np.ndindex(x.shape) if wide(x)[place] != 0]
    expected = np.array(places, np.int64).reshape(len(places), x.ndim).T
    assert_same(result_of("NonZero", x), expected)


@examples(60)
def test_one_hot(draw: Draw) -> None:
    classes = draw.integer(1, 5)
    kind = draw.dtype("OneHot", "T1", is_signed)
    indices = draw.integers(-classes - 2, classes + 1, draw.shape(0, 3), kind)
    depth = np.array(classes, draw.dtype("OneHot", "T2"))
    values = draw.array(draw.dtype("OneHot", "T3"), (2,))
    axis = draw.axis(indices.ndim + 1)
    shape = list(indices.shape)
    shape.insert(axis % (indices.ndim + 1), classes)
    expected = np.empty(shape, values.dtype)
    for place in np.ndindex(tuple(shape)):
        row = list(place)
        position = row.pop(axis)
        index = int(indices[tuple(row)])
        # what is out of range is no class
        hot = position == (index + classes if index < 0 else index)
        expected[place] = values[int(hot)]
    depth = depth.reshape((1,)) if draw.flag() else depth
    assert_same(result_of("OneHot", indices, depth, values, axis=axis), expected)


def is_signed(dtype: Dtype) -> bool:
    return dtype.kind == "i" or dtype.kind == "f"
