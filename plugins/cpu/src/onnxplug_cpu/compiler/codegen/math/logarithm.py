"""Logarithms."""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I16, I32, Function, Value
from onnxplug_cpu.compiler.codegen.math.primitives import (
    CURRENT_DIRECTION,
    by_registers,
    polynomial,
    power_of_two,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def log(f: Function, isa: Isa, x: Value) -> Value:
    """The natural logarithm within 1 ulp, of denormal numbers too."""
    if isa.name == "avx512":
        return _log_of(f, _avx512_parts(f, x))
    tiny = x < _SMALLEST_NORMAL
    parts = _parts(f, f.select(tiny, x * 2.0**23, x))
    exponent = parts.exponent - f.select(tiny, f.value(23.0, x.type), 0)
    result = _log_of(f, _Parts(exponent, parts.rest))
    result = f.select(x < math.inf, result, x)  # NaN and infinity
    result = f.select(x < 0, f.value(math.nan, x.type), result)
    return f.select(x.compare("eq", 0), f.value(-math.inf, x.type), result)


def log1p_of_fraction(f: Function, isa: Isa, x: Value) -> Value:
    """log(1 + x) within 1 ulp, for x from 0 to 1 or NaN."""
    halved = x >= 0.5
    rest = f.select(halved, f.fma(x, 0.5, -0.5), x)
    exponent = f.select(halved, f.value(1.0, x.type), 0)
    return _log_of(f, _Parts(exponent, rest))


def log1p_of_nonnegative(f: Function, isa: Isa, x: Value) -> Value:
    """log(1 + x) within 1 ulp, for x >= 0 or NaN."""
    parts = _parts(f, x + 1.0)
    # what adding 1 rounded away is added to the fraction, while it matters
    integer = x.type.of("i32")
    scale = power_of_two(f, 0 - f.convert_finite(parts.exponent, integer))
    exact = f.fma(x, scale, scale - 1.0)
    rest = f.select(x < 2.0**60, exact, parts.rest)
    result = _log_of(f, _Parts(parts.exponent, rest))
    return f.select(x < math.inf, result, x)


class _Parts(NamedTuple):
    """x = 2**exponent * (1 + rest), where 3/4 <= 1 + rest < 3/2."""

    exponent: Value
    rest: Value


def _parts(f: Function, x: Value) -> _Parts:
    """Of a positive, normal *x*."""
    bits = f.bitcast(x, x.type.of("i32"))
    exponent = (bits - _BITS_OF_3_4) >> 23
    rest = f.bitcast(bits - (exponent << 23), x.type) - 1.0
    return _Parts(f.convert(exponent, x.type), rest)


def _avx512_parts(f: Function, x: Value) -> _Parts:
    """Of any *x*: that of 0 is 2**-inf, that of a negative number NaN."""
    intrinsic = functools.partial(_avx512_intrinsic, f)
    kind = f.value(_FROM_3_4_TO_3_2 | _NAN_OF_NEGATIVE, I32)
    significand = by_registers(f, lambda x: intrinsic("getmant", x, kind), x)
    exponent = by_registers(f, lambda x: intrinsic("getexp", x), x)
    # getexp counts significands from 1 to 2
    low = significand < 1.0
    return _Parts(f.select(low, exponent + 1.0, exponent), significand - 1.0)


def _avx512_intrinsic(f: Function, name: str, *operands: Value) -> Value:
    type_ = operands[0].type
    return f.intrinsic(
        type_,
        f"llvm.x86.avx512.mask.{name}.ps.512",
        *operands,
        f.zero(type_),
        f.value(-1, I16),
        f.value(CURRENT_DIRECTION, I32),
    )


def _log_of(f: Function, parts: _Parts) -> Value:
    """S. L. Moshier's order of additions (Cephes, ``logf``)."""
    exponent, rest = parts
    square = rest * rest
    tail = rest * square * polynomial(f, rest, _LOG)
    tail = f.fma(exponent, _LOG_2_LOW, tail)
    tail = f.fma(square, -0.5, tail)
    return f.fma(exponent, _LOG_2_HIGH, rest + tail)


_LOG: Final = (
    0.333334506,
    -0.250001043,
    0.199908197,
    -0.166469991,
    0.144783214,
    -0.131638736,
    0.104688786,
    -0.0451120548,
)
"""(log(1 + r) - r + r**2 / 2) / r**3 for -1/4 <= r <= 1/2; the logarithm is then right
to 2**-27 (Lawson's iterated least squares, coefficients rounded in turn)."""

_LOG_2_HIGH: Final = 0.693145751953125
_LOG_2_LOW: Final = 1.428606765330187e-06  # positive, for infinite exponents
_BITS_OF_3_4: Final = 0x3F400000
_SMALLEST_NORMAL: Final = 2.0**-126
_FROM_3_4_TO_3_2: Final = 3
_NAN_OF_NEGATIVE: Final = 2 << 2
