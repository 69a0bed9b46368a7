"""Sorting.  Of equal elements the first comes first; MIL leaves open which."""

from __future__ import annotations

from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


@operation("argsort")
def argsort(x: Array, axis: Any = -1, ascending: Any = False) -> Array:
    keys = x if ascending else -x
    return np.argsort(keys, int(axis), kind="stable").astype(np.int32)


@operation("topk")
def topk(
    x: Array,
    k: Any = 1,
    axis: Any = -1,
    ascending: Any = False,
    sort: Any = True,
    return_indices: Any = True,
    output_indices_dtype: str = "int32",
) -> Array | tuple[Array, Array]:
    axis = int(axis) % x.ndim
    count = x.shape[axis] if int(k) == -1 else int(k)
    if count > x.shape[axis]:
        raise ValueError(f"{count} of {x.shape[axis]} elements")
    indices = argsort(x, axis, ascending)
    indices = indices[(slice(None),) * axis + (slice(count),)]
    if not sort:
        indices = np.sort(indices, axis)
    values = np.take_along_axis(x, indices, axis)
    return (values, indices.astype(output_indices_dtype)) if return_indices else values
