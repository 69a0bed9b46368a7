"""Arithmetic of shaders, which operators' pages do not describe.

It follows the functional specification of Direct3D 11.3, which Direct3D 12's shaders
keep: of ``max`` and ``min`` the operand that is no NaN wins; a conversion from float to
integer goes towards zero, NaN becomes 0, and what is too large the largest; an unsigned
division by zero gives all bits set; a shift looks at as many bits of its distance as
it needs.  What the specification leaves open as well is said where it is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from . import Desc

Array = np.ndarray[Any, np.dtype[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


def quiet(function: Function) -> Function:
    """What overflows or is not a number is no news to a GPU."""
    return np.errstate(all="ignore")(function)


@quiet
def converted(values: Array, data_type: np.dtype[Any]) -> Array:
    """Values as a tensor of a data type gets them.

    Floats are rounded to the nearest, ties to even.  Floats become integers of 32 bits,
    or of 64 where the data type has these, as a shader's ``ftoi`` makes them.  Of
    integers that are too wide the low bits stay.
    """
    if data_type.kind == "f" or values.dtype.kind != "f":
        return values.astype(data_type)
    wide = np.dtype(f"{data_type.kind}{max(data_type.itemsize, 4)}")
    limits = np.iinfo(wide)
    whole = np.trunc(np.where(np.isnan(values), 0, values.astype(np.float64)))
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    kept = np.where(above | below, 0, whole).astype(wide)
    kept[above], kept[below] = limits.max, limits.min
    return kept.astype(data_type)


def real(values: Array) -> Array:
    """Floats in float64, in which the operators compute; integers as they are."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


@quiet
def scaled(desc: Desc, values: Array) -> Array:
    """Values after ``ScaleBias``, ``g(x) = x * Scale + Bias``; floats in float64.

    How integers are scaled by floats is not documented; here the result is converted.
    """
    if desc.ScaleBias is None:
        return real(values)
    result = values.astype(np.float64) * desc.ScaleBias.Scale + desc.ScaleBias.Bias
    return result if values.dtype.kind == "f" else converted(result, values.dtype)


def largest(a: Array, b: Array | float) -> Array:
    """``max`` of a shader."""
    return np.asarray(np.fmax(a, b))


def smallest(a: Array, b: Array | float) -> Array:
    """``min`` of a shader."""
    return np.asarray(np.fmin(a, b))


def erf(values: Array) -> Array:
    """The error function, of float64."""
    flat = [math.erf(value) for value in values.ravel().tolist()]
    return np.array(flat, np.float64).reshape(values.shape)


@quiet
def quotient(a: Array, b: Array) -> Array:
    """``a / b``, truncated for integers.

    By zero it has all bits set also where the integers are signed, and the lowest by
    -1 wraps; both are undefined in HLSL.
    """
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    floor = a // divisor
    inexact = (floor * divisor != a) & ((a < 0) != (divisor < 0))
    ones = np.invert(np.zeros((), a.dtype))
    return np.where(b == 0, ones, floor + inexact.astype(a.dtype)).astype(a.dtype)


@quiet
def remainder(a: Array, b: Array, *, floor: bool) -> Array:
    """``a - b * q`` where ``q`` is ``a / b`` rounded to minus infinity or to zero.

    Computed exactly, not by the formula of the page.  An integer by zero gives all bits
    set, as a shader's ``umod``.
    """
    modulus = np.mod if floor else np.fmod
    if a.dtype.kind == "f":
        return np.asarray(modulus(a, b))
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    ones = np.invert(np.zeros((), a.dtype))
    return np.where(b == 0, ones, modulus(a, divisor)).astype(a.dtype)


def shifted(a: Array, b: Array, *, left: bool) -> Array:
    """A logical shift in 32 bits, or in 64; of the result the low bits stay."""
    wide = np.dtype(f"u{max(a.dtype.itemsize, 4)}")
    distance = b.astype(wide) & wide.type(wide.itemsize * 8 - 1)
    shift = np.left_shift if left else np.right_shift
    result: Array = shift(a.astype(wide), distance)
    return result.astype(a.dtype)


@quiet
def power(a: Array, b: Array) -> Array:
    """``pow``: NaN of a negative base with a fractional exponent; exact of integers.

    Integers wrap; what a negative exponent gives is truncated, of zero all bits set.
    """
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        exponent = b.astype(np.float64)
        return converted(np.asarray(np.power(a.astype(np.float64), exponent)), a.dtype)
    wide = np.dtype("i8") if a.dtype.kind == "i" else np.dtype("u8")
    base, exponent = a.astype(wide), b.astype(np.int64)
    result = np.power(base, np.where(exponent < 0, 0, exponent).astype(wide))
    inverse = quotient(np.ones_like(base), base)
    even = (base != 0) & (exponent % 2 == 0)
    inverse = np.where(even, inverse * inverse, inverse)
    return np.where(exponent < 0, inverse, result).astype(a.dtype)
