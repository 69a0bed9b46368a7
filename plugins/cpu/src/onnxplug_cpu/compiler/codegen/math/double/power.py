"""Powers of f64, whose logarithm is a sum of two f64."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.double.exponential import (
    HIGHEST,
    LOWEST,
    exp_minus_1,
    reduced,
    scaled,
)
from onnxplug_cpu.compiler.codegen.math.double.logarithm import (
    LOG_2_HIGH,
    LOG_2_LOW,
    split,
)
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_least,
    at_most,
    polynomial,
)


def power_of_size(f: Function, size: Value, y: Value) -> Value:
    """size**y within 1.2 ulp, for a *size* that is not negative."""
    log = _log(f, size)
    product = y * log.high
    rest = f.fma(y, log.high, -product) + y * log.low
    # where the product is infinite or NaN, so is the result
    rest = f.select(absolute(f, product) < 2 * HIGHEST, rest, 0.0)
    parts = reduced(f, at_most(f, at_least(f, product, LOWEST), HIGHEST))
    return scaled(f, 1.0 + exp_minus_1(f, parts.rest + rest), parts.exponent)


class _Sum(NamedTuple):
    """A number as a sum; the second one is small (T. J. Dekker, 1971)."""

    high: Value
    low: Value


def _log(f: Function, x: Value) -> _Sum:
    """The logarithm of x >= 0 or NaN, to 2**-64 of itself: the series of atanh, whose
    first two terms are sums."""
    exponent, m = split(f, x)
    rest, below = m - 1.0, m + 1.0
    inverse = 1.0 / below
    s = rest * inverse
    lost = f.fma(-s, below, rest) - s * (m - (below - 1.0))
    s_low = lost * inverse
    square = s * s
    square_low = f.fma(s, s, -square) + s * s_low * 2.0
    third = square * _THIRD
    third_low = f.fma(square, _THIRD, -third)
    third_low = third_low + f.fma(square, _THIRD_LOW, square_low * _THIRD)
    series = _sum(third, square * square * polynomial(f, square, _ATANH))
    series_low = series.low + third_low
    term = s * series.high
    term_low = f.fma(s, series.high, -term) + s * series_low + s_low * series.high
    half = _sum(s, term)
    half_low = half.low + (term_low + s_low)
    total = _sum(exponent * LOG_2_HIGH, half.high + half.high)
    low = total.low + f.fma(exponent, LOG_2_LOW, half_low + half_low)
    special = ~((x > 0) & (x < math.inf))
    limit = f.select(x.compare("eq", 0), f.value(-math.inf, x.type), x)
    return _Sum(f.select(special, limit, total.high), f.select(special, limit, low))


def _sum(a: Value, b: Value) -> _Sum:
    """Of a number and a smaller one, or 0 and any."""
    high = a + b
    return _Sum(high, (a - high) + b)


_THIRD: Final = 1 / 3
_THIRD_LOW: Final = 1.850371707708594e-17
_ATANH: Final = (
    0.2000000000000102,
    0.14285714285093826,
    0.1111111125313314,
    0.0909089271490601,
    0.07693356530837638,
    0.0662888087142127,
    0.06594113504713815,
)
"""((atanh(s) / s - 1) / s**2 - 1/3) / s**2 in powers of s**2, for s up to 0.172; the
logarithm is then right to 2**-66 (Remez, as in :mod:`~.exponential`)."""
