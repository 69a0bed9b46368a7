"""``a * b + c`` rounded once, for processors that have no instruction for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.value import Value

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function

_SPLITTER: Final = 2.0**27 + 1
"""Times it, a float64 leaves its upper 26 bits (Veltkamp 1968)."""


def multiply_add(f: Function, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c`` of f32 or f64, within half a unit in the last place and 2⁻²⁸ of
    one; exactly, if the type has it."""
    if a.type.element == "f32":
        # no product of two has more bits than an f64
        a, b, c = (f.convert(each, each.type.of("f64")) for each in (a, b, c))
        return f.convert(a * b + c, a.type.of("f32"))
    product, lost = _exact_product(a, b)
    total = product + c
    # what the sum rounds off (Knuth, "The Art of Computer Programming", 4.2.2)
    back = total - product
    rest = (product - (total - back)) + (c - back)
    result = total + (rest + lost)
    # parts of what is infinite, or nearly, are no numbers
    return f.select(result.compare("eq", result), result, total)


def _exact_product(a: Value, b: Value) -> tuple[Value, Value]:
    """A product of f64, and what its rounding lost (Dekker, "A floating-point technique
    for extending the available precision", 1971)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    lost = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    return product, lost


def _halves(x: Value) -> tuple[Value, Value]:
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high
