"""The largest or smallest elements of an array, and its distinct ones."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.ep.bounds import normal_axis
from onnxplug_kernels.arrays import computing_dtype
from onnxplug_kernels.registry import operator

# Selecting before sorting pays when few of many elements are asked for.
_FEW: Final = 8
_MANY: Final = 256


@operator("TopK", since=11)
def top_k(
    xp: Any, x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Any, Any]:
    # without *sorted* any order will do, so the sorted one does as well
    return _top_k(xp, x, int(k.item()), axis, largest)


@operator("TopK", since=10, until=10)
def top_k_10(xp: Any, x: Any, k: Any, *, axis: int = -1) -> tuple[Any, Any]:
    return _top_k(xp, x, int(k.item()), axis, 1)


@operator("TopK", since=1, until=9)
def top_k_1(xp: Any, x: Any, *, k: int, axis: int = -1) -> tuple[Any, Any]:
    return _top_k(xp, x, k, axis, 1)


@operator("Unique", since=11)
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
        return (xp.unique(x),)
    keys = x
    if axis is not None and x.dtype.kind not in "biufc":
        # numpy tells apart subarrays of its own dtypes only; ranks order the same way
        keys = xp.unique(x, return_inverse=True)[1].reshape(x.shape)
    _, indices, inverse, counts = xp.unique(
        keys, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = xp.argsort(indices)
        indices, counts = indices[order], counts[order]
        inverse = xp.argsort(order)[inverse]
    values = xp.take(x.reshape(-1) if axis is None else x, indices, axis=axis or 0)
    return values, indices, inverse, counts


def _top_k(xp: Any, x: Any, k: int, axis: int, largest: int) -> tuple[Any, Any]:
    axis = normal_axis(axis, x.ndim)
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(
            f"TopK of {k} elements along axis {axis} of size {size}; "
            f"expected 0 to {size}"
        )
    last = x.swapaxes(axis, -1)
    keys = last.astype(computing_dtype(x.dtype), copy=False)
    indices = None
    if size >= _MANY and k * _FEW <= size:
        indices = _selected(xp, keys, k, largest)
    if indices is None:
        indices = _sorted(xp, keys, largest)[..., :k]
    values = xp.take_along_axis(last, indices, axis=-1)
    return values.swapaxes(axis, -1), indices.swapaxes(axis, -1)


def _sorted(xp: Any, keys: Any, largest: int) -> Any:
    """Indices along the last axis in order; of equal keys the lower index first.

    NaN counts as larger than every number.
    """
    if not largest:
        return xp.argsort(keys, axis=-1, kind="stable")
    # Backward on backward: equal keys keep their order, and no key needs a negative.
    backward = xp.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return keys.shape[-1] - 1 - backward


def _selected(xp: Any, keys: Any, k: int, largest: int) -> Any:
    """Indices as of `_sorted`, but *k* alone; ``None`` where it cannot tell.

    A partition takes any of several keys that equal the last one it selects, and
    no comparison finds those when it is NaN.
    """
    if not k:
        return None
    size = keys.shape[-1]
    if largest:
        indices = xp.argpartition(keys, size - k, axis=-1)[..., size - k :]
    else:
        indices = xp.argpartition(keys, k - 1, axis=-1)[..., :k]
    indices = xp.sort(indices, axis=-1)
    chosen = xp.take_along_axis(keys, indices, axis=-1)
    reduce = xp.min if largest else xp.max
    threshold = reduce(chosen, axis=-1, keepdims=True)
    beyond = keys >= threshold if largest else keys <= threshold
    if int(xp.count_nonzero(beyond)) != indices.size:
        return None
    return xp.take_along_axis(indices, _sorted(xp, chosen, largest), axis=-1)
