"""Comparisons, truth values, bits, and choice between two arrays."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.elementwise import (
    as_array,
    declare,
    native,
    native_of_two,
    with_limited_broadcasting,
)
from onnxplug_kernels.registry import operator

for _op_type, _function in (
    ("And", "logical_and"),
    ("Or", "logical_or"),
    ("Xor", "logical_xor"),
    ("Equal", "equal"),
    ("Greater", "greater"),
    ("Less", "less"),
):
    declare(
        _op_type,
        native_of_two(_function),
        since=1,
        legacy=with_limited_broadcasting,
    )

declare("Not", native("logical_not"), since=1)
declare("BitwiseNot", native("bitwise_invert"), since=18)

for _op_type, _function, _since in (
    ("GreaterOrEqual", "greater_equal", 12),
    ("LessOrEqual", "less_equal", 12),
    ("BitwiseAnd", "bitwise_and", 18),
    ("BitwiseOr", "bitwise_or", 18),
    ("BitwiseXor", "bitwise_xor", 18),
):
    declare(_op_type, native_of_two(_function), since=_since)


@operator("BitShift", since=11)
def bit_shift(xp: Any, x: Any, y: Any, *, direction: str) -> Any:
    """Shifts by a negative amount or by all bits leave copies of the sign or zeros."""
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction is {direction!r}, expected LEFT or RIGHT")
    return as_array(xp, xp.shifted(x, y, left=direction == "LEFT"))


@operator("IsInf", since=10)
def is_inf(
    xp: Any, x: Any, *, detect_negative: int = 1, detect_positive: int = 1
) -> Any:
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    if detect_negative and detect_positive:
        return as_array(xp, xp.isinf(wide))
    if not detect_negative and not detect_positive:
        return xp.zeros(x.shape, dtype=xp.bool)
    return as_array(xp, wide == (math.inf if detect_positive else -math.inf))


@operator("IsNaN", since=9)
def is_nan(xp: Any, x: Any) -> Any:
    return as_array(xp, xp.isnan(xp.astype(x, xp.computing_dtype(x.dtype), copy=False)))


@operator("Where", since=9)
def where(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    return xp.where(condition, x, y)
