"""Operators that read and write the elements at given positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.ep.bounds import MOST_ELEMENTS, normal_axis, sizes
from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.registry import operator


@operator("Gather", since=1)
def gather(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    if not -x.ndim <= axis < x.ndim:
        normal_axis(axis, x.ndim)
    # numpy checks while it reads, where others wrap or clip in silence
    if xp is np:
        try:
            return np.asarray(x.take(indices, axis=axis), dtype=x.dtype)
        except IndexError:
            require_in_range(indices, x.shape[axis], f"axis {axis}")
            raise
    require_in_range(indices, x.shape[axis], f"axis {axis}")
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
    return _scatter(xp, x, index, updates, reduction, indices.shape)


@operator("ScatterElements", since=11, until=15)
@operator("Scatter", since=9)
def scatter(xp: Any, x: Any, indices: Any, updates: Any, *, axis: int = 0) -> Any:
    return scatter_elements(xp, x, indices, updates, axis=axis)


@operator("ScatterND", since=16)
def scatter_nd(
    xp: Any, x: Any, indices: Any, updates: Any, *, reduction: str = "none"
) -> Any:
    index = _tuple_index(xp, x.shape, indices, 0)
    expected = indices.shape[:-1] + x.shape[len(index) :]
    return _scatter(xp, x, index, updates, reduction, expected)


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
    axis = normal_axis(axis, past_cache.ndim)
    capacity = past_cache.shape[axis]
    length = update.shape[axis] if update.ndim == past_cache.ndim else 0
    expected = (*past_cache.shape[:axis], length, *past_cache.shape[axis + 1 :])
    if not axis or update.shape != expected or length > capacity:
        raise ValueError(
            f"TensorScatter of an update {update.shape} into a cache "
            f"{past_cache.shape} along axis {axis}: expected an axis after the "
            f"batch, and sizes that differ along it alone, the update's not larger"
        )
    if write_indices is not None and write_indices.shape != past_cache.shape[:1]:
        raise ValueError(
            f"TensorScatter has write_indices of shape {write_indices.shape}; "
            f"expected {past_cache.shape[:1]}"
        )
    present_cache = past_cache.copy()
    # views with the sequence right after the batch: writing to one is writing to all
    present = present_cache.swapaxes(axis, 1)
    news = update.swapaxes(axis, 1)
    if write_indices is None:
        present[:, :length] = news
        return present_cache
    first = int(write_indices.min(initial=0))
    last = int(write_indices.max(initial=0)) + length - 1
    if first < 0 or (mode == "linear" and last >= capacity):
        raise IndexError(
            f"TensorScatter writes positions {first} to {last} of axis {axis}; "
            f"expected 0 to {capacity - 1}"
        )
    # a sum with an index that is not reduced first could be too large for int64
    starts = write_indices % max(capacity, 1)
    positions = (starts[:, None] + xp.arange(length)) % max(capacity, 1)
    present[xp.arange(len(positions))[:, None], positions] = news
    return present_cache


@operator("Compress", since=9)
def compress(xp: Any, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    if condition.ndim != 1:
        raise ValueError(
            f"Compress has a condition of shape {condition.shape}; expected rank 1"
        )
    size = x.size if axis is None else x.shape[normal_axis(axis, x.ndim)]
    if len(condition) > size:
        raise IndexError(
            f"Compress has a condition of {len(condition)} elements for {size}"
        )
    return xp.compress(condition, x, axis=axis)


@operator("NonZero", since=9)
def non_zero(xp: Any, x: Any) -> Any:
    if not x.ndim:
        return xp.empty((0, int(bool(x))), dtype=xp.int64)
    return xp.stack(xp.nonzero(x))


@operator("OneHot", since=11)
def one_hot(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    classes = _classes(depth)
    indices = as_int64(xp, indices)
    return _one_hot(
        xp, xp.where(indices < 0, indices + classes, indices), classes, values, axis
    )


@operator("OneHot", since=9, until=10)
def one_hot_9(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    return _one_hot(xp, as_int64(xp, indices), _classes(depth), values, axis)


def _classes(depth: Any) -> int:
    """What the input *depth*, one number of any type, counts."""
    if depth.size != 1 or not 1 <= depth.item() < 2**63:
        raise ValueError(
            f"OneHot has a depth of {depth.tolist()}; expected one number from 1 on"
        )
    return int(depth.item())


def as_int64(xp: Any, indices: Any) -> Any:
    """*indices*, of any type, as int64; what is no index of any axis as its limits.

    A conversion of NaN or of what int64 lacks gives any number, also a valid index.
    """
    if indices.dtype.kind in "iub":
        if indices.dtype == np.uint64:
            indices = xp.minimum(indices, np.uint64(MOST_ELEMENTS))
        return indices.astype(xp.int64)
    wide = indices.astype(xp.float64)
    wide = xp.where(xp.isnan(wide), 2.0**62, wide)
    return xp.clip(wide, -(2.0**62), 2.0**62).astype(xp.int64)


def _one_hot(xp: Any, indices: Any, classes: int, values: Any, axis: int) -> Any:
    if values.shape != (2,):
        raise ValueError(
            f"OneHot has values of shape {values.shape}; expected two, for off and on"
        )
    axis = normal_axis(axis, indices.ndim + 1)
    whole = (*indices.shape[:axis], classes, *indices.shape[axis:])
    sizes(whole, itemsize=max(values.itemsize, 8), what="the shape of OneHot")
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
    axis = normal_axis(axis, rank)
    if indices.ndim != rank:
        raise ValueError(
            f"indices of shape {indices.shape} along axis {axis} of data of shape "
            f"{tuple(shape)}; expected the same rank"
        )
    require_in_range(indices, shape[axis], f"axis {axis}")
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
    if not 0 <= batch_dims < min(len(shape), indices.ndim):
        raise ValueError(
            f"batch_dims is {batch_dims}, with data of shape {tuple(shape)} and "
            f"indices of shape {indices.shape}; expected 0 or more, and an axis "
            f"left in both"
        )
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
        require_in_range(indices[..., position], shape[axis], f"axis {axis}")
        index.append(indices[..., position])
    return tuple(index)


def require_in_range(
    indices: Any, size: int, what: str, *, least: int | None = None
) -> None:
    """Check *indices* into *what*, which has *size* elements.

    They may count from the back unless *least* is 0.

    Raises:
        IndexError: one is out of range.
    """
    if not indices.size:
        return
    least = -size if least is None else least
    for index in (int(indices.min()), int(indices.max())):
        if not least <= index < size:
            raise IndexError(
                f"index {index} is out of range for {what} of size {size}; "
                f"expected {least} to {size - 1}"
            )


# ufuncs that combine the old element with the new one, by ONNX's name
_REDUCTIONS: Final = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
}


def _scatter(
    xp: Any,
    x: Any,
    index: tuple[Any, ...],
    updates: Any,
    reduction: str,
    expected: tuple[int, ...],
) -> Any:
    if updates.shape != expected:
        raise ValueError(
            f"updates have shape {updates.shape}, expected {expected} to go with the "
            f"indices"
        )
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
