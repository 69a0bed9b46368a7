"""Operators on an array's shape: the elements keep their values and their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import at_least, normal_axes, normal_axis, sizes
from onnxplug_kernels.arrays import numbers
from onnxplug_kernels.registry import operator


@operator("Identity", since=1)
def identity(xp: Any, x: Any) -> Any:
    return x


@operator("Shape", since=15)
def shape(xp: Any, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return xp.asarray(x.shape[start:end], dtype=xp.int64)


@operator("Shape", since=1, until=14)
def shape_1(xp: Any, x: Any) -> Any:
    return xp.asarray(x.shape, dtype=xp.int64)


@operator("Size", since=1)
def size(xp: Any, x: Any) -> Any:
    return xp.asarray(xp.size(x), dtype=xp.int64)


@operator("Reshape", since=14)
def reshape(xp: Any, x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    requested = numbers(xp, shape, "shape")
    if allowzero:
        if 0 in requested and -1 in requested:
            raise ValueError(
                f"Reshape to {requested} with allowzero: beside a size of 0, -1 may "
                f"stand for any"
            )
        return xp.reshape(x, _at_least_minus_one(requested))
    return xp.reshape(x, without_zeros(x.shape, requested))


@operator("Reshape", since=5, until=13)
def reshape_5(xp: Any, x: Any, shape: Any) -> Any:
    return xp.reshape(x, without_zeros(x.shape, numbers(xp, shape, "shape")))


@operator("Reshape", since=1, until=4)
def reshape_1(
    xp: Any,
    x: Any,
    *,
    shape: Sequence[int] = (),
    consumed_inputs: Sequence[int] = (),
) -> Any:
    return xp.reshape(x, without_zeros(x.shape, list(shape)))


@operator("Flatten", since=1)
def flatten(xp: Any, x: Any, *, axis: int = 1) -> Any:
    if not -x.ndim <= axis <= x.ndim:
        raise ValueError(
            f"Flatten at axis {axis} of an input of rank {x.ndim}; "
            f"expected an axis from {-x.ndim} to {x.ndim}"
        )
    return xp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Squeeze", since=13)
def squeeze(xp: Any, x: Any, axes: Any = None) -> Any:
    return squeeze_1(xp, x, axes=None if axes is None else numbers(xp, axes, "axes"))


@operator("Squeeze", since=1, until=12)
def squeeze_1(xp: Any, x: Any, *, axes: Sequence[int] | None = None) -> Any:
    if axes is None:
        return xp.squeeze(
            x, tuple(axis for axis, size in enumerate(x.shape) if size == 1)
        )
    try:
        return xp.squeeze(x, tuple(axes) if x.ndim else normal_axes(axes, 0))
    except (ValueError, OverflowError):
        normal_axes(axes, x.ndim)
        raise


@operator("Unsqueeze", since=13)
def unsqueeze(xp: Any, x: Any, axes: Any) -> Any:
    return unsqueeze_1(xp, x, axes=numbers(xp, axes, "axes"))


@operator("Unsqueeze", since=1, until=12)
def unsqueeze_1(xp: Any, x: Any, *, axes: Sequence[int]) -> Any:
    try:
        return xp.expand_dims(x, tuple(axes))
    except (ValueError, OverflowError):
        normal_axes(axes, x.ndim + len(axes))
        raise


@operator("Expand", since=8)
def expand(xp: Any, x: Any, shape: Any) -> Any:
    common = _broadcast_shape(x.shape, numbers(xp, shape, "shape"))
    sizes(common, itemsize=xp.itemsize(x), what="the expanded shape")
    return xp.broadcast_to(x, common)


@operator("Tile", since=6)
def tile(xp: Any, x: Any, repeats: Any) -> Any:
    return _tile(xp, x, numbers(xp, repeats, "repeats"))


@operator("Tile", since=1, until=5)
def tile_1(xp: Any, x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * x.ndim
    repeats[normal_axis(int(xp.item(axis)), x.ndim)] = int(xp.item(tiles))
    return _tile(xp, x, repeats)


def _tile(xp: Any, x: Any, repeats: Sequence[int]) -> Any:
    repeats = at_least(0, repeats, "repeats", count=x.ndim)
    # numpy computes the shape without looking for an overflow
    shape = [size * times for size, times in zip(x.shape, repeats, strict=True)]
    sizes(shape, itemsize=xp.itemsize(x), what="the shape of the tiles")
    return xp.tile(x, repeats)


def without_zeros(shape: Sequence[int], requested: list[int]) -> list[int]:
    """*requested* with the size that *shape* has in place of each 0."""
    _at_least_minus_one(requested)
    if 0 not in requested:
        return requested
    result = list(requested)
    for axis, size in enumerate(requested):
        if size == 0:
            if axis >= len(shape):
                raise ValueError(
                    f"Reshape to {requested} copies the size of axis {axis}, "
                    f"which the input of shape {tuple(shape)} does not have"
                )
            result[axis] = shape[axis]
    if -1 in result and 0 in result:
        # An empty axis that is copied says nothing about the inferred one: a batch of
        # no images still has as many pixels each.
        rest = [n for axis, n in enumerate(shape) if requested[axis : axis + 1] != [0]]
        given = [n for n in requested if n > 0]
        inferred, over = divmod(math.prod(rest), math.prod(given))
        if over:
            raise ValueError(
                f"Reshape of shape {tuple(shape)} to {requested}: no size fits for -1"
            )
        result[result.index(-1)] = inferred
    return result


def _at_least_minus_one(requested: list[int]) -> list[int]:
    # numpy takes every negative size for one to be inferred
    if requested and min(requested) < -1:
        raise ValueError(
            f"Reshape to {requested}: expected sizes, or -1 for one to be inferred"
        )
    return requested


def _broadcast_shape(shape: Sequence[int], requested: Sequence[int]) -> tuple[int, ...]:
    """The common shape, for which *requested* may also be the smaller one."""
    rank = max(len(shape), len(requested))
    pairs = zip(
        (1,) * (rank - len(shape)) + tuple(shape),
        (1,) * (rank - len(requested)) + tuple(requested),
        strict=True,
    )
    common = tuple(theirs if ours == 1 else ours for ours, theirs in pairs)
    for size, wanted in zip(reversed(common), reversed(requested), strict=False):
        if wanted not in (1, size):
            raise ValueError(
                f"Expand of shape {tuple(shape)} to {tuple(requested)}: size {size} "
                f"cannot become {wanted}; expected equal sizes, or one of them 1"
            )
    return common
