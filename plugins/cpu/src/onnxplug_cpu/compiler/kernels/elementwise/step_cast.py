"""Casts as instructions: the C conversions that numpy does on x86, without traps."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import Function, Type, Value
from onnxplug_cpu.compiler.codegen.lanes import held
from onnxplug_cpu.compiler.codegen.math.narrow import rounded, rounded_to_odd
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments


def cast(a: Arguments) -> Value:
    """Floats become integers by truncation; beyond 32 or 64 bits, and for NaN, the
    result is no particular number.  Integers keep their low bits."""
    f, x, type_ = a.f, a.x, held(a.element, a.x.type.lanes)
    if a.element == "i1" or x.type.element == "i1":
        return f.convert(x, type_)
    if type_.is_float:
        return _to_float(a)
    if not x.type.is_float:
        return _to_integer_of(a, x)
    if type_.element in ("u32", "u64"):
        return _to_unsigned(a, type_)
    wide = x.type.of("i64" if type_.element == "i64" else "i32")
    return _to_integer_of(a, _truncated(f, x, wide))


def _truncated(f: Function, x: Value, type_: Type) -> Value:
    """Of what is out of range any number, but the same to all that read it."""
    whole = f.convert_finite(x, type_)
    return f.instruction(type_, f"freeze {whole}")


def _to_integer_of(a: Arguments, x: Value) -> Value:
    type_ = held(a.element, x.type.lanes)
    if x.type.bits == type_.bits:
        return a.f.bitcast(x, type_)
    return a.f.convert(x, type_)


def _to_unsigned(a: Arguments, type_: Type) -> Value:
    f, x = a.f, a.x
    half = 2.0 ** (type_.bits - 1)
    large = x >= half
    signed = type_.of(f"i{type_.bits}")
    low = _truncated(f, f.select(large, x - half, x), signed)
    whole = f.select(large, low ^ -(1 << (type_.bits - 1)), low)
    return f.bitcast(whole, type_)


def _to_float(a: Arguments) -> Value:
    """Narrow floats are rounded once, but for f16 from integers, which numpy rounds
    to f32 before."""
    f, x, type_ = a.f, a.x, held(a.element, a.x.type.lanes)
    if a.element == "f64":
        return f.convert(x, type_)
    many_bits = not x.type.is_float and x.type.bits > 16
    if a.element == "bf16" and many_bits:
        if x.type.bits == 64:
            x = _to_odd_53_bits(f, x)
        x = f.convert(x, x.type.of("f64"))
    if x.type.element == "f64" and a.element != "f32":
        x = rounded_to_odd(f, x)
    return rounded(f, a.isa, f.convert(x, type_), a.element)


def _to_odd_53_bits(f: Function, x: Value) -> Value:
    """Integers of 64 bits, rounded to odd where f64 has fewer bits than they."""
    wide = x > 1 << 53
    if x.type.is_signed:
        wide = wide | (x < -(1 << 53))
    inexact = wide & (x & 0x7FF).compare("ne", 0)
    return f.select(inexact, (x & ~0x7FF) | 0x800, x)
