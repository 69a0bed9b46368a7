"""Arrays from nothing but attributes, a shape, or bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import sizes
from onnxplug.ep import DataType
from onnxplug_kernels.arrays import element_dtype, numbers, require_rank
from onnxplug_kernels.gather import require_in_range
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.registry import operator

_EXACT: Final = 1 << 53
"""Up to here float64 has every integer, and rounds no quotient of two to another."""


@operator("Constant", since=1)
def constant(
    xp: Any,
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Any:
    if value is not None:
        # strings stay on the host
        return value if value.dtype.kind in "OUT" else xp.from_numpy(value)
    if sparse_value is not None:
        return _dense(xp, sparse_value)
    for number, dtype in (
        (value_float, xp.float32),
        (value_floats, xp.float32),
        (value_int, xp.int64),
        (value_ints, xp.int64),
    ):
        if number is not None:
            return xp.asarray(number, dtype=dtype)
    text = value_string if value_string is not None else value_strings
    if text is None:
        raise ValueError("Constant has none of the attributes that give its value")
    return np.asarray(text, dtype=object)


def _dense(xp: Any, sparse: Any) -> Any:
    """The array with *sparse*'s values at its indices and zeros elsewhere.

    Indices count elements in row-major order, or have one column for each axis.
    """
    values, indices = np.asarray(sparse.values), np.asarray(sparse.indices)
    shape = sizes(sparse.shape, itemsize=values.itemsize)
    if indices.shape not in ((len(values),), (len(values), len(shape))):
        raise ValueError(
            f"a sparse tensor of shape {shape} with {len(values)} values has indices "
            f"of shape {indices.shape}"
        )
    is_text = values.dtype.kind in "OUT"
    dense = (
        np.full(shape, "", dtype=object) if is_text else np.zeros(shape, values.dtype)
    )
    if indices.ndim == 1:
        require_in_range(
            namespace_of(np), indices, dense.size, "a sparse tensor", least=0
        )
        dense.reshape(-1)[indices] = values
    else:
        for axis, column in enumerate(indices.T):
            require_in_range(
                namespace_of(np), column, shape[axis], f"axis {axis}", least=0
            )
        dense[tuple(indices.T)] = values
    return dense if is_text else xp.from_numpy(dense)


@operator("ConstantOfShape", since=9)
def constant_of_shape(xp: Any, shape: Any, *, value: Any = None) -> Any:
    itemsize = 4 if value is None else value.itemsize
    wanted = sizes(numbers(xp, shape, "the shape"), itemsize=itemsize)
    if value is None:
        return xp.zeros(wanted, dtype=xp.float32)
    dtype = xp.dtype(DataType.from_numpy(value.dtype))
    return xp.full(wanted, value.item(), dtype=dtype)


@operator("EyeLike", since=9)
def eye_like(xp: Any, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    require_rank(x, "the input", 2, 2)
    rows, columns = x.shape
    result_dtype = x.dtype if dtype is None else element_dtype(xp, dtype)
    # beyond the corners nothing changes, and the array library need not count so far
    diagonal = max(-rows, min(k, columns))
    return xp.astype(xp.eye(rows, columns, k=diagonal, dtype=xp.bool), result_dtype)


@operator("Range", since=11)
def arange(xp: Any, start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Any:
    """Elements are start + i · delta, multiplied rather than added up.

    Args:
        stash_type: the element type to compute in for float16 and bfloat16.
    """
    dtype = start.dtype
    first, last, step = xp.item(start), xp.item(limit), xp.item(delta)
    if step == 0:
        raise ValueError("the delta of Range is 0")
    if xp.kind(dtype) == "i":
        if abs(last - first) < _EXACT:
            return xp.arange(first, last, step, dtype=dtype)
        count = max(-((first - last) // step), 0)
        sizes([count], itemsize=xp.itemsize_of(dtype), what="Range's shape")
        # in float64 the array library would count wrongly
        steps = xp.arange(count, dtype=xp.int64)
        return xp.astype(first + steps * step, dtype)
    wide = element_dtype(xp, stash_type) if xp.itemsize_of(dtype) == 2 else xp.float64
    span = (last - first) / step
    if not math.isfinite(span):
        raise ValueError(
            f"Range from {first} to {last} by {step} has no number of elements"
        )
    count = max(math.ceil(span), 0)
    sizes([count], itemsize=8, what="Range's shape")
    indices = xp.arange(count, dtype=wide)
    return xp.astype(first + indices * step, dtype)
