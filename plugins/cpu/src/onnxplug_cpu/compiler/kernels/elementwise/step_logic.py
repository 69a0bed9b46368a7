"""Comparisons, truth values, bits, and choice as instructions."""

from __future__ import annotations

import math as numbers

from onnxplug_cpu.compiler.codegen.emit import Value
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments


def equal(a: Arguments) -> Value:
    return a.x.compare("eq", a.y)


def greater(a: Arguments) -> Value:
    return a.x.compare("gt", a.y)


def greater_or_equal(a: Arguments) -> Value:
    return a.x.compare("ge", a.y)


def less(a: Arguments) -> Value:
    return a.x.compare("lt", a.y)


def less_or_equal(a: Arguments) -> Value:
    return a.x.compare("le", a.y)


def both(a: Arguments) -> Value:
    return a.x & a.y


def either(a: Arguments) -> Value:
    return a.x | a.y


def exclusive(a: Arguments) -> Value:
    return a.x ^ a.y


def inverted(a: Arguments) -> Value:
    return ~a.x


def shifted(a: Arguments) -> Value:
    """Shifts by all bits, more, or fewer than none leave zeros or copies of the sign;
    the processor's would be undefined."""
    f, x, y = a.f, a.x, a.y
    bits = x.type.bits
    within = f.bitcast(y, y.type.of(f"u{bits}")) < bits
    left = a.attributes.get("direction") == "LEFT"
    if x.type.is_signed and not left:
        return x >> f.select(within, y, bits - 1)
    amount = y & (bits - 1)
    return f.select(within, x << amount if left else x >> amount, 0)


def is_nan(a: Arguments) -> Value:
    return a.x.compare("ne", a.x)


def is_infinite(a: Arguments) -> Value:
    x = a.x
    positive = bool(a.attributes.get("detect_positive", 1))
    negative = bool(a.attributes.get("detect_negative", 1))
    if positive and negative:
        return a.f.unary("fabs", x).compare("eq", numbers.inf)
    if not positive and not negative:
        return a.f.value(0, x.type.of("i1"))
    return x.compare("eq", numbers.inf if positive else -numbers.inf)


def where(a: Arguments) -> Value:
    return a.f.select(a.x, a.y, a.operand(2))


def identity(a: Arguments) -> Value:
    return a.x
