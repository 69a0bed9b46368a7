"""Products of narrow integers that are added up, a few at a time, in lanes of i32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I16, I32, Function, Value
from onnxplug_cpu.compiler.machine.isa import Isa

_MADD: Final = {
    64: "llvm.x86.avx512.pmaddw.d.512",
    32: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.sse2.pmadd.wd",
}
"""``vpmaddwd`` by the bytes of a register."""

_LARGEST: Final = {"avx512": 64, "avx2": 32, "generic": 16}


def add_pairs(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a0 * b0 + a1 * b1 + c`` for each lane of i32, of which *a* and *b* have two
    integers of 16 bits with a sign, the first in the lower half.

    The sum wraps; that of the two products does not, unless all four are -32768.
    """
    largest = _LARGEST.get(isa.name)
    if largest is None:
        low = _low(a) * _low(b)
        return low + (a >> 16) * (b >> 16) + c
    return _in_registers(f, largest, _multiply_pairs, a, b) + c


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
