"""Operators on an array's shape: the elements keep their values and their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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
    return xp.asarray(x.size, dtype=xp.int64)


@operator("Reshape", since=14)
def reshape(xp: Any, x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    requested = shape.tolist()
    return x.reshape(requested if allowzero else _without_zeros(x.shape, requested))


@operator("Reshape", since=5, until=13)
def reshape_5(xp: Any, x: Any, shape: Any) -> Any:
    return x.reshape(_without_zeros(x.shape, shape.tolist()))


@operator("Reshape", since=1, until=4)
def reshape_1(
    xp: Any,
    x: Any,
    *,
    shape: Sequence[int] = (),
    consumed_inputs: Sequence[int] = (),
) -> Any:
    return x.reshape(_without_zeros(x.shape, list(shape)))


@operator("Flatten", since=1)
def flatten(xp: Any, x: Any, *, axis: int = 1) -> Any:
    if not -x.ndim <= axis <= x.ndim:
        raise ValueError(
            f"Flatten at axis {axis} of an input of rank {x.ndim}; "
            f"expected an axis from {-x.ndim} to {x.ndim}"
        )
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Squeeze", since=13)
def squeeze(xp: Any, x: Any, axes: Any = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes.tolist()))


@operator("Squeeze", since=1, until=12)
def squeeze_1(xp: Any, x: Any, *, axes: Sequence[int] | None = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


@operator("Unsqueeze", since=13)
def unsqueeze(xp: Any, x: Any, axes: Any) -> Any:
    # exporters also give a single axis as a scalar
    return xp.expand_dims(x, tuple(axes.reshape(-1).tolist()))


@operator("Unsqueeze", since=1, until=12)
def unsqueeze_1(xp: Any, x: Any, *, axes: Sequence[int]) -> Any:
    return xp.expand_dims(x, tuple(axes))


@operator("Expand", since=8)
def expand(xp: Any, x: Any, shape: Any) -> Any:
    return xp.broadcast_to(x, _broadcast_shape(x.shape, shape.tolist()))


@operator("Tile", since=6)
def tile(xp: Any, x: Any, repeats: Any) -> Any:
    return xp.tile(x, tuple(repeats.tolist()))


@operator("Tile", since=1, until=5)
def tile_1(xp: Any, x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return xp.tile(x, tuple(repeats))


def _without_zeros(shape: Sequence[int], requested: list[int]) -> list[int]:
    """*requested* with the size that *shape* has in place of each 0."""
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
        result[result.index(-1)] = math.prod(rest) // math.prod(given)
    return result


def _broadcast_shape(shape: Sequence[int], requested: list[int]) -> tuple[int, ...]:
    """The common shape, for which *requested* may also be the smaller one."""
    rank = max(len(shape), len(requested))
    pairs = zip(
        (1,) * (rank - len(shape)) + tuple(shape),
        [1] * (rank - len(requested)) + requested,
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
