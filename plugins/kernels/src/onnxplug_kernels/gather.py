"""Operators that read and write the elements at given positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.registry import operator


@operator("Gather", since=1)
def gather(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    # numpy checks while it reads, where others wrap or clip in silence
    if xp is np:
        try:
            return np.asarray(x.take(indices, axis=axis), dtype=x.dtype)
        except IndexError:
            _require_in_range(indices, x.shape[axis], axis)
            raise
    _require_in_range(indices, x.shape[axis], axis)
    return xp.take(x, indices, axis=axis)


@operator("GatherElements", since=11)
def gather_elements(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    return x[_element_index(xp, x.shape, indices, axis)]


@operator("GatherND", since=12)
def gather_nd(xp: Any, x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    index = _tuple_index(xp, x.shape, indices, batch_dims)
    return xp.asarray(x[index], dtype=x.dtype)


@operator("GatherND", since=11, until=11)
def gather_nd_11(xp: Any, x: Any, indices: Any) -> Any:
    return gather_nd(xp, x, indices)


@operator("ScatterElements", since=16)
def scatter_elements(
    xp: Any,
    x: Any,
    indices: Any,
    updates: Any,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Any:
    index = _element_index(xp, x.shape, indices, axis)
    return _scatter(xp, x, index, updates, reduction)


@operator("ScatterElements", since=11, until=15)
@operator("Scatter", since=9)
def scatter(xp: Any, x: Any, indices: Any, updates: Any, *, axis: int = 0) -> Any:
    return scatter_elements(xp, x, indices, updates, axis=axis)


@operator("ScatterND", since=16)
def scatter_nd(
    xp: Any, x: Any, indices: Any, updates: Any, *, reduction: str = "none"
) -> Any:
    index = _tuple_index(xp, x.shape, indices, 0)
    return _scatter(xp, x, index, updates, reduction)


@operator("ScatterND", since=11, until=15)
def scatter_nd_11(xp: Any, x: Any, indices: Any, updates: Any) -> Any:
    return scatter_nd(xp, x, indices, updates)


@operator("TensorScatter", since=24)
def tensor_scatter(
    xp: Any,
    past_cache: Any,
    update: Any,
    write_indices: Any = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Any:
    if mode not in ("linear", "circular"):
        raise ValueError(f"TensorScatter in mode {mode!r}; expected linear or circular")
    capacity, length = past_cache.shape[axis], update.shape[axis]
    present_cache = past_cache.copy()
    # views with the sequence right after the batch: writing to one is writing to all
    present = present_cache.swapaxes(axis, 1)
    news = update.swapaxes(axis, 1)
    if write_indices is None:
        present[:, :length] = news
        return present_cache
    positions = write_indices[:, None] + xp.arange(length)
    if mode == "circular":
        positions %= capacity
    elif positions.size:
        lowest, highest = int(positions.min()), int(positions.max())
        if lowest < 0 or highest >= capacity:
            raise IndexError(
                f"TensorScatter writes positions {lowest} to {highest} of axis {axis}; "
                f"expected 0 to {capacity - 1}"
            )
    present[xp.arange(len(positions))[:, None], positions] = news
    return present_cache


@operator("Compress", since=9)
def compress(xp: Any, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    return xp.compress(condition, x, axis=axis)


@operator("NonZero", since=9)
def non_zero(xp: Any, x: Any) -> Any:
    if not x.ndim:
        return xp.empty((0, int(bool(x))), dtype=xp.int64)
    return xp.stack(xp.nonzero(x))


@operator("OneHot", since=11)
def one_hot(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    classes = int(depth.item())
    indices = indices.astype(xp.int64)
    return _one_hot(
        xp, xp.where(indices < 0, indices + classes, indices), classes, values, axis
    )


@operator("OneHot", since=9, until=10)
def one_hot_9(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    return _one_hot(xp, indices.astype(xp.int64), int(depth.item()), values, axis)


def _one_hot(xp: Any, indices: Any, classes: int, values: Any, axis: int) -> Any:
    shape = [1] * (indices.ndim + 1)
    shape[axis] = classes
    hot = xp.expand_dims(indices, axis) == xp.arange(classes).reshape(shape)
    # slices rather than elements: an element of a string array has no dtype
    return xp.where(hot, values[1:], values[:1])


def _element_index(
    xp: Any, shape: Sequence[int], indices: Any, axis: int
) -> tuple[Any, ...]:
    """Index of as many elements as *indices*, which are the positions along *axis*.

    Along other axes an element has the position of its index.
    """
    rank = len(shape)
    axis = axis + rank if axis < 0 else axis
    if indices.ndim != rank or not 0 <= axis < rank:
        raise ValueError(
            f"indices of shape {indices.shape} along axis {axis} of data of shape "
            f"{tuple(shape)}; expected the same rank and an axis of the data"
        )
    _require_in_range(indices, shape[axis], axis)
    index = []
    for dimension, (size, count) in enumerate(zip(shape, indices.shape, strict=True)):
        if dimension == axis:
            index.append(indices)
            continue
        if count > size:
            raise ValueError(
                f"indices of shape {indices.shape} for data of shape {tuple(shape)}; "
                f"expected no larger sizes except along axis {axis}"
            )
        positions = [1] * rank
        positions[dimension] = count
        index.append(xp.arange(count).reshape(positions))
    return tuple(index)


def _tuple_index(
    xp: Any, shape: Sequence[int], indices: Any, batch_dims: int
) -> tuple[Any, ...]:
    """Index by the tuples along the last axis of *indices*, batch by batch."""
    length = indices.shape[-1]
    if not 1 <= length <= len(shape) - batch_dims:
        raise ValueError(
            f"index tuples of length {length} into data of shape {tuple(shape)} after "
            f"{batch_dims} batch axes; expected 1 to {len(shape) - batch_dims}"
        )
    if indices.shape[:batch_dims] != tuple(shape[:batch_dims]):
        raise ValueError(
            f"indices of shape {indices.shape} for data of shape {tuple(shape)}; "
            f"expected the same {batch_dims} batch axes"
        )
    index = []
    for dimension in range(batch_dims):
        positions = [1] * (indices.ndim - 1)
        positions[dimension] = shape[dimension]
        index.append(xp.arange(shape[dimension]).reshape(positions))
    for position in range(length):
        axis = batch_dims + position
        _require_in_range(indices[..., position], shape[axis], axis)
        index.append(indices[..., position])
    return tuple(index)


def _require_in_range(indices: Any, size: int, axis: int) -> None:
    if not indices.size:
        return
    for index in (int(indices.min()), int(indices.max())):
        if not -size <= index < size:
            raise IndexError(
                f"index {index} is out of range for axis {axis} of size {size}; "
                f"expected {-size} to {size - 1}"
            )


# ufuncs that combine the old element with the new one, by ONNX's name
_REDUCTIONS: Final = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
}


def _scatter(
    xp: Any, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
) -> Any:
    if reduction == "none":
        result = x.copy()
        result[index] = updates
        return result
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"scatter with reduction {reduction!r}; "
            f"expected none, {', '.join(_REDUCTIONS)}"
        )
    return in_computing_dtype(
        _accumulate, xp, x, updates, index=index, ufunc=_REDUCTIONS[reduction]
    )


def _accumulate(
    xp: Any, x: Any, updates: Any, *, index: tuple[Any, ...], ufunc: str
) -> Any:
    result = x.copy()
    getattr(xp, ufunc).at(result, index, updates)
    return result
