"""ONNX's element types as sets of exact numbers, and the rules of Cast between them.

Written from the tables of ONNX's operator Cast, and of ONNX's pages on floats of 4, 6
and 8 bits and on integers of 2 and 4 bits; no library's conversions are used.  Numbers
of all types but integers of 64 bits are exact in float64, in which all is computed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class FloatFormat(NamedTuple):
    """A binary floating-point type.

    Attributes:
        exponent, mantissa: bits of each; there is a bit for the sign besides.
        bias: of the exponent.
        specials: ``ieee``: infinities and NaN have the largest exponent; ``fn``: NaN
            has all bits set, and nothing is infinite; ``fnuz``: NaN is what would be
            -0; ``none``: all codes are finite.
        nan: what a NaN becomes.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str
    nan: float = np.nan

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def smallest_exponent(self) -> int:
        """That of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> float:
        """The largest finite number."""
        top = (1 << self.exponent) - 1 - (self.specials == "ieee")
        lacks_one = self.specials == "fn"  # its place is NaN's
        steps = (2 << self.mantissa) - 1 - lacks_one
        return float(Fraction(steps) * Fraction(2) ** (top - self.bias - self.mantissa))


class IntegerFormat(NamedTuple):
    """An integer in two's complement, or without a sign."""

    bits: int
    signed: bool

    @property
    def limits(self) -> tuple[int, int]:
        if self.signed:
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


FLOATS: Final = {
    "float64": FloatFormat(11, 52, 1023, "ieee"),
    "float32": FloatFormat(8, 23, 127, "ieee"),
    "float16": FloatFormat(5, 10, 15, "ieee"),
    "bfloat16": FloatFormat(8, 7, 127, "ieee"),
    "float8_e4m3fn": FloatFormat(4, 3, 7, "fn"),
    "float8_e4m3fnuz": FloatFormat(4, 3, 8, "fnuz"),
    "float8_e5m2": FloatFormat(5, 2, 15, "ieee"),
    "float8_e5m2fnuz": FloatFormat(5, 2, 16, "fnuz"),
    "float6_e2m3fn": FloatFormat(2, 3, 1, "none", 7.5),
    "float6_e3m2fn": FloatFormat(3, 2, 3, "none", 28.0),
    # as in ONNX's backend suite; its page on floats of 4 bits has the largest, 6
    "float4_e2m1fn": FloatFormat(2, 1, 1, "none", -0.0),
}
INTEGERS: Final = {
    f"{sign}int{bits}": IntegerFormat(bits, not sign)
    for sign in ("", "u")
    for bits in (2, 4, 8, 16, 32, 64)
}
POWERS: Final = "float8_e8m0fnu"
"""The type that has powers of two alone: an exponent with bias 127, and one NaN."""

NUMBERS: Final = (*FLOATS, POWERS, *INTEGERS, "bool")
"""All types that Cast converts, but strings; as numpy and ml_dtypes spell them."""


def width(name: str) -> int:
    """The bits of a type that carry its value."""
    if name in FLOATS:
        return FLOATS[name].bits
    return INTEGERS[name].bits if name in INTEGERS else 8


def codes_of(array: Array) -> Array:
    """The bits of each element, as unsigned integers.

    Elements of less than a byte have theirs in the low bits of one.
    """
    codes = np.asarray(array, order="C").view(f"u{array.dtype.itemsize}")
    bits = 8 if array.dtype == bool else width(array.dtype.name)
    return codes & np.array((1 << bits) - 1, codes.dtype)


def decode(array: Array) -> Array:
    """The exact numbers in *array*, read from their bits by the type's definition.

    Returns:
        float64 of the same shape; of 64-bit integers, an array of Python's.
    """
    name = array.dtype.name
    codes = codes_of(array)
    if name in FLOATS:
        return _decode_float(codes, FLOATS[name])
    if name == POWERS:
        return np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(int) - 127))
    if name == "bool":
        return codes.astype(np.float64)
    kind = INTEGERS[name]
    if kind.bits == 64:
        return codes.view(array.dtype).astype(object)
    numbers = codes.astype(np.float64)
    is_negative = kind.signed & (codes >> (kind.bits - 1))
    return np.where(is_negative, numbers - 2.0**kind.bits, numbers)


def _decode_float(codes: Array, kind: FloatFormat) -> Array:
    if kind.bits == 64:
        return codes.view(np.float64)
    codes = codes.astype(np.int64)
    mantissa = codes & ((1 << kind.mantissa) - 1)
    exponent = (codes >> kind.mantissa) & ((1 << kind.exponent) - 1)
    sign = np.where(codes >> (kind.bits - 1), -1.0, 1.0)
    normal = exponent > 0
    steps = mantissa + np.where(normal, 1 << kind.mantissa, 0)
    place = np.where(normal, exponent, 1) - kind.bias - kind.mantissa
    numbers = sign * np.ldexp(steps.astype(np.float64), place)
    if kind.specials == "ieee":
        special = exponent == (1 << kind.exponent) - 1
        numbers = np.where(special, np.where(mantissa, np.nan, sign * np.inf), numbers)
    elif kind.specials == "fn":
        numbers = np.where((codes & 0x7F) == 0x7F, np.nan, numbers)
    elif kind.specials == "fnuz":
        numbers = np.where(codes == 0x80, np.nan, numbers)
    return numbers


def rounded(numbers: Array, kind: FloatFormat) -> Array:
    """*numbers* to nearest, ties to even, in the type's precision without an upper end.

    Returns:
        float64; infinite where a number is beyond float64, too.  Python's integers
        and fractions may be given in an array of objects.
    """
    if numbers.dtype == object:
        exact = [float(_rounded_fraction(Fraction(n), kind)) for n in numbers.flat]
        near = np.array(exact).reshape(numbers.shape)
        return np.where(numbers < 0, -abs(near), near)  # a zero has a sign, too
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    _, exponent = np.frexp(finite)  # of a fraction from 1/2 to 1
    place = np.maximum(exponent - 1, kind.smallest_exponent) - kind.mantissa
    # a power of two may be beyond float64 while its product is not
    half = place // 2
    steps = np.rint(np.ldexp(np.ldexp(finite, -half), half - place))
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(numbers), np.ldexp(steps, place), numbers)


def _rounded_fraction(number: Fraction, kind: FloatFormat) -> Fraction:
    if not number:
        return number
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    place = max(exponent, kind.smallest_exponent) - kind.mantissa
    step = Fraction(2) ** place
    return round(number / step) * step


def to_float(numbers: Array, name: str, *, saturate: bool = True) -> Array:
    """What Cast makes of exact *numbers* in a floating-point type, as float64."""
    kind = FLOATS[name]
    near = rounded(numbers, kind)
    is_nan = np.isnan(near)
    beyond = np.abs(near) > kind.largest
    if kind.specials == "none":
        # no infinities: what is beyond is the largest; and no NaN
        near = np.where(beyond, np.copysign(kind.largest, near), near)
        return np.where(is_nan, kind.nan, near)
    if kind.bits == 8 and saturate:
        end = np.copysign(kind.largest, near)
    elif kind.specials == "ieee":
        end = np.copysign(np.inf, near)
    else:
        end = np.full(near.shape, np.nan)
    near = np.where(beyond, end, near)
    # -0 of the types without one is 0
    return np.where(near == 0, 0.0, near) if kind.specials == "fnuz" else near


def to_power(
    numbers: Array, *, saturate: bool = True, round_mode: str = "up"
) -> tuple[Array, Array]:
    """What Cast makes of exact *numbers* in float8_e8m0fnu.

    Returns:
        the powers as float64, and where they are defined: neither numbers below zero
        nor -0 have a defined result.
    """
    exponent, part = _above_power(numbers)
    match round_mode:
        case "up":
            exponent = exponent + (part > 0)
        case "nearest":  # a tie goes up
            exponent = exponent + (part >= 0.5)
    powers = np.ldexp(1.0, np.clip(exponent, -127, 127))
    outside = (numbers < 2.0**-127) | (numbers > 2.0**127)
    wide = numbers.astype(np.float64)
    powers = np.where(np.isnan(wide) | (outside & (not saturate)), np.nan, powers)
    powers = np.where(
        outside & saturate, np.where(wide < 1, 2.0**-127, 2.0**127), powers
    )
    return powers, ~np.signbit(wide) | np.isnan(wide)


def _above_power(numbers: Array) -> tuple[Array, Array]:
    """The exponent of the power of two at or below each positive number, and how far
    the number is from there to the next one, from 0 to 1."""
    if numbers.dtype != object:
        fraction, exponent = np.frexp(np.where(np.isnan(numbers), 1.0, numbers))
        return exponent - 1, fraction * 2 - 1
    exponent = np.array([max(n.bit_length() - 1, 0) for n in numbers.flat])
    part = [
        Fraction(max(n, 0), 1 << e) - 1
        for n, e in zip(numbers.flat, exponent.tolist(), strict=True)
    ]
    shape = numbers.shape
    return exponent.reshape(shape), np.array(part, object).reshape(shape)


def to_integer(numbers: Array, name: str, *, from_float: bool) -> tuple[Array, Array]:
    """What Cast makes of exact *numbers* in an integer type.

    Integers keep their low bits.  Floats are cut off, but in types of less than a byte
    they are rounded to nearest, ties to even; what is beyond the type is not defined.

    Returns:
        the integers as :func:`decode` gives them, and where they are defined.
    """
    kind = INTEGERS[name]
    low, high = kind.limits
    wide: Any = object if kind.bits == 64 else np.float64
    if not from_float:
        whole = numbers if numbers.dtype == object else numbers.astype(np.int64)
        kept = (
            whole & ((1 << kind.bits) - 1) if kind.bits < 64 else whole.astype(object)
        )
        kept = kept % (1 << kind.bits)
        result = np.where(kept > high, kept - (1 << kind.bits), kept)
        return result.astype(wide), np.ones(numbers.shape, bool)
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    near = np.rint(finite) if kind.bits < 8 else np.trunc(finite)
    # of 64 bits the largest integer is none of float64's, but the one beyond it is
    defined = np.isfinite(numbers) & (near >= float(low)) & (near < float(high + 1))
    near = np.where(defined, near, 0.0) + 0.0
    if kind.bits < 64:
        return near, defined
    return np.array([int(n) for n in near.flat], object).reshape(near.shape), defined


def to_bool(numbers: Array) -> Array:
    """What Cast makes of exact *numbers* in bool: only zeros are false."""
    return numbers != 0
