"""Operators that read and write the elements at given positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import MOST_ELEMENTS, normal_axis, sizes
from onnxplug_kernels.arrays import extremes, in_computing_dtype
from onnxplug_kernels.namespaces.standard import UFUNCS
from onnxplug_kernels.registry import operator


@operator("Gather", since=1)
def gather(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    if not -x.ndim <= axis < x.ndim:
        normal_axis(axis, x.ndim)
    try:
        return xp.take_checked(x, indices, axis=axis)
    except IndexError:
        require_in_range(xp, indices, x.shape[axis], f"axis {axis}")
        raise


@operator("GatherElements", since=11)
def gather_elements(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    return xp.gather(x, _element_index(xp, x.shape, indices, axis))


@operator("GatherND", since=12)
def gather_nd(xp: Any, x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    index = _tuple_index(xp, x.shape, indices, batch_dims)
    try:
        found = xp.gather_checked(x, index)
    except IndexError:
        _require_tuples_in_range(xp, x.shape, indices, batch_dims)
        raise
    return xp.asarray(found, dtype=x.dtype)


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
    _require_tuples_in_range(xp, x.shape, indices, 0)
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
    # with the sequence right after the batch
    present = xp.copy(xp.swapaxes(past_cache, axis, 1))
    news = xp.swapaxes(update, axis, 1)
    if write_indices is None:
        present[:, :length, ...] = news
        return xp.swapaxes(present, axis, 1)
    first, last = extremes(xp, write_indices)
    last += length - 1
    if first < 0 or (mode == "linear" and last >= capacity):
        raise IndexError(
            f"TensorScatter writes positions {first} to {last} of axis {axis}; "
            f"expected 0 to {capacity - 1}"
        )
    # a sum with an index that is not reduced first could be too large for int64
    starts = write_indices % max(capacity, 1)
    positions = (starts[:, None] + xp.arange(length)) % max(capacity, 1)
    batches = xp.arange(positions.shape[0])[:, None]
    present = xp.scatter(present, (batches, positions), news, "none")
    return xp.swapaxes(present, axis, 1)


@operator("Compress", since=9, data_dependent=True)
def compress(xp: Any, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    if condition.ndim != 1:
        raise ValueError(
            f"Compress has a condition of shape {condition.shape}; expected rank 1"
        )
    size = xp.size(x) if axis is None else x.shape[normal_axis(axis, x.ndim)]
    if condition.shape[0] > size:
        raise IndexError(
            f"Compress has a condition of {condition.shape[0]} elements for {size}"
        )
    (kept,) = xp.nonzero(condition)
    return xp.take(xp.reshape(x, (-1,)) if axis is None else x, kept, axis=axis or 0)


@operator("NonZero", since=9, data_dependent=True)
def non_zero(xp: Any, x: Any) -> Any:
    if not x.ndim:
        return xp.empty((0, int(bool(xp.item(x)))), dtype=xp.int64)
    return xp.stack(xp.nonzero(x))


@operator("OneHot", since=11)
def one_hot(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    classes = _classes(xp, depth)
    indices = as_int64(xp, indices)
    return _one_hot(
        xp, xp.where(indices < 0, indices + classes, indices), classes, values, axis
    )


@operator("OneHot", since=9, until=10)
def one_hot_9(xp: Any, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    return _one_hot(xp, as_int64(xp, indices), _classes(xp, depth), values, axis)


def _classes(xp: Any, depth: Any) -> int:
    """What the input *depth*, one number of any type, counts."""
    if xp.size(depth) != 1 or not 1 <= xp.item(depth) < 2**63:
        raise ValueError(
            f"OneHot has a depth of {xp.tolist(depth)}; expected one number from 1 on"
        )
    return int(xp.item(depth))


def as_int64(xp: Any, indices: Any) -> Any:
    """*indices*, of any type, as int64; what is no index of any axis as its limits.

    A conversion of NaN or of what int64 lacks gives any number, also a valid index.
    """
    if xp.kind(indices.dtype) in "iub":
        if indices.dtype == xp.uint64:
            indices = xp.minimum(indices, MOST_ELEMENTS)
        return xp.astype(indices, xp.int64)
    wide = xp.astype(indices, xp.float64)
    wide = xp.where(xp.isnan(wide), 2.0**62, wide)
    return xp.astype(xp.clip(wide, -(2.0**62), 2.0**62), xp.int64)


def _one_hot(xp: Any, indices: Any, classes: int, values: Any, axis: int) -> Any:
    if values.shape != (2,):
        raise ValueError(
            f"OneHot has values of shape {values.shape}; expected two, for off and on"
        )
    axis = normal_axis(axis, indices.ndim + 1)
    whole = (*indices.shape[:axis], classes, *indices.shape[axis:])
    sizes(whole, itemsize=max(xp.itemsize(values), 8), what="the shape of OneHot")
    shape = [1] * (indices.ndim + 1)
    shape[axis] = classes
    hot = xp.expand_dims(indices, axis) == xp.reshape(xp.arange(classes), shape)
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
    require_in_range(xp, indices, shape[axis], f"axis {axis}")
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
        index.append(xp.reshape(xp.arange(count), positions))
    return tuple(index)


def _tuple_index(
    xp: Any, shape: Sequence[int], indices: Any, batch_dims: int
) -> tuple[Any, ...]:
    """Index by the tuples along the last axis of *indices*, batch by batch; whether
    they are in range is not looked at."""
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
        index.append(xp.reshape(xp.arange(shape[dimension]), positions))
    index += [indices[..., position] for position in range(length)]
    return tuple(index)


def _require_tuples_in_range(
    xp: Any, shape: Sequence[int], indices: Any, batch_dims: int
) -> None:
    for position in range(indices.shape[-1]):
        axis = batch_dims + position
        require_in_range(xp, indices[..., position], shape[axis], f"axis {axis}")


def require_in_range(
    xp: Any, indices: Any, size: int, what: str, *, least: int | None = None
) -> None:
    """Check *indices* into *what*, which has *size* elements.

    They may count from the back unless *least* is 0.

    Raises:
        IndexError: one is out of range.
    """
    if not xp.size(indices):
        return
    least = -size if least is None else least
    for index in (int(xp.min(indices)), int(xp.max(indices))):
        if not least <= index < size:
            raise IndexError(
                f"index {index} is out of range for {what} of size {size}; "
                f"expected {least} to {size - 1}"
            )


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
        return xp.scatter(x, index, updates, reduction)
    if reduction not in UFUNCS:
        raise ValueError(
            f"scatter with reduction {reduction!r}; expected none, {', '.join(UFUNCS)}"
        )
    return in_computing_dtype(
        _accumulate, xp, x, updates, index=index, reduction=reduction
    )


def _accumulate(
    xp: Any, x: Any, updates: Any, *, index: tuple[Any, ...], reduction: str
) -> Any:
    return xp.scatter(x, index, updates, reduction)
