"""Arrays from nothing but attributes, a shape, or bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.arrays import numpy_dtype
from onnxplug_kernels.registry import operator


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
        return value if value.dtype.kind in "OUT" else xp.asarray(value)
    if sparse_value is not None:
        return _dense(xp, sparse_value)
    for number, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
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
    shape = tuple(sparse.shape)
    is_text = values.dtype.kind in "OUT"
    dense = (
        np.full(shape, "", dtype=object) if is_text else np.zeros(shape, values.dtype)
    )
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense if is_text else xp.asarray(dense)


@operator("ConstantOfShape", since=9)
def constant_of_shape(xp: Any, shape: Any, *, value: Any = None) -> Any:
    sizes = tuple(shape.tolist())
    if value is None:
        return xp.zeros(sizes, dtype=np.float32)
    return xp.full(sizes, value.reshape(())[()], dtype=value.dtype)


@operator("EyeLike", since=9)
def eye_like(xp: Any, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    result_dtype = x.dtype if dtype is None else numpy_dtype(dtype)
    return xp.eye(rows, columns, k, dtype=np.bool_).astype(result_dtype)


@operator("Range", since=11)
def arange(xp: Any, start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Any:
    """Elements are start + i · delta, multiplied rather than added up.

    Args:
        stash_type: the element type to compute in for float16 and bfloat16.
    """
    dtype = start.dtype
    first, last, step = start.item(), limit.item(), delta.item()
    if step == 0:
        raise ValueError("the delta of Range is 0")
    if dtype.kind == "i":
        return xp.arange(first, last, step, dtype=dtype)
    wide = numpy_dtype(stash_type) if dtype.itemsize == 2 else np.dtype(np.float64)
    count = max(math.ceil((last - first) / step), 0)
    indices = xp.arange(count, dtype=wide)
    return (wide.type(first) + indices * wide.type(step)).astype(dtype)
