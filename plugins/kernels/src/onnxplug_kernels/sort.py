"""The largest or smallest elements of an array, and its distinct ones."""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.registry import PORTABLE, operator


@operator("TopK", since=11)
def top_k(
    xp: Any, x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Any, Any]:
    # without *sorted* any order will do, so the sorted one does as well
    return _top_k(xp, x, int(xp.item(k)), axis, largest)


@operator("TopK", since=10, until=10)
def top_k_10(xp: Any, x: Any, k: Any, *, axis: int = -1) -> tuple[Any, Any]:
    return _top_k(xp, x, int(xp.item(k)), axis, 1)


@operator("TopK", since=1, until=9)
def top_k_1(xp: Any, x: Any, *, k: int, axis: int = -1) -> tuple[Any, Any]:
    return _top_k(xp, x, k, axis, 1)


@operator("Unique", since=11, data_dependent=True, portable=PORTABLE)
def unique(
    xp: Any,
    x: Any,
    *,
    axis: int | None = None,
    sorted: int = 1,
    output_count: int = 4,
) -> tuple[Any, ...]:
    axis = None if axis is None else normal_axis(axis, x.ndim)
    if axis is None and sorted and output_count == 1:
        return (xp.distinct(x),)
    keys = x
    if axis is not None and xp.kind(x.dtype) not in "biufc":
        # only of the usual dtypes are subarrays told apart; ranks order the same way
        keys = xp.reshape(xp.unique(x, None)[1], x.shape)
    indices, inverse, counts = xp.unique(keys, axis)
    inverse = xp.reshape(inverse, (-1,))
    if not sorted:
        order = xp.argsort(indices)
        indices, counts = indices[order], counts[order]
        inverse = xp.argsort(order)[inverse]
    values = xp.take(
        xp.reshape(x, (-1,)) if axis is None else x, indices, axis=axis or 0
    )
    return values, indices, inverse, counts


def _top_k(xp: Any, x: Any, k: int, axis: int, largest: int) -> tuple[Any, Any]:
    axis = normal_axis(axis, x.ndim)
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(
            f"TopK of {k} elements along axis {axis} of size {size}; "
            f"expected 0 to {size}"
        )
    last = xp.swapaxes(x, axis, -1)
    keys = xp.astype(last, xp.computing_dtype(x.dtype), copy=False)
    indices = xp.top_indices(keys, k, largest=bool(largest))
    values = xp.take_along_axis(last, indices, axis=-1)
    return xp.swapaxes(values, axis, -1), xp.swapaxes(indices, axis, -1)
