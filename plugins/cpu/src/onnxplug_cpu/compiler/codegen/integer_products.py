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
"""Bytes of a register of these."""

UNSIGNED: Final = "u8"
SIGNED: Final = "i8"
"""What the first factor of :func:`add_quads` may have."""


def add_pairs(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a0 * b0 + a1 * b1 + c`` for each lane of i32, of which *a* and *b* have two
    integers of 16 bits with a sign, the first in the lower half.

    The sum wraps; that of the two products does not, unless all four are -32768.
    """
    vnni = _vnni_bytes(isa)
    if vnni:
        return _in_registers(f, vnni, _dot("vpdpwssd", I16), c, a, b)
    largest = _LARGEST.get(isa.name)
    if largest is None:
        low = _low(a) * _low(b)
        return low + (a >> 16) * (b >> 16) + c
    return _in_registers(f, largest, _multiply_pairs, a, b) + c


def quad_elements(isa: Isa) -> tuple[str, ...]:
    """What the first factor of :func:`add_quads` may have, where instructions multiply
    quads: :data:`UNSIGNED`, :data:`SIGNED` or both."""
    if isa.name in ("avx512", "avx2"):
        return (UNSIGNED,)
    if isa.has("i8mm"):
        return UNSIGNED, SIGNED
    return (SIGNED,) if isa.has("dotprod") else ()


def instruction_for_bytes(isa: Isa, element: str) -> str:
    """What multiplies quads of which the first have such an element, as manuals call
    it."""
    is_signed = element == SIGNED
    if isa.multiplies_byte_tiles:
        return "TDPBSSD" if is_signed else "TDPBUSD"
    if multiplies_squares(isa):
        return "SMMLA" if is_signed else "USMMLA"
    if isa.has("dotprod"):
        return "SDOT"
    return "VPDPBUSD" if _vnni_bytes(isa) else "VPMADDUBSW"


def multiplies_squares(isa: Isa) -> bool:
    """Whether instructions multiply two rows of eight bytes with two columns."""
    return isa.has("i8mm")


def saturates(isa: Isa) -> bool:
    """Whether :func:`add_quads` saturates sums of two products of 16 bits."""
    return isa.name in _LARGEST and not _vnni_bytes(isa)


def instructions(isa: Isa, *, quads: bool) -> int:
    """How many :func:`add_quads`, or :func:`add_pairs`, takes for a register, on
    x86-64."""
    if _vnni_bytes(isa):
        return 1
    return 3 if quads else 2


def add_quads(
    f: Function, isa: Isa, a: Value, b: Value, c: Value, element: str = UNSIGNED
) -> Value:
    """The sum of four products and *c* for each lane of i32, of which *a* has four
    integers of 8 bits, and *b* four with a sign.

    It wraps; where :func:`saturates` says so, neither the sum of the first two products
    nor that of the last two must leave 16 bits.

    Args:
        element: of *a*; one of :func:`quad_elements` is fast.
    """
    if element in quad_elements(isa):
        vnni = _vnni_bytes(isa)
        if vnni:
            return _in_registers(f, vnni, _dot("vpdpbusd", I8), c, a, b)
        if isa.name not in _LARGEST:
            name = "sdot" if element == SIGNED else "usdot"
            return _in_registers(f, 16, _arm_dot(name), c, a, b)
    largest = _LARGEST.get(isa.name)
    if largest is not None and element == UNSIGNED:
        return _in_registers(f, largest, _multiply_quads, a, b) + c
    for first in range(0, 32, 8):
        c = c + _byte(f, a, first, element) * _byte(f, b, first, SIGNED)
    return c


def _byte(f: Function, quads: Value, first: int, element: str) -> Value:
    """The byte of each lane that begins at a bit."""
    if element == SIGNED:
        return (quads << (24 - first)) >> 24
    unsigned = U32.vector(quads.type.lanes)
    return f.bitcast(f.bitcast(quads, unsigned) >> first & 255, quads.type)


def _vnni_bytes(isa: Isa) -> int:
    """Of the largest register whose products one instruction adds; 0 if none does."""
    if isa.has("avx512vnni"):
        return 64
    return 32 if isa.has("avxvnni") else 0


_Operation = Callable[..., Value]
"""Emits what is done with parts of some values, given after the function."""


def _dot(name: str, element: Type) -> _Operation:
    """What adds the products of each lane to the first of three."""

    def dot(f: Function, c: Value, a: Value, b: Value) -> Value:
        narrow = element.vector(c.type.lanes * I32.nbytes // element.nbytes)
        width = 8 * I32.nbytes * c.type.lanes
        factors = f.bitcast(a, narrow), f.bitcast(b, narrow)
        return f.intrinsic(c.type, f"llvm.x86.avx512.{name}.{width}", c, *factors)

    return dot


def _arm_dot(name: str) -> _Operation:
    """The same of aarch64, for whole registers."""

    def dot(f: Function, c: Value, a: Value, b: Value) -> Value:
        lanes = c.type.lanes
        octets = I8.vector(I32.nbytes * lanes)
        factors = f.bitcast(a, octets), f.bitcast(b, octets)
        kind = f"v{lanes}i32.v{I32.nbytes * lanes}i8"
        return f.intrinsic(c.type, f"llvm.aarch64.neon.{name}.{kind}", c, *factors)

    return dot


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
    f: Function, nbytes: int, operation: _Operation, *values: Value
) -> Value:
    """The results of an operation on parts of *nbytes* at most, side by side."""
    lanes, all_lanes = nbytes // I32.nbytes, values[0].type.lanes
    if all_lanes <= lanes:
        return operation(f, *values)
    half = all_lanes // 2
    low, high = (
        _in_registers(
            f,
            nbytes,
            operation,
            *(f.shuffle(value, value, part) for value in values),
        )
        for part in (range(half), range(half, 2 * half))
    )
    return f.shuffle(low, high, range(2 * half))
