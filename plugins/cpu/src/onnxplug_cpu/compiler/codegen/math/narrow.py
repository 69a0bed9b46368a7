"""f16 and bf16 as f32: conversions, and rounding of what was computed in f32."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.machine.isa import Isa


def from_f16(f: Function, isa: Isa, bits: Value) -> Value:
    """f16, as u16, exactly as f32."""
    if has_f16(isa):
        return f.convert(f.bitcast(bits, bits.type.of("f16")), bits.type.of("f32"))
    wide = f.convert(bits, bits.type.of("u32"))
    sign = (wide & 0x8000) << 16
    # the exponent is corrected by a multiplication, which takes denormals along
    size = f.bitcast((wide & 0x7FFF) << 13, bits.type.of("f32")) * 2.0**112
    exponent = f.value(0x7F800000, wide.type)
    special = (wide & 0x7C00).compare("eq", 0x7C00)
    size_bits = f.bitcast(size, wide.type)
    finite = f.select(special, size_bits | exponent, size_bits)
    return f.bitcast(finite | sign, bits.type.of("f32"))


def f16_bits(f: Function, isa: Isa, x: Value) -> Value:
    """f32 rounded to f16, to even on a tie, as u16."""
    if has_f16(isa):
        return f.bitcast(f.convert(x, x.type.of("f16")), x.type.of("u16"))
    type_ = x.type.of("u32")
    bits = f.bitcast(x, type_)
    sign = (bits >> 16) & 0x8000
    size = bits & 0x7FFFFFFF
    number = f.bitcast(size, x.type)
    # adding 1/2 leaves a denormal result's bits at the low end, rounded
    denormal = f.bitcast(number + 0.5, type_) - 0x3F000000
    rounded = size + 0xFFF + ((size >> 13) & 1)
    normal = (rounded >> 13) - (112 << 10)
    result = f.select(size < (113 << 23), denormal, normal)
    result = f.select(size >= 0x477FF000, f.value(0x7C00, type_), result)
    result = f.select(size > 0x7F800000, f.value(0x7E00, type_), result)
    return f.convert(result | sign, x.type.of("u16"))


def from_bf16(f: Function, bits: Value) -> Value:
    """bf16, as u16, exactly as f32."""
    wide = f.convert(bits, bits.type.of("u32")) << 16
    return f.bitcast(wide, bits.type.of("f32"))


def widened(f: Function, isa: Isa, bits: Value, element: str) -> Value:
    """*element*, f16 or bf16, as u16, exactly as f32."""
    return from_f16(f, isa, bits) if element == "f16" else from_bf16(f, bits)


def bf16_bits(f: Function, x: Value) -> Value:
    """f32 that a bf16 can hold, as u16."""
    bits = f.bitcast(x, x.type.of("u32")) >> 16
    return f.convert(bits, x.type.of("u16"))


def rounded(f: Function, isa: Isa, x: Value, element: str) -> Value:
    """f32 rounded to what *element* can hold, to even on a tie."""
    if element == "f16":
        return from_f16(f, isa, f16_bits(f, isa, x))
    if element != "bf16":
        return x
    bits = f.bitcast(x, x.type.of("u32"))
    even = bits + 0x7FFF + ((bits >> 16) & 1)
    # the carry must not turn a NaN into an infinity
    quiet = bits | 0x400000
    chosen = f.select(x.compare("ne", x), quiet, even)
    return f.bitcast(chosen & ~0xFFFF, x.type)


def narrowed(f: Function, isa: Isa, x: Value, element: str) -> Value:
    """f32 rounded to *element*, f16 or bf16, to even on a tie, as u16."""
    if element == "f16":
        return f16_bits(f, isa, x)
    return bf16_bits(f, rounded(f, isa, x, element))


def rounded_to_odd(f: Function, x: Value) -> Value:
    """f64 as that f32 neighbour whose last bit is set, if f32 does not have it.

    Rounding it once more gives what rounding *x* once would have given (Boldo and
    Melquiond, "When double rounding is odd", 2005).
    """
    nearest = f.convert(x, x.type.of("f32"))
    back = f.convert(nearest, x.type)
    bits = f.bitcast(nearest, x.type.of("i32"))
    # away from zero where the nearest one is nearer to it: its bits count up
    size, back_size = f.unary("fabs", x), f.unary("fabs", back)
    step = f.select(size > back_size, f.value(1, bits.type), -1)
    inexact = x.compare("ne", back) & x.compare("eq", x)
    even = (bits & 1).compare("eq", 0)
    return f.bitcast(f.select(inexact & even, bits + step, bits), nearest.type)


def has_f16(isa: Isa) -> bool:
    """Whether the processor has instructions that convert f16."""
    return isa.has("f16c") or isa.name == "neon"
