"""Rounding of exact fractions to ONNX's types, as Cast and QuantizeLinear have it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import ml_dtypes
import numpy as np

from .comparison import narrow
from .strategies import Dtype, is_float, limits

NO_NAN: Final = ("float4_", "float6_")
"""What the names of types begin with that have neither infinity nor NaN."""


def rounded(exact: Fraction, dtype: Dtype) -> Fraction:
    """To the nearest multiple of the last place, ties to even, however large."""
    if not exact:
        return exact
    info: Any = ml_dtypes.finfo(dtype)
    least = math.frexp(float(info.tiny))[1] - 1
    _, exponent = _frexp(exact)
    unit = Fraction(2) ** (max(exponent - 1, least) - int(info.nmant))
    return round(exact / unit) * unit


def _frexp(exact: Fraction) -> tuple[Fraction, int]:
    """As :func:`math.frexp`, exactly."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size >= Fraction(2) ** exponent:
        exponent += 1
    return exact / Fraction(2) ** exponent, exponent


def to_float(number: Any, dtype: Dtype, saturate: bool) -> float:
    """*number*, a float or an integer, in *dtype* by Cast's tables."""
    largest = float(ml_dtypes.finfo(dtype).max)
    # floats of four and six bits have neither infinity nor NaN
    saturate = dtype.name.startswith(NO_NAN) or (
        saturate and dtype.name.startswith("float8")
    )
    if number != number:
        return math.nan
    sign = math.copysign(1, number)
    if not math.isinf(number):
        exact = rounded(Fraction(number), dtype)
        if abs(exact) <= largest:
            return float(exact) or math.copysign(0.0, sign)
    if saturate:
        return sign * largest
    has_infinity = np.isinf(narrow(np.array(math.inf), dtype).astype(float))
    return sign * math.inf if has_infinity else math.nan


def quantized(
    steps: Fraction, zero_point: int, dtype: Dtype, saturate: bool = True
) -> Any:
    """So many steps from zero in *dtype*: saturated, and whole in integers."""
    if is_float(dtype):
        return to_float(steps + zero_point, dtype, saturate)
    low, high = limits(dtype)
    return max(low, min(round(steps) + zero_point, high))
