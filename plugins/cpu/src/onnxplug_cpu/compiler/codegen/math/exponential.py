"""Exponential and hyperbolic functions, and the sigmoid."""

from __future__ import annotations

from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_least,
    at_most,
    polynomial,
    power_of_two,
    reciprocal,
    scaled,
    sign_of,
    with_sign,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def exp(f: Function, isa: Isa, x: Value) -> Value:
    """e**x within 1 ulp, denormal results too."""
    return _exp_within(f, isa, at_most(f, at_least(f, x, _LOWEST), _HIGHEST))


def exp_of_nonpositive(f: Function, isa: Isa, x: Value) -> Value:
    """e**x within 1 ulp for x <= 0, cheaper than :func:`exp`."""
    x = at_least(f, x, _LOWEST)
    if isa.name == "avx512":
        return _exp_within(f, isa, x)
    fraction, power = _fraction_and_power(f, x, _UP)
    # only this can round: what is multiplied by the power is a normal number
    return fraction * power * 2.0**-_UP


def exp_flushed(f: Function, isa: Isa, x: Value) -> Value:
    """e**x within 1 ulp for x <= 0, but 0 where that is no normal number.

    Processors take a hundred cycles and more to make a denormal number; this makes
    none on the way either, so that minus infinity costs what other numbers do.
    """
    kept = ~(x < _LOWEST_NORMAL)
    if isa.name != "avx512":  # there are no masks: the lanes in vain count too
        x = at_least(f, x, _LOWEST_NORMAL)
    fraction, power = _fraction_and_power(f, x)
    return f.select(kept, fraction * power, 0.0)


def expm1(f: Function, isa: Isa, x: Value) -> Value:
    """e**x - 1 within 2 ulp."""
    parts = _reduced(f, at_most(f, at_least(f, x, -20.0), _HIGHEST))
    # half the power, so that 2**128 is one
    n = f.convert_finite(parts.exponent - 1.0, x.type.of("i32"))
    scale = power_of_two(f, n)
    half = f.fma(scale, _fraction(f, parts.rest), scale - 0.5)
    return half + half


def expm1_of_nonpositive(f: Function, isa: Isa, x: Value) -> Value:
    """e**x - 1 for x <= 0, cheaper than :func:`expm1`."""
    parts = _reduced(f, at_least(f, x, -20.0))
    scale = power_of_two(f, f.convert_finite(parts.exponent, x.type.of("i32")))
    return f.fma(scale, _fraction(f, parts.rest), scale - 1.0)


def sigmoid(f: Function, isa: Isa, x: Value) -> Value:
    """1 / (1 + e**-x) within 2 ulp, denormal results too."""
    exponential = exp_of_nonpositive(f, isa, -absolute(f, x))
    upper = reciprocal(f, isa, exponential + 1.0)
    return f.select(x < 0.0, upper * exponential, upper)


def tanh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic tangent within 2 ulp: x + x**3 P(x**2) near 0, and further away
    1 - 2 e / (1 + e) with e = exp(-2 abs(x)) and the sign of *x*."""
    size = absolute(f, x)
    square = size * size
    near = f.fma(size * square, polynomial(f, square, _TANH), size)
    exponential = exp_of_nonpositive(f, isa, size * -2.0)
    ratio = exponential * reciprocal(f, isa, exponential + 1.0)
    far = f.fma(ratio, -2.0, 1.0)
    return with_sign(f, f.select(size < _TANH_NEAR, near, far), sign_of(f, x))


def sinh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic sine within 2 ulp."""
    size = absolute(f, x)
    square = size * size
    near = f.fma(size * square, polynomial(f, square, _SINH), size)
    half = _half_exp(f, isa, size)
    far = half - 0.25 / half
    return with_sign(f, f.select(size < 1.0, near, far), sign_of(f, x))


def cosh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic cosine within 2 ulp."""
    half = _half_exp(f, isa, absolute(f, x))
    return half + 0.25 / half


class _Parts(NamedTuple):
    """x = exponent * log(2) + rest, where abs(rest) <= log(2) / 2."""

    exponent: Value
    rest: Value


def _reduced(f: Function, x: Value) -> _Parts:
    exponent = f.unary("roundeven", x * _LOG2_E)
    # the first product is exact; W. J. Cody and W. Waite, Software Manual for the
    # Elementary Functions (1980), chapter 6
    rest = f.fma(exponent, -_LOG_2_HIGH, x)
    return _Parts(exponent, f.fma(exponent, -_LOG_2_LOW, rest))


def _fraction_and_power(f: Function, x: Value, up: int = 0) -> tuple[Value, Value]:
    """What e**x * 2**up is the product of, for as small an *x* as makes the second a
    normal number; NaN makes the first NaN."""
    # the sum's last bits are the exponent, biased as in a float
    shifter = _SHIFTER + up
    shifted = f.fma(x, _LOG2_E, shifter)
    exponent = shifted - shifter
    rest = f.fma(exponent, -_LOG_2_HIGH, x)
    rest = f.fma(exponent, -_LOG_2_LOW, rest)
    power = f.bitcast(f.bitcast(shifted, x.type.of("i32")) << 23, x.type)
    return polynomial(f, rest, _EXP), power


def _exp_within(f: Function, isa: Isa, x: Value) -> Value:
    parts = _reduced(f, x)
    return scaled(f, isa, polynomial(f, parts.rest, _EXP), parts.exponent)


def _half_exp(f: Function, isa: Isa, x: Value) -> Value:
    """e**x / 2 for x >= 0, which overflows only where a half of it does."""
    parts = _reduced(f, at_most(f, x, 90.0))
    power = polynomial(f, parts.rest, _EXP)
    return scaled(f, isa, power, parts.exponent - 1.0)


def _fraction(f: Function, rest: Value) -> Value:
    """e**rest - 1 for a small *rest*, with a small relative error."""
    return f.fma(rest * rest, polynomial(f, rest, _EXPM1), rest)


_LOG2_E: Final = 1.4426950408889634
_LOG_2_HIGH: Final = 0.693359375
_LOG_2_LOW: Final = -2.12194440e-4
_LOWEST: Final = -104.0
"""e**x rounds to 0 from about -103.97 on."""
_LOWEST_NORMAL: Final = -87.33654
"""e**x is at least the smallest normal number from here on."""
_SHIFTER: Final = 1.5 * 2**23 + 127
"""The sum of this and a small number is rounded to a whole one."""
_UP: Final = 64
"""A power of two by which :data:`_LOWEST` gives no denormal number."""
_HIGHEST: Final = 89.0
"""e**x overflows from about 88.72 on."""

# The polynomials minimise the largest relative error of the results (Lawson's iterated
# least squares, each coefficient rounded before those after it are fitted again).

_EXP: Final = (
    1.0,
    1.0,
    0.49999994,
    0.166665211,
    0.0416682623,
    0.00836867094,
    0.00138209993,
)
"""e**r to 2**-28 for abs(r) <= log(2) / 2."""

_EXPM1: Final = (
    0.5,
    0.166666657,
    0.0416664928,
    0.00833354611,
    0.00139323215,
    0.00019761725,
)
"""(e**r - 1 - r) / r**2; e**r - 1 is then right to 2**-31."""

_SINH: Final = (0.166666672, 0.00833331048, 0.000198428956, 2.78221319e-06)
"""(sinh(x) - x) / x**3 in powers of x**2, for abs(x) <= 1."""

_TANH_NEAR: Final = 0.625
_TANH: Final = (
    -0.333332807,
    0.133314103,
    -0.0537372679,
    0.0206317231,
    -0.00569734583,
)
"""(tanh(x) - x) / x**3 in powers of x**2, for abs(x) <= 0.625."""
