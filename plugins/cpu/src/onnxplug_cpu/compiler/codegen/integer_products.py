"""Products of narrow integers that are added up, a few at a time, in lanes of i32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import (
    I8,
    I16,
    I32,
    U32,
    Function,
    Type,
    Value,
)
from onnxplug_cpu.compiler.machine.isa import Isa

_MADD: Final = {
    64: "llvm.x86.avx512.pmaddw.d.512",
    32: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.sse2.pmadd.wd",
}
"""``vpmaddwd`` by the bytes of a register."""

_MADD_BYTES: Final = {
    64: "llvm.x86.avx512.pmaddubs.w.512",
    32: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.ssse3.pmadd.ub.sw.128",
}
"""``vpmaddubsw`` likewise."""

_LARGEST: Final = {"avx512": 64, "avx2": 32, "generic": 16}


def add_pairs(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a0 * b0 + a1 * b1 + c`` for each lane of i32, of which *a* and *b* have two
    integers of 16 bits with a sign, the first in the lower half.

    The sum wraps; that of the two products does not, unless all four are -32768.
    """
    if isa.has("avx512vnni"):
        return _dot(f, "vpdpwssd", a, b, c, I16)
    largest = _LARGEST.get(isa.name)
    if largest is None:
        low = _low(a) * _low(b)
        return low + (a >> 16) * (b >> 16) + c
    return _in_registers(f, largest, _multiply_pairs, a, b) + c


def saturates(isa: Isa) -> bool:
    """Whether :func:`add_quads` saturates sums of two products of 16 bits."""
    return isa.name in _LARGEST and not isa.has("avx512vnni")


def add_quads(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """The sum of four products and *c* for each lane of i32, of which *a* has four
    integers of 8 bits without a sign, and *b* four with one.

    It wraps; where :func:`saturates` says so, neither the sum of the first two products
    nor that of the last two must leave 16 bits.
    """
    if isa.has("avx512vnni"):
        return _dot(f, "vpdpbusd", a, b, c, I8)
    largest = _LARGEST.get(isa.name)
    if largest is not None:
        return _in_registers(f, largest, _multiply_quads, a, b) + c
    unsigned = U32.vector(a.type.lanes)
    for first in range(0, 32, 8):
        left = f.bitcast(f.bitcast(a, unsigned) >> first & 255, a.type)
        c = c + left * ((b << (24 - first)) >> 24)
    return c


def _dot(f: Function, name: str, a: Value, b: Value, c: Value, element: Type) -> Value:
    """An instruction that adds the products of each lane to *c*."""
    narrow = element.vector(c.type.lanes * I32.nbytes // element.nbytes)
    width = 8 * I32.nbytes * c.type.lanes
    factors = f.bitcast(a, narrow), f.bitcast(b, narrow)
    return f.intrinsic(c.type, f"llvm.x86.avx512.{name}.{width}", c, *factors)


def _multiply_quads(f: Function, a: Value, b: Value) -> Value:
    lanes = a.type.lanes
    octets, halves = I8.vector(4 * lanes), I16.vector(2 * lanes)
    name = _MADD_BYTES[4 * lanes]
    pairs = f.intrinsic(halves, name, f.bitcast(a, octets), f.bitcast(b, octets))
    return f.intrinsic(a.type, _MADD[4 * lanes], pairs, f.value(1, halves))


def _low(value: Value) -> Value:
    return (value << 16) >> 16


def _multiply_pairs(f: Function, a: Value, b: Value) -> Value:
    type_ = a.type
    halves = I16.vector(2 * type_.lanes)
    name = _MADD[4 * type_.lanes]
    return f.intrinsic(type_, name, f.bitcast(a, halves), f.bitcast(b, halves))


def _in_registers(
    f: Function,
    nbytes: int,
    operation: Callable[[Function, Value, Value], Value],
    a: Value,
    b: Value,
) -> Value:
    """The results of an operation on parts of *nbytes* at most, side by side."""
    lanes = nbytes // I32.nbytes
    if a.type.lanes <= lanes:
        return operation(f, a, b)
    half = a.type.lanes // 2
    low, high = (
        _in_registers(
            f, nbytes, operation, f.shuffle(a, a, part), f.shuffle(b, b, part)
        )
        for part in (range(half), range(half, 2 * half))
    )
    return f.shuffle(low, high, range(2 * half))
