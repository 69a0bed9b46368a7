"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import functools
from typing import Any

from onnxplug_torch.dtypes import (
    BOOL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    TENSOR_TYPES,
)
from onnxplug_torch.operators.computing import (
    in_float32,
    in_order,
    in_signed,
    out_of_order,
)
from onnxplug_torch.operators.registry import operator

# before version 7 operands broadcast by attributes


@operator("Add", since=7, types=NUMBERS)
def add(torch: Any, x: Any, y: Any) -> Any:
    return in_signed(torch, torch.add, x, y)


@operator("Sub", since=7, types=NUMBERS)
def subtract(torch: Any, x: Any, y: Any) -> Any:
    return in_signed(torch, torch.sub, x, y)


@operator("Mul", since=7, types=NUMBERS)
def multiply(torch: Any, x: Any, y: Any) -> Any:
    return in_signed(torch, torch.mul, x, y)


@operator("Div", since=7, types=NUMBERS)
def divide(torch: Any, x: Any, y: Any) -> Any:
    if x.dtype.is_floating_point:
        return torch.div(x, y)
    if x.dtype == torch.uint64:
        return unsigned_quotient(torch, x, y)
    return in_signed(torch, functools.partial(_quotient, torch), x, y)


def _quotient(torch: Any, x: Any, y: Any) -> Any:
    # -1 and 0 apart: by 0 processors trap, and by -1 if it is of the least number
    safe = torch.where((y == 0) | (y == -1), 1, y) if y.dtype.is_signed else y
    safe = torch.where(safe == 0, 1, safe)
    found = torch.div(x, safe, rounding_mode="trunc")
    found = torch.where(y == 0, 0, found)
    return torch.where(y == -1, -x, found) if y.dtype.is_signed else found


def unsigned_quotient(torch: Any, x: Any, y: Any) -> Any:
    """The quotient in uint64 of what has the bits of uint64; of 0, where *y* is 0."""
    # Hacker's Delight, 9-3: half of the dividend is not negative; then correct by one
    a, b = torch.broadcast_tensors(x.to(torch.int64), y.to(torch.int64))
    safe = torch.where(b == 0, 1, b)
    half = (a >> 1) & torch.iinfo(torch.int64).max
    estimate = torch.div(half, safe.clamp(min=1), rounding_mode="floor") << 1
    rest = a - estimate * safe
    least = torch.iinfo(torch.int64).min
    carry = (rest ^ least) >= (safe ^ least)
    small = estimate + carry.to(torch.int64)
    # a divisor of the upper half goes in once, or not at all
    large = ((a ^ least) >= (b ^ least)).to(torch.int64)
    found = torch.where(b < 0, large, small)
    return torch.where(b == 0, 0, found).to(torch.uint64)


@operator("Mod", since=10, types=NUMBERS)
def modulo(torch: Any, x: Any, y: Any, *, fmod: int = 0) -> Any:
    function = torch.fmod if fmod else torch.remainder
    if x.dtype.is_floating_point:
        return function(x, y)
    if x.dtype == torch.uint64:
        quotient = unsigned_quotient(torch, x, y)
        rest = subtract(torch, x, multiply(torch, quotient, y))
        # on CUDA torch selects no uint64
        whole = torch.where(y.to(torch.int64) == 0, 0, rest.to(torch.int64))
        return whole.to(torch.uint64)

    def of_integers(x: Any, y: Any) -> Any:
        edge = (y == 0) | (y == -1) if y.dtype.is_signed else y == 0
        return torch.where(edge, 0, function(x, torch.where(edge, 1, y)))

    return in_signed(torch, of_integers, x, y)


@operator("Pow", since=7, types=NUMBERS)
def power(torch: Any, x: Any, y: Any) -> Any:
    dtype = x.dtype
    if x.dtype.is_floating_point or y.dtype.is_floating_point:
        wide = torch.promote_types(
            dtype if dtype.is_floating_point else torch.float64,
            y.dtype if y.dtype.is_floating_point else torch.float32,
        )
        if y.ndim == 0 and dtype.is_floating_point and y.dtype == dtype:
            return torch.pow(x, y)
        return torch.pow(x.to(wide), y.to(wide)).to(dtype)
    base, exponent = x.to(torch.int64), y.to(torch.int64)
    if y.dtype != torch.uint64:
        return torch.pow(base, exponent).to(dtype)
    # torch would take the upper half of the exponents for negative ones
    found = torch.ones_like(base + exponent)
    for bit in range(64):
        found = torch.where((exponent >> bit) & 1 == 1, found * base, found)
        base = base * base
    return found.to(dtype)


def _each(op_type: str, name: str, types: Any, since: int = 1) -> None:
    """Declare an operator of one input that is a function of torch's."""

    def function(torch: Any, x: Any) -> Any:
        return getattr(torch, name)(x)

    operator(op_type, since=since, types=types)(function)


for _op, _name in (
    ("Acos", "acos"), ("Acosh", "acosh"), ("Asin", "asin"), ("Asinh", "asinh"),
    ("Atan", "atan"), ("Atanh", "atanh"), ("Ceil", "ceil"), ("Cos", "cos"),
    ("Cosh", "cosh"), ("Erf", "erf"), ("Exp", "exp"), ("Floor", "floor"),
    ("Log", "log"), ("Reciprocal", "reciprocal"), ("Round", "round"), ("Sin", "sin"),
    ("Sinh", "sinh"), ("Sqrt", "sqrt"), ("Tan", "tan"), ("Tanh", "tanh"),
    ("IsNaN", "isnan"),
):  # fmt: skip
    # before version 6 some had an attribute that only spoke of memory
    _each(_op, _name, FLOATS, 6)
_each("Not", "logical_not", BOOL)


@operator("Abs", since=6, types=NUMBERS)
def absolute(torch: Any, x: Any) -> Any:
    return x if _is_unsigned(torch, x) else torch.abs(x)


@operator("Neg", since=6, types=NUMBERS)
def negate(torch: Any, x: Any) -> Any:
    return in_signed(torch, torch.neg, x)


@operator("Sign", since=9, types=NUMBERS)
def sign(torch: Any, x: Any) -> Any:
    if _is_unsigned(torch, x):
        return (x != 0).to(x.dtype)
    found = torch.sign(x)
    # torch has 0 for NaN
    return torch.where(torch.isnan(x), x, found) if x.is_floating_point() else found


def _is_unsigned(torch: Any, x: Any) -> bool:
    return x.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def _fold(op_type: str, name: str, since: int) -> None:
    """Declare an operator of any number of inputs that keeps one of each elements."""

    def function(torch: Any, *tensors: Any) -> Any:
        dtype = tensors[0].dtype
        found = functools.reduce(
            getattr(torch, name), (in_order(torch, each) for each in tensors)
        )
        return out_of_order(torch, found, dtype)

    operator(op_type, since=since, types=NUMBERS)(function)


_fold("Max", "maximum", 8)
_fold("Min", "minimum", 8)


@operator("Sum", since=8, types=FLOATS)
def total(torch: Any, *tensors: Any) -> Any:
    return functools.reduce(torch.add, tensors)


@operator("Mean", since=8, types=FLOATS)
def mean(torch: Any, *tensors: Any) -> Any:
    return in_float32(
        torch, lambda *each: functools.reduce(torch.add, each) / len(each), *tensors
    )


@operator("Clip", since=6, until=10, types=FLOATS)
def clip_by_attributes(
    torch: Any,
    x: Any,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Any:
    return torch.clamp(x, min, max)


@operator("Clip", since=11, types=NUMBERS, host=(1, 2))
def clip(torch: Any, x: Any, low: Any | None = None, high: Any | None = None) -> Any:
    low, high = _number(low, "min"), _number(high, "max")
    if low is None and high is None:
        return x
    if x.dtype in (torch.uint16, torch.uint32):
        return torch.clamp(x.to(torch.int64), low, high).to(x.dtype)
    if x.dtype == torch.uint64:
        least = torch.iinfo(torch.int64).min
        bounds = [None if each is None else each + least for each in (low, high)]
        return out_of_order(
            torch, torch.clamp(in_order(torch, x), *bounds), torch.uint64
        )
    return torch.clamp(x, low, high)


def _number(value: Any, what: str) -> Any:
    """A bound; of several numbers ONNX has none."""
    while isinstance(value, list | tuple):
        if len(value) != 1:
            raise ValueError(f"{what} holds {len(value)} numbers; expected one")
        (value,) = value
    return value


def _comparison(op_type: str, name: str, since: int, types: Any) -> None:
    def function(torch: Any, x: Any, y: Any) -> Any:
        return getattr(torch, name)(in_order(torch, x), in_order(torch, y))

    operator(op_type, since=since, types=types)(function)


_comparison("Equal", "eq", 7, NUMBERS | BOOL)
_comparison("Greater", "gt", 7, NUMBERS)
_comparison("GreaterOrEqual", "ge", 12, NUMBERS)
_comparison("Less", "lt", 7, NUMBERS)
_comparison("LessOrEqual", "le", 12, NUMBERS)


def _binary(op_type: str, name: str, since: int, types: Any) -> None:
    def function(torch: Any, x: Any, y: Any) -> Any:
        return in_signed(torch, getattr(torch, name), x, y)

    operator(op_type, since=since, types=types)(function)


_binary("And", "logical_and", 7, BOOL)
_binary("Or", "logical_or", 7, BOOL)
_binary("Xor", "logical_xor", 7, BOOL)
_binary("BitwiseAnd", "bitwise_and", 18, INTEGERS)
_binary("BitwiseOr", "bitwise_or", 18, INTEGERS)
_binary("BitwiseXor", "bitwise_xor", 18, INTEGERS)


@operator("BitwiseNot", since=18, types=INTEGERS)
def invert(torch: Any, x: Any) -> Any:
    return in_signed(torch, torch.bitwise_not, x)


@operator("BitShift", since=11, types=INTEGERS)
def shift(torch: Any, x: Any, y: Any, *, direction: str) -> Any:
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction is {direction!r}; expected LEFT or RIGHT")
    dtype, bits = x.dtype, 8 * x.element_size()
    wide, by = x.to(torch.int64), y.to(torch.int64)
    outside = (by < 0) | (by >= bits)
    by = torch.where(outside, 0, by)
    if direction == "LEFT":
        found = wide << by
    elif x.dtype.is_signed:  # of which the sign comes in from above
        return (wide >> torch.where(outside, bits - 1, by)).to(dtype)
    else:
        # what comes in from above is 0, be the number negative in int64 or not
        mask = torch.where(by == 0, -1, ~(torch.full_like(by, -1) << (64 - by) % 64))
        found = (wide >> by) & mask
    return torch.where(outside, 0, found).to(dtype)


@operator("IsInf", since=10, types=FLOATS)
def is_infinite(
    torch: Any, x: Any, *, detect_negative: int = 1, detect_positive: int = 1
) -> Any:
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if detect_positive:
        return torch.isposinf(x)
    return torch.isneginf(x) if detect_negative else torch.zeros_like(x, dtype=bool)


@operator("Where", since=9, types=TENSOR_TYPES, other={0: BOOL})
def where(torch: Any, condition: Any, x: Any, y: Any) -> Any:
    return torch.where(condition, x, y)
