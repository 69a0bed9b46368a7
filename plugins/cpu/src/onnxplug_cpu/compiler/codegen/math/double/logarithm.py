"""Logarithms of f64."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.primitives import (
    polynomial,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def log(f: Function, isa: Isa, x: Value) -> Value:
    """The natural logarithm within 1 ulp, of denormal numbers too."""
    return _with_special(f, x, _log_of(f, split(f, x)))


def log1p_of_nonnegative(f: Function, isa: Isa, x: Value) -> Value:
    """log(1 + x) within 2 ulp, for x >= 0 or NaN."""
    whole = x + 1.0
    # what adding 1 rounded away is added to the logarithm, while it matters
    lost = f.select(x < 1.0, x - (whole - 1.0), 1.0 - (whole - x))
    result = _log_of(f, split(f, whole)) + lost / whole
    return f.select(x < math.inf, result, x)


class Parts(NamedTuple):
    """x = 2**exponent * significand, which is between the roots of 1/2 and 2."""

    exponent: Value
    significand: Value


def split(f: Function, x: Value) -> Parts:
    """Of a positive, finite *x*."""
    integer = x.type.of("u64")
    tiny = x < _SMALLEST_NORMAL
    bits = f.bitcast(f.select(tiny, x * 2.0**54, x), integer)
    # in unsigned and floating-point arithmetic, as AVX2 has neither a conversion of
    # i64 nor its signed shift
    biased = (bits + (1023 << 52) - _BITS_OF_SQRT_HALF) >> 52
    exponent = f.bitcast(biased | _BITS_OF_2_52, x.type) - (2.0**52 + 1023)
    significand = f.bitcast(bits - ((biased - 1023) << 52), x.type)
    less = f.select(tiny, f.value(54.0, x.type), 0)
    return Parts(exponent - less, significand)


def _with_special(f: Function, x: Value, result: Value) -> Value:
    result = f.select(x < math.inf, result, x)  # NaN and infinity
    result = f.select(x < 0, f.value(math.nan, x.type), result)
    return f.select(x.compare("eq", 0), f.value(-math.inf, x.type), result)


def _log_of(f: Function, parts: Parts) -> Value:
    """log(1 + r) = r - (r**2 / 2 - s (r**2 / 2 + R(s**2))) for s = r / (2 + r); the
    order of additions is K. C. Ng's (fdlibm, ``log``)."""
    exponent, rest = parts.exponent, parts.significand - 1.0
    s = rest / (rest + 2.0)
    square = s * s
    half = rest * rest * 0.5
    tail = square * polynomial(f, square, _LOG)
    low = f.fma(s, half + tail, exponent * LOG_2_LOW)
    return f.fma(exponent, LOG_2_HIGH, rest - (half - low))


LOG_2_HIGH: Final = 0.693147180559890330187045037746429443359375
"""Of 42 bits: products with exponents are exact."""
LOG_2_LOW: Final = 5.4979230187083712e-14
_BITS_OF_SQRT_HALF: Final = 0x3FE6A09E667F3BCD
_BITS_OF_2_52: Final = 0x4330000000000000
_SMALLEST_NORMAL: Final = 2.0**-1022

_LOG: Final = (
    0.6666666666666731,
    0.39999999999436564,
    0.28571428738248056,
    0.22222198948157304,
    0.1818354671363256,
    0.15314464428938937,
    0.147921013838984,
)
"""(log((1 + s) / (1 - s)) / s - 2) / s**2 in powers of s**2, for s up to 0.172; the
logarithm is then right to 2**-58 (Remez, as in :mod:`~.exponential`)."""
