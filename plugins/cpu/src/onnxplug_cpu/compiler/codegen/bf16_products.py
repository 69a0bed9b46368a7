"""Products of pairs of bfloat16 that are added up in lanes of float32."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, Function, Type, Value
from onnxplug_cpu.compiler.machine.isa import Isa

_BF16 = Type("bf16")


def add_bf16_pairs(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a0 * b0 + (a1 * b1 + c)`` for each lane of f32, of which *a* and *b* have two
    bfloat16 in 32 bits, the first in the lower half.

    Where the processor has an instruction (Intel, Software Developer's Manual,
    ``VDPBF16PS``), denormals count as zero, in and out.
    """
    lanes = c.type.lanes
    if isa.has("avx512bf16"):
        pairs = _BF16.vector(2 * lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return f.intrinsic(c.type, name, c, f.bitcast(a, pairs), f.bitcast(b, pairs))
    wide = F32.vector(lanes)
    high = (f.bitcast(each & 0xFFFF_0000, wide) for each in (a, b))
    low = (f.bitcast(each << 16, wide) for each in (a, b))
    for left, right in (tuple(high), tuple(low)):
        c = f.fma(left, right, c) if isa.fuses else left * right + c
    return c
