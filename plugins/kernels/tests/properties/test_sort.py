"""The largest, the smallest and the distinct elements, against Python's sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from .comparison import assert_near, assert_same, objects, result_of, wide
from .strategies import Array, Draw, examples, is_float, is_integer


def sortable(x: Array) -> Array:
    """Numbers that Python compares; NaN has no place in an order that ONNX tells."""
    if is_float(x.dtype):
        return wide(x)
    return objects(x) if is_integer(x.dtype) else x


@examples(85)
def test_top_k(draw: Draw) -> None:
    dtype = draw.dtype("TopK")
    x = draw.array(dtype, draw.shape(1), draw.one_of(["finite", "whole"]))
    check_top_k(draw, x, draw.axis(x.ndim))


@examples(30)
def test_top_k_of_many(draw: Draw) -> None:
    """Of few that are asked for another way finds them."""
    dtype = draw.dtype("TopK")
    few = draw.array(dtype, (2, 200), draw.one_of(["finite", "whole"]))
    x = np.concatenate([few, few], axis=1)
    check_top_k(draw, x if draw.flag() else x.T, 1 if x.ndim == 2 else 0)


def check_top_k(draw: Draw, x: Array, axis: int) -> None:
    size = x.shape[axis]
    k = draw.integer(0, size if draw.flag() else min(size, 3))
    largest = draw.integer(0, 1)
    rows = np.moveaxis(sortable(x), axis, -1)
    expected = np.zeros((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        row = rows[place].tolist()
        order = sorted(range(size), key=lambda i: row[i], reverse=bool(largest))
        expected[place] = order[:k]
    expected = np.moveaxis(expected, -1, axis)
    values, indices = result_of(
        "TopK", x, np.array([k]), axis=axis, largest=largest, output_count=2
    )
    # Python's sort keeps the order of equals, reversed or not, as the operator does
    assert_same(indices, expected)
    assert_near(values, np.take_along_axis(sortable(x), expected, axis), x.dtype, 0)


@examples(100)
def test_unique(draw: Draw) -> None:
    """Complex numbers have no order, and NaN equals nothing."""
    dtype = draw.dtype("Unique", kind=lambda dtype: dtype.kind != "c")
    x = draw.array(dtype, draw.shape(), draw.one_of(["whole", "finite"]))
    axis = draw.axis(x.ndim) if x.ndim and draw.flag() else None
    in_order = draw.integer(0, 1)
    parts = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    keys = [tuple(np.ravel(part).tolist()) for part in sortable(parts)]
    places: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    chosen = sorted(places) if in_order else list(places)
    chosen_at = [places[key][0] for key in chosen]
    number = {key: n for n, key in enumerate(chosen)}
    attributes = {} if axis is None else {"axis": axis}
    y, indices, inverse, counts = result_of(
        "Unique", x, sorted=in_order, output_count=4, **attributes
    )
    assert_same(indices, np.array(chosen_at, np.int64))
    assert_same(inverse, np.array([number[key] for key in keys], np.int64))
    assert_same(counts, np.array([len(places[key]) for key in chosen], np.int64))
    values = parts[np.array(chosen_at, np.int64)]
    assert_same(y, values if axis is None else np.moveaxis(values, 0, axis))
    alone = result_of("Unique", x, sorted=in_order, output_count=1, **attributes)[0]
    assert alone.dtype == x.dtype
    np.testing.assert_array_equal(sortable(alone), sortable(y))
