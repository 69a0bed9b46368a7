"""Arithmetic, rounding, and the powers and logarithms next to it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from onnxplug_kernels.arrays import computing_dtype, in_computing_dtype
from onnxplug_kernels.elementwise import (
    as_array,
    declare,
    native,
    native_of_two,
    widened,
    with_consumed_inputs,
    with_limited_broadcasting,
)
from onnxplug_kernels.erf import erf
from onnxplug_kernels.registry import operator

for _op_type, _function in (
    ("Abs", "absolute"),
    ("Ceil", "ceil"),
    ("Floor", "floor"),
    ("Neg", "negative"),
    ("Reciprocal", "reciprocal"),
    ("Sqrt", "sqrt"),
):
    declare(_op_type, native(_function), since=1, legacy=with_consumed_inputs)

for _op_type, _function in (("Exp", "exp"), ("Log", "log")):
    declare(_op_type, widened(_function), since=1, legacy=with_consumed_inputs)

declare("Round", native("rint"), since=11)
declare("Sign", native("sign"), since=9)

for _op_type, _function in (
    ("Add", "add"),
    ("Mul", "multiply"),
    ("Sub", "subtract"),
):
    declare(
        _op_type,
        native_of_two(_function),
        since=1,
        legacy=with_limited_broadcasting,
    )


def div(xp: Any, a: Any, b: Any) -> Any:
    """A quotient of integers is truncated toward zero, unlike Python's."""
    kind = a.dtype.kind
    if kind == "i":
        return as_array(xp, xp.floor_divide(a - xp.fmod(a, b), b))
    if kind == "u":
        return as_array(xp, xp.floor_divide(a, b))
    return as_array(xp, xp.divide(a, b))


declare("Div", div, since=1, legacy=with_limited_broadcasting)


@operator("Mod", since=10)
def mod(xp: Any, a: Any, b: Any, *, fmod: int = 0) -> Any:
    """The result has the sign of *b*, with *fmod* that of *a*."""
    return as_array(xp, xp.fmod(a, b) if fmod else xp.remainder(a, b))


def power(xp: Any, x: Any, y: Any) -> Any:
    """The base alone determines the dtype of the result."""
    # models spell squares as powers; only on the host is looking at a value free
    if y.size == 1 and isinstance(y, np.ndarray) and y.ndim <= x.ndim and y.item() == 2:
        return as_array(xp, xp.square(x))
    if x.dtype == y.dtype and x.dtype.kind == "f":
        return as_array(xp, xp.power(x, y).astype(x.dtype))
    if x.dtype.kind == "i" and y.dtype.kind in "iu":
        return as_array(xp, _integer_power(xp, x, y))
    base = x.astype(computing_dtype(x.dtype))
    exponent = y.astype(computing_dtype(y.dtype))
    return as_array(xp, xp.power(base, exponent).astype(x.dtype))


declare("Pow", power, since=1, legacy=with_limited_broadcasting)


def _integer_power(xp: Any, x: Any, y: Any) -> Any:
    exponent = y.astype(np.int64)
    result = xp.power(x.astype(np.int64), xp.abs(exponent)).astype(x.dtype)
    if y.dtype.kind == "u":
        return result
    # truncated toward zero, the reciprocals of all integers but 1 and -1 are 0
    reciprocal = xp.where(xp.abs(x) == 1, result, xp.zeros((), x.dtype))
    return xp.where(exponent < 0, reciprocal, result)


@operator("Erf", since=9)
def erf_kernel(xp: Any, x: Any) -> Any:
    # integers were allowed up to opset 12
    wide = np.dtype(np.float64) if x.dtype.kind in "iu" else computing_dtype(x.dtype)
    return as_array(xp, erf(xp, x.astype(wide, copy=False)).astype(x.dtype, copy=False))


@operator("Clip", since=11)
def clip(xp: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """A limit that is left out is the dtype's, so infinities become finite."""
    if low is None:
        low = xp.asarray(_limits(x.dtype)[0])
    if high is None:
        high = xp.asarray(_limits(x.dtype)[1])
    if low.size != 1 or high.size != 1:
        raise ValueError(
            f"Clip has limits of shapes {low.shape} and {high.shape}; expected scalars"
        )
    if x.dtype.kind == "V" or x.size < _MANY:
        return as_array(xp, xp.minimum(xp.maximum(x, low), high))
    return xp.clip(x, low, high)


@operator("Clip", since=6, until=10)
def clip_6(
    xp: Any,
    x: Any,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Any:
    low, high = (np.asarray(limit).astype(x.dtype) for limit in (min, max))
    return clip(xp, x, xp.asarray(low), xp.asarray(high))


@operator("Clip", since=1, until=5)
def clip_1(
    xp: Any,
    x: Any,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: Any = None,
) -> Any:
    low, high = (
        None if limit is None else xp.asarray(np.asarray(limit).astype(x.dtype))
        for limit in (min, max)
    )
    return clip(xp, x, low, high)


# xp.clip passes over the elements once instead of twice, but starts slowly in numpy
_MANY = 1 << 14


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    import ml_dtypes  # 6 ms that most models need not pay

    info: Any = (ml_dtypes.iinfo if dtype.kind in "iu" else ml_dtypes.finfo)(dtype)
    return np.asarray(info.min, dtype=dtype), np.asarray(info.max, dtype=dtype)


def _add_all(xp: Any, *arrays: Any) -> Any:
    return functools.reduce(xp.add, arrays)


def _average(xp: Any, *arrays: Any) -> Any:
    return _add_all(xp, *arrays) / len(arrays)


def maximum(xp: Any, *arrays: Any) -> Any:
    return as_array(xp, functools.reduce(xp.maximum, arrays))


def minimum(xp: Any, *arrays: Any) -> Any:
    return as_array(xp, functools.reduce(xp.minimum, arrays))


def total(xp: Any, *arrays: Any) -> Any:
    return as_array(xp, in_computing_dtype(_add_all, xp, *arrays))


def mean(xp: Any, *arrays: Any) -> Any:
    return as_array(xp, in_computing_dtype(_average, xp, *arrays))


for _op_type, _kernel in (
    ("Max", maximum),
    ("Min", minimum),
    ("Sum", total),
    ("Mean", mean),
):
    declare(_op_type, _kernel, since=1, legacy=with_consumed_inputs)
