"""Memory that threads share: what they write is seen in one order by all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.codegen.types import I1, I32, I64, Type

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Operand, Value
    from onnxplug_cpu.compiler.machine.isa import Isa


def load(f: Function, pointer: Value, type_: Type) -> Value:
    """What is there now."""
    return f.instruction(
        type_, f"load atomic {type_.text}, {pointer} seq_cst, align {type_.nbytes}"
    )


def exchange(f: Function, pointer: Value, value: Value) -> Value:
    """Write *value* and give what was there."""
    return f.instruction(value.type, f"atomicrmw xchg {pointer}, {value} seq_cst")


def replace(f: Function, pointer: Value, before: Value, after: Value) -> Value:
    """Write the i64 *after* if *before* is there; whether it was."""
    swap = f.instruction(I64, f"cmpxchg {pointer}, {before}, {after} seq_cst seq_cst")
    return f.instruction(I1, f"extractvalue {{ i64, i1 }} {swap.text}, 1")


def add(f: Function, pointer: Value, count: Operand) -> None:
    """Add to an i64; what was written before is seen by who sees that."""
    f.instruction(I64, f"atomicrmw add {pointer}, {f.value(count, I64)} acq_rel")


def pause(f: Function, isa: Isa) -> None:
    """Wait for as short as can be, in a loop that waits for another thread."""
    if isa.triple.startswith("aarch64"):
        f.call_void("llvm.aarch64.hint", f.value(1, I32))  # yield
    else:
        f.call_void("llvm.x86.sse2.pause")
