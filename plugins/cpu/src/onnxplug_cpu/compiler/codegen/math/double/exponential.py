"""Exponential and hyperbolic functions, and the sigmoid, of f64."""

from __future__ import annotations

from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.double.logarithm import LOG_2_HIGH, LOG_2_LOW
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_least,
    at_most,
    polynomial,
    sign_of,
    with_sign,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def exp(f: Function, isa: Isa, x: Value) -> Value:
    """e**x within 1 ulp, denormal results too."""
    parts = reduced(f, at_most(f, at_least(f, x, LOWEST), HIGHEST))
    return scaled(f, 1.0 + exp_minus_1(f, parts.rest), parts.exponent)


def exp_flushed(f: Function, isa: Isa, x: Value) -> Value:
    """e**x within 1 ulp for x <= 0, but 0 where that is no normal number."""
    kept = ~(x < _LOWEST_NORMAL)
    parts = reduced(f, at_least(f, x, _LOWEST_NORMAL))
    fraction = 1.0 + exp_minus_1(f, parts.rest)
    return f.select(kept, fraction * _power_of_two(f, parts.exponent), 0.0)


def expm1(f: Function, isa: Isa, x: Value) -> Value:
    """e**x - 1 within 2 ulp."""
    parts = reduced(f, at_most(f, at_least(f, x, -40.0), HIGHEST))
    # half the power, so that 2**1024 is one
    scale = _power_of_two(f, parts.exponent - 1.0)
    half = f.fma(scale, exp_minus_1(f, parts.rest), scale - 0.5)
    return half + half


def sigmoid(f: Function, isa: Isa, x: Value) -> Value:
    """1 / (1 + e**-x) within 2.3 ulp, denormal results too."""
    exponential = exp(f, isa, -absolute(f, x))
    return f.select(x < 0.0, exponential, 1.0) / (exponential + 1.0)


def tanh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic tangent within 2 ulp; see :func:`~..exponential.tanh`."""
    size = absolute(f, x)
    square = size * size
    near = f.fma(size * square, polynomial(f, square, _TANH), size)
    exponential = exp(f, isa, size * -2.0)
    far = f.fma(exponential / (exponential + 1.0), -2.0, 1.0)
    return with_sign(f, f.select(size < _TANH_NEAR, near, far), sign_of(f, x))


def sinh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic sine within 2 ulp."""
    size = absolute(f, x)
    square = size * size
    near = f.fma(size * square, polynomial(f, square, _SINH), size)
    half = _half_exp(f, size)
    far = half - 0.25 / half
    return with_sign(f, f.select(size < 1.0, near, far), sign_of(f, x))


def cosh(f: Function, isa: Isa, x: Value) -> Value:
    """The hyperbolic cosine within 2 ulp."""
    half = _half_exp(f, absolute(f, x))
    return half + 0.25 / half


class Parts(NamedTuple):
    """x = exponent * log(2) + rest, where abs(rest) <= log(2) / 2."""

    exponent: Value
    rest: Value


def reduced(f: Function, x: Value) -> Parts:
    """*x* without its multiple of log(2), which is of fewer than 12 bits."""
    exponent = f.unary("roundeven", x * _LOG2_E)
    # the first difference is exact
    rest = f.fma(exponent, -LOG_2_HIGH, x)
    return Parts(exponent, f.fma(exponent, -LOG_2_LOW, rest))


def exp_minus_1(f: Function, rest: Value) -> Value:
    """e**rest - 1 for a small *rest*, with a small relative error."""
    return f.fma(rest * rest, polynomial(f, rest, _EXPM1), rest)


def scaled(f: Function, x: Value, n: Value) -> Value:
    """``x * 2**n``, rounded once, for a whole f64 *n* from -2000 to 2000.

    *x* is from 1/2 to 2, or NaN; then *n* may be anything.
    """
    # in two steps, as 2**n may be no normal number; only the second one can round
    half = f.unary("roundeven", n * 0.5)
    return x * _power_of_two(f, half) * _power_of_two(f, n - half)


def _power_of_two(f: Function, n: Value) -> Value:
    """2**n for a whole f64 *n* from -1022 to 1023."""
    # the sum's last bits are the exponent, biased; AVX2 has no conversion to i64
    return f.bitcast(f.bitcast(n + _SHIFTER, n.type.of("i64")) << 52, n.type)


def _half_exp(f: Function, x: Value) -> Value:
    """e**x / 2 for x >= 0, which overflows only where a half of it does."""
    parts = reduced(f, at_most(f, x, HIGHEST + 1))
    return scaled(f, 1.0 + exp_minus_1(f, parts.rest), parts.exponent - 1.0)


_SHIFTER: Final = 1.5 * 2**52 + 1023
_LOG2_E: Final = 1.4426950408889634
LOWEST: Final = -746.0
"""e**x rounds to 0 from about -745.13 on."""
_LOWEST_NORMAL: Final = -708.3964185322641
"""e**x is at least the smallest normal number from here on."""
HIGHEST: Final = 710.0
"""e**x overflows from about 709.78 on."""

# The polynomials minimise the largest relative error of the results (E. Ya. Remez,
# 1934, in 60 digits; coefficients are rounded afterwards).

_EXPM1: Final = (
    0.5,
    0.16666666666666677,
    0.0416666666666667,
    0.008333333333321648,
    0.0013888888888866826,
    0.0001984126988608465,
    2.480158736057972e-05,
    2.755724425029376e-06,
    2.7557242739303826e-07,
    2.5109022696394494e-08,
    2.0924449815981602e-09,
)
"""(e**r - 1 - r) / r**2 for abs(r) <= log(2) / 2; e**r - 1 is then right to 2**-61."""

_SINH: Final = (
    0.16666666666666669,
    0.00833333333333314,
    0.00019841269841437294,
    2.755731915538992e-06,
    2.5052123398215316e-08,
    1.6057239877821878e-10,
    7.759338316824819e-13,
)
"""(sinh(x) - x) / x**3 in powers of x**2, for abs(x) <= 1."""

_TANH_NEAR: Final = 0.625
_TANH: Final = (
    -0.33333333333333315,
    0.1333333333333017,
    -0.05396825396625127,
    0.021869488473201703,
    -0.00886323437466558,
    0.0035921145477014467,
    -0.001455729145256414,
    0.0005894642940530758,
    -0.0002370440825447882,
    9.161166271387128e-05,
    -3.0237669896858043e-05,
    6.063411905017224e-06,
)
"""(tanh(x) - x) / x**3 in powers of x**2, for abs(x) <= 0.625."""
