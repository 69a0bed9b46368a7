"""Arithmetic, rounding, limits and powers as instructions."""

from __future__ import annotations

import functools
import math as numbers
from typing import Final

import numpy as np

from onnxplug_cpu.compiler.codegen import math
from onnxplug_cpu.compiler.codegen.emit import I64, Value
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments, Literal


def add(a: Arguments) -> Value:
    return a.x + a.y


def sub(a: Arguments) -> Value:
    return a.x - a.y


def mul(a: Arguments) -> Value:
    return a.x * a.y


def div(a: Arguments) -> Value:
    """Integers: truncated toward zero; by zero gives 0."""
    if not a.x.type.is_float:
        return _quotient(a)
    if isinstance(a.y, Literal) and _is_power_of_two(a.y.number):
        # the reciprocal is exact, so the product rounds as the quotient does
        return a.x * (1 / a.y.number)
    return a.x / a.y


def mod(a: Arguments) -> Value:
    """Of integers: with the divisor's sign, or the dividend's for ``fmod``; by zero
    gives 0."""
    x, y = a.x, a.y
    rest = a.f.select(y.compare("ne", 0), x - _quotient(a) * y, 0)
    if a.attributes.get("fmod", 0) or not x.type.is_signed:
        return rest
    other_sign = ((rest ^ y) < 0) & rest.compare("ne", 0)
    return a.f.select(other_sign, rest + y, rest)


def _is_power_of_two(number: float) -> bool:
    return (
        numbers.isfinite(number)
        and abs(numbers.frexp(number)[0]) == 0.5
        and 2.0**-100 < abs(number) < 2.0**100
    )


def _quotient(a: Arguments) -> Value:
    """The truncated quotient of integers without the processor's traps."""
    f, x = a.f, a.x
    divisor = f.select(a.y.compare("ne", 0), a.y, 1)
    if x.type.bits == 64:
        if x.type.is_signed:
            # the smallest number by -1 overflows, which traps
            minus = divisor.compare("eq", -1)
            quotient = f.select(
                minus, 0 - x, x // f.select(minus, f.value(1, x.type), divisor)
            )
        else:
            quotient = x // divisor
    else:
        # the float quotient of numbers with so few bits is right after truncation
        float_ = x.type.of("f64" if x.type.bits == 32 else "f32")
        whole = x.type.of("i64" if x.type.bits == 32 else "i32")
        ratio = f.convert(x, float_) / f.convert(divisor, float_)
        quotient = f.convert(f.convert_finite(ratio, whole), x.type)
    return f.select(a.y.compare("ne", 0), quotient, 0)


def negate(a: Arguments) -> Value:
    return -a.x


def absolute(a: Arguments) -> Value:
    x = a.x
    if x.type.is_float:
        return a.f.unary("fabs", x)
    return a.f.select(x < 0, 0 - x, x) if x.type.is_signed else x


def sign(a: Arguments) -> Value:
    """NaN stays NaN, and both zeros give 0."""
    f, x = a.f, a.x
    result = f.select(x.compare("eq", 0), f.zero(x.type), x)
    if x.type.is_signed or x.type.is_float:
        result = f.select(x < 0, f.value(-1, x.type), result)
    return f.select(x > 0, f.value(1, x.type), result)


def square_root(a: Arguments) -> Value:
    return a.f.unary("sqrt", a.x)


def reciprocal(a: Arguments) -> Value:
    return 1.0 / a.x


def floor(a: Arguments) -> Value:
    return a.f.unary("floor", a.x)


def ceiling(a: Arguments) -> Value:
    return a.f.unary("ceil", a.x)


def round_to_even(a: Arguments) -> Value:
    return a.f.unary("roundeven", a.x)


def larger(a: Arguments, x: Value, y: Value) -> Value:
    """NaN if either is."""
    return _extreme(a, x, y, "gt")


def smaller(a: Arguments, x: Value, y: Value) -> Value:
    """NaN if either is."""
    return _extreme(a, x, y, "lt")


def _extreme(a: Arguments, x: Value, y: Value, predicate: str) -> Value:
    f = a.f
    if not x.type.is_float:
        return f.maximum(x, y) if predicate == "gt" else f.minimum(x, y)
    if isinstance(y, Literal) and not y.is_nan:
        x, y = y, x
    chosen = f.select(x.compare(predicate, y), x, y)
    if isinstance(x, Literal) and not x.is_nan:
        return chosen
    return f.select(x.compare("ne", x), x, chosen)


def maximum(a: Arguments) -> Value:
    return functools.reduce(lambda x, y: larger(a, x, y), a.present)


def minimum(a: Arguments) -> Value:
    return functools.reduce(lambda x, y: smaller(a, x, y), a.present)


def total(a: Arguments) -> Value:
    return functools.reduce(lambda x, y: x + y, a.present)


def mean(a: Arguments) -> Value:
    count = len(a.present)
    if _is_power_of_two(count):
        return total(a) * (1 / count)
    return total(a) / count


def clip(a: Arguments) -> Value:
    """A limit that is left out is the type's, so that infinities become finite."""
    lowest, highest = _limits(a.element)
    low, high = (
        a.operands[position] if position < len(a.operands) else None
        for position in (1, 2)
    )
    x = a.x
    if low is not None or lowest is not None:
        limit = low or Literal(a.f.value(lowest or 0, x.type), lowest or 0)
        x = larger(a, x, limit)
    if high is not None or highest is not None:
        limit = high or Literal(a.f.value(highest or 0, x.type), highest or 0)
        x = smaller(a, x, limit)
    return x


def _limits(element: str) -> tuple[float | None, float | None]:
    """The finite limits of floats; integers have none that matter."""
    largest = _LARGEST.get(element)
    return (None, None) if largest is None else (-largest, largest)


_LARGEST: Final = {
    "f16": 65504.0,
    "bf16": float.fromhex("0x1.FEp127"),
    "f32": float(np.finfo(np.float32).max),
    "f64": float(np.finfo(np.float64).max),
}


def power(a: Arguments) -> Value:
    x, y = a.x, a.y
    if not x.type.is_float:
        return _integer_power(a)
    if isinstance(y, Literal):
        inline = _inline_power(a, y.number)
        if inline is not None:
            return inline
    return math.power(a.f, a.isa, x, y)


def _inline_power(a: Arguments, exponent: float) -> Value | None:
    """Exponents for which instructions are at least as accurate as a power."""
    f, x = a.f, a.x
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == -1:
        return 1.0 / x
    if exponent == 0.5:
        # unlike a root's, this power of -0 is 0, and of -infinity infinity
        root = f.unary("sqrt", x) + 0.0
        infinity = f.value(numbers.inf, x.type)
        return f.select(x.compare("eq", -numbers.inf), infinity, root)
    return None


def _integer_power(a: Arguments) -> Value:
    """Modulo the type's range; negative exponents truncate toward zero."""
    f, x, y = a.f, a.x, a.y
    size = f.select(y < 0, 0 - y, y) if y.type.is_signed else y
    one = f.value(1, x.type)
    if isinstance(y, Literal):
        power = _repeated(x, abs(int(y.number)), one)
    else:

        def turn(_: Value, result: Value, factor: Value, left: Value) -> list[Value]:
            odd = (left & 1).compare("ne", 0)
            unsigned = f.bitcast(left, left.type.of(f"u{left.type.bits}"))
            return [
                f.select(odd, result * factor, result),
                factor * factor,
                f.bitcast(unsigned >> 1, left.type),
            ]

        turns = f.value(y.type.bits, I64)
        power = f.loop(turns, turn, [one, x, size], nonempty=True)[0]
    if not y.type.is_signed:
        return power
    unit = x.compare("eq", 1)
    if x.type.is_signed:
        unit = unit | x.compare("eq", -1)
    return f.select((y < 0) & ~unit, f.zero(x.type), power)


def _repeated(x: Value, exponent: int, one: Value) -> Value:
    result, factor = one, x
    while exponent:
        if exponent & 1:
            result = factor if result is one else result * factor
        exponent >>= 1
        if exponent:
            factor = factor * factor
    return result
