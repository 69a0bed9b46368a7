"""Products of bytes that are added up, four at a time, in lanes of i32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I16, I32, Function, Type, Value
from onnxplug_cpu.compiler.codegen.integer_products import (
    SIGNED,
    UNSIGNED,
    add_quads,
    quad_elements,
    saturates,
)
from onnxplug_cpu.compiler.machine.isa import Isa

_MADD_BYTES: Final = {
    32: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.ssse3.pmadd.ub.sw.128",
}
_MADD_WORDS: Final = {32: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.sse2.pmadd.wd"}
"""``vpmaddubsw`` and ``vpmaddwd`` by the bytes of a register."""

LARGEST_PAIR: Final = 32767
"""What two products may add up to at most, and all pairs of one lane together."""


def multiplies_fours(isa: Isa) -> bool:
    """Whether one instruction adds four products of bytes, of any size, to each lane of
    up to 64 bytes."""
    return isa.has("avx512vnni")


def add_fours(
    f: Function, isa: Isa, pairs: Sequence[tuple[Value, Value]], total: Value
) -> Value:
    """*total* and the products of bytes, four neighbours in each lane of i32.

    Args:
        pairs: bytes without a sign, and bytes with one; of the same lane, two products
            next to each other of all pairs together are within :data:`LARGEST_PAIR`,
            unless :func:`multiplies_fours`.
    """
    nbytes = pairs[0][0].type.lanes
    elements = () if saturates(isa) else quad_elements(isa)
    if elements:
        for unsigned, signed in pairs:
            left, right = (f.bitcast(each, total.type) for each in (unsigned, signed))
            if UNSIGNED in elements:
                total = add_quads(f, isa, left, right, total)
                continue
            # as what it is above -128, whose products are taken away again
            left = f.bitcast(unsigned ^ 128, total.type)
            total = add_quads(f, isa, left, right, total, SIGNED)
            least = f.bitcast(f.value(128, unsigned.type), total.type)
            above = add_quads(f, isa, least, right, f.zero(total.type), SIGNED)
            total = total - above
        return total
    if isa.name in ("avx2", "avx512") and nbytes in _MADD_BYTES:
        half = I16.vector(nbytes // 2)
        words = [f.intrinsic(half, _MADD_BYTES[nbytes], u, s) for u, s in pairs]
        while len(words) > 1:
            words = [
                words[i] + words[i + 1] if i + 1 < len(words) else words[i]
                for i in range(0, len(words), 2)
            ]
        ones = f.value(1, half)
        return total + f.intrinsic(total.type, _MADD_WORDS[nbytes], words[0], ones)
    for unsigned, signed in pairs:
        wide = I32.vector(nbytes)
        products = f.convert(unsigned, wide) * f.convert(signed, wide)
        for part in range(4):
            lanes = range(part, nbytes, 4)
            total = total + f.shuffle(products, products, lanes)
    return total


def magnitude(f: Function, isa: Isa, value: Value, of: Value) -> tuple[Value, Value]:
    """Bytes *value* without their signs, and bytes *of* with these: the products stay.

    No byte of *of* may be -128.
    """
    lanes = value.type.lanes
    if isa.name in ("avx2", "avx512") and lanes == 32:
        signed = f.intrinsic(of.type, "llvm.x86.avx2.psign.b", of, value)
    else:
        zero = f.zero(value.type)
        signed = f.select(value < zero, -of, of)
    size = f.intrinsic(
        value.type,
        f"llvm.abs.{value.type.suffix}",
        value,
        Value(f, "false", Type("i1")),
    )
    return f.bitcast(size, value.type.of("u8")), signed
