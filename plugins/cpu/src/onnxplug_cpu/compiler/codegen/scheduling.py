"""Orders that LLVM's scheduler of instructions keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import PTR, Function, Value
from onnxplug_cpu.compiler.machine.isa import Isa

_REGISTER_BYTES: Final = (16, 32, 64)


def known_after(
    f: Function, isa: Isa, pointers: Sequence[Value], values: Sequence[Value]
) -> list[Value]:
    """*pointers*, which LLVM takes to be known only when vectors are.

    It loads as early as it can, and spills what there are no registers for.  Where a
    vector is not one of whole registers, the pointers are given as they are.
    """
    registers = []
    for value in values:
        lanes = isa.vector_bytes // value.type.scalar.nbytes
        for first in range(0, value.type.lanes, lanes):
            part = range(first, min(first + lanes, value.type.lanes))
            # of anything else as an operand LLVM would end the process
            if len(part) * value.type.scalar.nbytes not in _REGISTER_BYTES:
                return list(pointers)
            registers.append(f.shuffle(value, value, part))
    constraint = ",w" if isa.name == "neon" else ",x"
    constraints = constraint * len(registers)
    operands = "".join(f", {register}" for register in registers)
    return [
        f.instruction(PTR, f'call ptr asm "", "=r,0{constraints}"({pointer}{operands})')
        for pointer in pointers
    ]


def opaque(f: Function, value: Value) -> Value:
    """*value*, whose origin LLVM cannot see.

    Its loop strength reduction would otherwise compute each row's address from the row
    before, an addition for every multiplication.
    """
    text = value.type.text
    return f.instruction(value.type, f'call {text} asm "", "=r,0"({value})')
