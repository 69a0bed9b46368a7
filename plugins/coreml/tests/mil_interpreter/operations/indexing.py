"""Gathering and scattering.

From iOS 17 on, indices below zero are not in range, and what happens at indices that
are not in range is undefined: here it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]

_IOS17: Final = 7


def _in_range(indices: Array, size: Any, opset: int) -> Array:
    """*indices*, none below zero.

    Raises:
        IndexError: some are not in range.
    """
    least = 0 if opset >= _IOS17 else -np.asarray(size)
    if np.any(indices < least) or np.any(indices >= size):
        raise IndexError(f"indices {indices} of {size} elements in opset {opset}")
    return np.where(indices < 0, indices + size, indices).astype(int)


@operation("gather")
def gather(
    x: Array,
    indices: Array,
    axis: Any = 0,
    batch_dims: Any = 0,
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    axis, count = int(axis) % x.ndim, int(batch_dims)
    indices = _in_range(indices, x.shape[axis], opset)
    if count == 0:
        return np.asarray(x.take(indices, axis))
    batch = x.shape[:count]
    parts = [x[at].take(indices[at], axis - count) for at in np.ndindex(*batch)]
    return np.reshape(parts, (*batch, *parts[0].shape))


@operation("gather_along_axis")
def gather_along_axis(
    x: Array,
    indices: Array,
    axis: Any = 0,
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    indices = _in_range(indices, x.shape[int(axis)], opset)
    return np.take_along_axis(x, indices, int(axis))


@operation("gather_nd")
def gather_nd(
    x: Array,
    indices: Array,
    batch_dims: Any = 0,
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    count, depth = int(batch_dims), indices.shape[-1]
    indices = _in_range(indices, np.array(x.shape[count : count + depth]), opset)
    if count == 0:
        return np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])
    batch = x.shape[:count]
    parts = [x[at][tuple(np.moveaxis(indices[at], -1, 0))] for at in np.ndindex(*batch)]
    return np.reshape(parts, (*batch, *np.shape(parts[0])))


_MODES: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "div": np.divide.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _combine(data: Array, places: Any, updates: Array, mode: str) -> Array:
    result = data.copy()
    if mode == "update":
        result[places] = updates
    else:
        _MODES[mode](result, places, updates)
    return result


@operation("scatter")
def scatter(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Any = 0,
    mode: str = "add",
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    axis = int(axis) % data.ndim
    indices = _in_range(indices, data.shape[axis], opset)
    return _combine(data, (slice(None),) * axis + (indices,), updates, mode)


@operation("scatter_along_axis")
def scatter_along_axis(
    data: Array,
    indices: Array,
    updates: Array,
    axis: Any = 0,
    mode: str = "add",
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    axis = int(axis) % data.ndim
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = _in_range(indices, data.shape[axis], opset)
    return _combine(data, tuple(places), updates, mode)


@operation("scatter_nd")
def scatter_nd(
    data: Array,
    indices: Array,
    updates: Array,
    mode: str = "add",
    validate_indices: Any = False,
    *,
    opset: int,
) -> Array:
    del validate_indices
    indices = _in_range(indices, np.array(data.shape[: indices.shape[-1]]), opset)
    return _combine(data, tuple(np.moveaxis(indices, -1, 0)), updates, mode)
