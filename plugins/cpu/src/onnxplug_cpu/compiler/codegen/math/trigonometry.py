"""Trigonometric functions and their inverses."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug_cpu.compiler.codegen.emit import F64, I8, PTR, Function, Type, Value
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_least,
    at_most,
    polynomial,
    sign_of,
    with_sign,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def sin(f: Function, isa: Isa, x: Value) -> Value:
    """The sine within 2 ulp, of arguments of any size."""
    turn = _reduced(f, x)
    result = _sine_or_cosine(f, turn.rest, (turn.quarter & 1).compare("ne", 0))
    sign = (turn.quarter & 2) << 30
    # a zero keeps its sign, which the reduction loses
    return f.select(x.compare("eq", 0), x, _flipped(f, result, sign))


def cos(f: Function, isa: Isa, x: Value) -> Value:
    """The cosine within 2 ulp, of arguments of any size."""
    turn = _reduced(f, x)
    result = _sine_or_cosine(f, turn.rest, (turn.quarter & 1).compare("eq", 0))
    return _flipped(f, result, ((turn.quarter + 1) & 2) << 30)


def tan(f: Function, isa: Isa, x: Value) -> Value:
    """The tangent within 1.2 ulp, of arguments of any size.

    Near odd quarters it doubles relative errors, so the argument and the tangent that
    is divided by are sums of two floats.
    """
    turn = _reduced(f, x, exactly=True)
    rest, low = turn.rest, turn.low
    assert low is not None
    square = rest * rest
    tail = rest * square * polynomial(f, square, _TAN)
    first = rest + tail
    tail = tail + f.fma(low * first, first, low)
    near = rest + tail
    left = tail - (near - rest)
    odd = (turn.quarter & 1).compare("ne", 0)
    inverse = -1.0 / near
    # -1 / (near + left)
    error = f.fma(inverse, near, 1.0) + inverse * left
    result = f.select(odd, f.fma(inverse, error, inverse), near)
    return f.select(x.compare("eq", 0), x, result)


def asin(f: Function, isa: Isa, x: Value) -> Value:
    """The inverse sine within 3 ulp; NaN beyond 1."""
    size = absolute(f, x)
    far = size > 0.5
    # asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2))
    half = f.fma(size, -0.5, 0.5)
    argument = f.select(far, f.unary("sqrt", half), size)
    square = f.select(far, half, size * size)
    tail = argument * square * polynomial(f, square, _ASIN)
    near = argument + tail
    upper = f.fma(argument, -2.0, _HALF_PI) - f.fma(tail, 2.0, -_HALF_PI_LOW)
    return with_sign(f, f.select(far, upper, near), sign_of(f, x))


def acos(f: Function, isa: Isa, x: Value) -> Value:
    """The inverse cosine within 3 ulp; NaN beyond 1."""
    size = absolute(f, x)
    far = size > 0.5
    half = f.fma(size, -0.5, 0.5)
    argument = f.select(far, f.unary("sqrt", half), x)
    square = f.select(far, half, size * size)
    tail = argument * square * polynomial(f, square, _ASIN)
    near = _HALF_PI - (argument - (_HALF_PI_LOW - tail))
    right = (argument + tail) * 2.0
    left = f.fma(argument, -2.0, 2 * _HALF_PI) - f.fma(tail, 2.0, -2 * _HALF_PI_LOW)
    return f.select(far, f.select(x < 0, left, right), near)


def atan(f: Function, isa: Isa, x: Value) -> Value:
    """The inverse tangent within 2 ulp."""
    size = absolute(f, x)
    far = size > 1.0
    ratio = at_most(f, size, 1.0) / at_least(f, size, 1.0)
    square = ratio * ratio
    tail = ratio * square * polynomial(f, square, _ATAN)
    upper = _HALF_PI - (ratio - (_HALF_PI_LOW - tail))
    return with_sign(f, f.select(far, upper, ratio + tail), sign_of(f, x))


def _flipped(f: Function, x: Value, sign: Value) -> Value:
    return f.bitcast(f.bitcast(x, sign.type) ^ sign, x.type)


def _sine_or_cosine(f: Function, rest: Value, cosine: Value) -> Value:
    square = rest * rest
    sine = f.fma(rest * square, polynomial(f, square, _SIN), rest)
    tail = square * square * polynomial(f, square, _COS)
    other = f.fma(square, -0.5, 1.0) + tail
    return f.select(cosine, other, sine)


class _Turn(NamedTuple):
    """x = quarter * pi/2 + rest + low, where abs(rest) <= pi/4 and a little.

    Only the low bits of the quarter, an i32, are right.
    """

    quarter: Value
    rest: Value
    low: Value | None = None


def _reduced(f: Function, x: Value, *, exactly: bool = False) -> _Turn:
    """*x* without whole quarters of a turn; *exactly*, with the low part."""
    quarters = f.unary("roundeven", x * (2 / math.pi))
    low: Value | None = None
    if exactly:
        rest, low = _difference(f, x, quarters)
    else:
        rest = x
        for part in _HALF_PI_PARTS:
            rest = f.fma(quarters, -part, rest)
    quarter = f.convert_finite(quarters, x.type.of("i32"))
    size = absolute(f, x)
    large = (size > _LARGE) & (size < math.inf)
    small = _Turn(quarter, rest, low)
    found = f.branch(
        f.reduce("or", large),
        lambda: _of_large(f, x, large, small),
        lambda: [value for value in small if value is not None],
    )
    return _Turn(*found)


def _difference(f: Function, x: Value, quarters: Value) -> tuple[Value, Value]:
    """x - quarters * pi/2 as a sum of two floats, the second one small (T. J. Dekker,
    "A floating-point technique for extending the available precision", 1971)."""
    first, second, third = _HALF_PI_PARTS
    high = f.fma(quarters, -first, x)
    product = quarters * second
    rest = high - product
    back = rest - high
    lost = (high - (rest - back)) - (product + back)
    small = lost - f.fma(quarters, second, -product)
    small = f.fma(quarters, -third, small)
    total = rest + small
    return total, small - (total - rest)


def _of_large(f: Function, x: Value, large: Value, small: _Turn) -> list[Value]:
    """The reduction of numbers of any size (M. H. Payne and R. N. Hanek, "Radian
    reduction for trigonometric functions", SIGNUM 18, 1983).

    x is m 2**e for a whole m; what 2**e is of a turn comes from a table, in three parts
    whose products with m are exact or small.
    """
    bits = f.bitcast(absolute(f, x), x.type.of("i32"))
    row = f.select(large, (bits >> 23) - _FIRST_EXPONENT, 0)
    significand = (bits & 0x7FFFFF) | 0x800000
    wide = x.type.of("f64")
    m = f.convert(significand, wide)
    table = Value(f, f.module.constant("quarter_turns", _quarter_turns()), PTR)
    high, middle, low = (_looked_up(f, table, row, part) for part in range(3))
    product = m * high
    product = product - f.unary("roundeven", product * 0.25) * 4.0
    second = m * middle
    quarters = f.unary("roundeven", product + second)
    rest = f.fma(m, low, (product - quarters) + second) * (math.pi / 2)
    quarter = f.convert_finite(quarters, bits.type)
    negative = x < 0
    quarter = f.select(negative, 0 - quarter, quarter)
    rest = f.select(negative, -rest, rest)
    high = f.convert(rest, x.type)
    result = [
        f.select(large, quarter, small.quarter),
        f.select(large, high, small.rest),
    ]
    if small.low is not None:
        low = f.convert(rest - f.convert(high, wide), x.type)
        result.append(f.select(large, low, small.low))
    return result


def _looked_up(f: Function, table: Value, row: Value, part: int) -> Value:
    lanes = row.type.lanes
    offsets = row * (3 * F64.nbytes) + part * F64.nbytes
    addresses = f.instruction(
        Type("ptr", lanes), f"getelementptr {I8.text}, ptr {table.text}, {offsets}"
    )
    wide = F64.vector(lanes)
    return f.intrinsic(
        wide,
        f"llvm.masked.gather.{wide.suffix}.v{lanes}p0",
        f.aligned(addresses, F64.nbytes),
        f.value(1, row.type.of("i1")),
        f.zero(wide),
    )


@cache
def _quarter_turns() -> np.ndarray[Any, np.dtype[np.float64]]:
    """2**e * 2/pi modulo 4, for the weight 2**e of the last bit of a large f32.

    The first two parts have 28 bits each.
    """
    from fractions import Fraction  # slow to import

    two_over_pi = Fraction(_TWO_OVER_PI, 1 << (4 * _HEX_DIGITS))
    rows: list[list[float]] = []
    for exponent in range(_FIRST_EXPONENT, 255):
        value = two_over_pi * Fraction(2) ** (exponent - 150) % 4
        row: list[float] = []
        for bits in (26, 54):
            part = Fraction(int(value * 2**bits), 2**bits)
            row.append(float(part))
            value -= part
        rows.append([*row, float(value)])
    return np.array(rows)


_TWO_OVER_PI: Final = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0"
    "06492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F4",
    16,
)
"""The first hexadecimal digits of 2/pi."""
_HEX_DIGITS: Final = 160

_LARGE: Final = 2.0**17
"""Up to here the parts of pi/2 are exact enough."""
_FIRST_EXPONENT: Final = 127 + 17

_HALF_PI_PARTS: Final = (
    1.5707963705062866,
    -4.371138828673793e-08,
    -1.7151245100058819e-15,
)
"""Sum to pi/2, and have 24 bits each: the first product is exact after subtraction."""
_HALF_PI: Final = _HALF_PI_PARTS[0]
_HALF_PI_LOW: Final = _HALF_PI_PARTS[1]

# The polynomials, in powers of x**2, minimise the largest relative error of the results
# (Lawson's iterated least squares, each coefficient rounded before those after it are
# fitted again).

_SIN: Final = (-0.166666552, 0.00833218731, -0.000195179091)
"""(sin(x) - x) / x**3, to 2**-28."""
_COS: Final = (0.0416666456, -0.00138873095, 2.44323364e-05)
"""(cos(x) - 1 + x**2 / 2) / x**4, to 2**-33."""
_TAN: Final = (
    0.333333492,
    0.133326724,
    0.054059431,
    0.0212829504,
    0.0108369617,
    8.5125117e-05,
    0.00437959889,
)
"""(tan(x) - x) / x**3, to 2**-29."""
_ASIN: Final = (
    0.166666597,
    0.0750052184,
    0.0445133746,
    0.0318390839,
    0.0143149635,
    0.0376964621,
)
"""(asin(x) - x) / x**3 for abs(x) <= 1/2, to 2**-31."""
_ATAN: Final = (
    -0.333332986,
    0.19998531,
    -0.142640516,
    0.109511748,
    -0.0840047523,
    0.0579065457,
    -0.0311270021,
    0.0108873611,
    -0.0017875476,
)
"""(atan(x) - x) / x**3 for abs(x) <= 1, to 2**-28."""
