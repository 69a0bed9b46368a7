"""Arithmetic, rounding, and the powers and logarithms next to it."""

from __future__ import annotations

import functools
from typing import Any

from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.elementwise import (
    as_array,
    declare,
    native,
    native_of_two,
    widened,
    with_consumed_inputs,
    with_limited_broadcasting,
)
from onnxplug_kernels.registry import operator

for _op_type, _function in (
    ("Abs", "abs"),
    ("Ceil", "ceil"),
    ("Floor", "floor"),
    ("Neg", "negative"),
    ("Reciprocal", "reciprocal"),
    ("Sqrt", "sqrt"),
):
    declare(_op_type, native(_function), since=1, legacy=with_consumed_inputs)

for _op_type, _function in (("Exp", "exp"), ("Log", "log")):
    declare(_op_type, widened(_function), since=1, legacy=with_consumed_inputs)

declare("Round", native("round"), since=11)
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
    kind = xp.kind(a.dtype)
    if kind == "i":
        return as_array(xp, xp.quotient(a, b))
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
    # models spell squares as powers
    if y.ndim <= x.ndim and xp.is_known(y, 2):
        return as_array(xp, xp.square(x))
    if x.dtype == y.dtype and xp.kind(x.dtype) == "f":
        return as_array(xp, xp.astype(xp.pow(x, y), x.dtype, copy=False))
    if xp.kind(x.dtype) == "i" and xp.kind(y.dtype) in "iu":
        return as_array(xp, _integer_power(xp, x, y))
    base = xp.astype(x, xp.computing_dtype(x.dtype))
    exponent = xp.astype(y, xp.computing_dtype(y.dtype))
    if (xp.kind(base.dtype) == "f") != (xp.kind(exponent.dtype) == "f"):
        base, exponent = xp.astype(base, xp.float64), xp.astype(exponent, xp.float64)
    return as_array(xp, xp.astype(xp.pow(base, exponent), x.dtype))


declare("Pow", power, since=1, legacy=with_limited_broadcasting)


def _integer_power(xp: Any, x: Any, y: Any) -> Any:
    exponent = xp.astype(y, xp.int64)
    # of a negative one only whether it is odd matters
    size = xp.where(exponent < 0, exponent & 1, exponent)
    result = xp.astype(xp.pow(xp.astype(x, xp.int64), size), x.dtype)
    if xp.kind(y.dtype) == "u":
        return result
    # truncated toward zero, the reciprocals of all integers but 1 and -1 are 0
    reciprocal = xp.where(xp.abs(x) == 1, result, xp.zeros((), dtype=x.dtype))
    return xp.where(exponent < 0, reciprocal, result)


@operator("Erf", since=9)
def erf_kernel(xp: Any, x: Any) -> Any:
    # integers were allowed up to opset 12
    is_integer = xp.kind(x.dtype) in "iu"
    wide = xp.float64 if is_integer else xp.computing_dtype(x.dtype)
    result = xp.erf(xp.astype(x, wide, copy=False))
    return as_array(xp, xp.astype(result, x.dtype, copy=False))


@operator("Clip", since=11)
def clip(xp: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """A limit that is left out is the dtype's, so infinities become finite."""
    if low is None:
        low = xp.extremes(x.dtype)[0]
    if high is None:
        high = xp.extremes(x.dtype)[1]
    if (low.shape or high.shape) and (xp.size(low) != 1 or xp.size(high) != 1):
        raise ValueError(
            f"Clip has limits of shapes {low.shape} and {high.shape}; expected scalars"
        )
    if xp.size(x) < _MANY or xp.kind(x.dtype) == "V":
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
    low, high = (xp.astype(xp.asarray(limit), x.dtype) for limit in (min, max))
    return clip(xp, x, low, high)


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
        None if limit is None else xp.astype(xp.asarray(limit), x.dtype)
        for limit in (min, max)
    )
    return clip(xp, x, low, high)


# xp.clip passes over the elements once instead of twice, but starts slowly in numpy
_MANY = 1 << 14


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
