"""Operators on shapes: the elements stay, row by row, and the shapes are Python's."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .comparison import assert_same, result_of
from .strategies import Array, Draw, examples, shapes_within


def rearranged(x: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in the same order."""
    result = np.empty(shape, x.dtype)
    for place, element in zip(np.ndindex(shape), x.ravel(), strict=True):
        result[place] = element
    return result


@examples(30)
def test_identity(draw: Draw) -> None:
    x = draw.array(draw.dtype("Identity", "V"), draw.shape())
    assert_same(result_of("Identity", x), x)


@examples(35)
def test_shape_and_size(draw: Draw) -> None:
    x = draw.array(draw.dtype("Shape"), draw.shape())
    bounds = {name: draw.integer(-6, 6) for name in ("start", "end") if draw.flag()}
    sizes = x.shape[slice(bounds.get("start"), bounds.get("end"))]
    assert_same(result_of("Shape", x, **bounds), np.array(sizes, np.int64))
    assert_same(result_of("Size", x), np.array(math.prod(x.shape), np.int64))


@examples(70)
def test_reshape(draw: Draw) -> None:
    x = draw.array(draw.dtype("Reshape"), draw.shape())
    whole = list(x.shape)
    expected = draw.one_of([[x.size], whole, whole[::-1], [1, *whole], [*whole, 1]])
    expected = list(draw.one_of([expected, *_joined(expected)]))
    asked = list(expected)
    allowzero = draw.integer(0, 1)
    for axis, size in enumerate(asked):
        if axis < x.ndim and size == x.shape[axis] and draw.flag() and not allowzero:
            asked[axis] = 0  # which means that size
    zeros = [n for n, size in enumerate(asked) if size == 0]
    if not allowzero and any(n >= x.ndim or x.shape[n] != expected[n] for n in zeros):
        allowzero, asked = 1, list(expected)  # an axis without elements
    if asked and draw.flag():
        axis = draw.integer(0, len(asked) - 1)
        rest = math.prod(n for i, n in enumerate(expected) if i != axis)
        if rest and 0 not in asked[:axis] + asked[axis + 1 :]:
            asked[axis] = -1
            allowzero = 0
    found = result_of("Reshape", x, np.array(asked, np.int64), allowzero=allowzero)
    assert_same(found, rearranged(x, tuple(expected)))


def _joined(shape: list[int]) -> list[list[int]]:
    """Shapes with two neighbours made one."""
    return [
        [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
        for axis in range(len(shape) - 1)
    ]


@examples(35)
def test_flatten(draw: Draw) -> None:
    x = draw.array(draw.dtype("Flatten"), draw.shape())
    axis = draw.integer(-x.ndim, x.ndim)
    rows = math.prod(x.shape[: axis if axis >= 0 else x.ndim + axis])
    columns = math.prod(x.shape[axis if axis >= 0 else x.ndim + axis :])
    expected = rearranged(x, (rows, columns))
    assert_same(result_of("Flatten", x, axis=axis), expected)


@examples(50)
def test_squeeze_and_unsqueeze(draw: Draw) -> None:
    x = draw.array(draw.dtype("Squeeze"), draw.shape())
    more = draw.integer(0, 3)
    rank = x.ndim + more
    new = {axis % rank for axis in draw.axes(rank, fewest=more)[:more]}
    kept = iter(x.shape)
    shape = tuple(1 if axis in new else next(kept) for axis in range(rank))
    axes = np.array([n - rank if draw.flag() else n for n in sorted(new)], np.int64)
    larger = rearranged(x, shape)
    assert_same(result_of("Unsqueeze", x, axes), larger)
    assert_same(result_of("Squeeze", larger, axes), x)
    least = tuple(size for size in shape if size != 1)
    assert_same(result_of("Squeeze", larger), rearranged(x, least))


@examples(50)
def test_expand(draw: Draw) -> None:
    whole = draw.shape()
    within = draw.one_of(shapes_within(whole))
    asked = draw.one_of([whole, *shapes_within(whole)])
    x = draw.array(draw.dtype("Expand"), within)
    shape = np.broadcast_shapes(within, asked)
    expected = np.empty(shape, x.dtype)
    for place in np.ndindex(shape):
        source = place[len(shape) - x.ndim :]
        expected[place] = x[
            tuple(0 if n == 1 else i for i, n in zip(source, x.shape, strict=True))
        ]
    assert_same(result_of("Expand", x, np.array(asked, np.int64)), expected)


@examples(35)
def test_tile(draw: Draw) -> None:
    x = draw.array(draw.dtype("Tile"), draw.shape(0, 3))
    repeats = [draw.integer(0, 3) for _ in x.shape]
    shape = tuple(n * times for n, times in zip(x.shape, repeats, strict=True))
    expected = np.empty(shape, x.dtype)
    for place in itertools.product(*map(range, shape)):
        expected[place] = x[tuple(i % n for i, n in zip(place, x.shape, strict=True))]
    assert_same(result_of("Tile", x, np.array(repeats, np.int64)), expected)
