"""Sorts slots by the experts that they are of, into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.codegen.emit import I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


class _Words(KernelWords):
    chosen: Pointer
    slots: Integer
    of_row: Integer
    numbers: Integer
    block: Integer
    next: Pointer
    rows: Pointer
    places: Pointer
    experts: Pointer
    used: Pointer


class Assign(Generator):
    """Counts the slots of each expert, and puts them one after another; one chunk.

    Its words are those of ``ir.experts.Assignment``, with *slots* of which a row has
    *of_row*, *numbers* of experts, places of a *block*, and *next*, memory for as many
    integers as there are experts.
    """

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _Words(module, name)
        k.keep(_Words.names)
        f, zero = k.function, k.function.value(0, I64)

        def expert_of(slot: Value) -> Value:
            """Where what is known of a slot's expert is."""
            return f.at(k.next, f.load(f.at(k.chosen, slot, I64), I64), I64)

        def add(slot: Value) -> None:
            place = expert_of(slot)
            f.store(f.load(place, I64) + 1, place)

        def begin(expert: Value, first: Value) -> list[Value]:
            """Give an expert its blocks, from the first on."""
            place = f.at(k.next, expert, I64)
            end = first + (f.load(place, I64) + (k.block - 1)) // k.block
            f.store(first * k.block, place)
            f.loop(
                end,
                lambda number: f.store(expert, f.at(k.experts, number, I64)),
                start=first,
            )
            return [end]

        def put(slot: Value) -> None:
            at = expert_of(slot)
            place = f.load(at, I64)
            f.store(place + 1, at)
            f.store(slot // k.of_row, f.at(k.rows, place, I64))
            f.store(place, f.at(k.places, slot, I64))

        f.loop(k.numbers, lambda each: f.store(zero, f.at(k.next, each, I64)))
        f.loop(k.slots, add)
        (used,) = f.loop(k.numbers, begin, [zero])
        f.store(used, k.used)
        f.loop(used * k.block, lambda each: f.store(zero, f.at(k.rows, each, I64)))
        f.loop(k.slots, put)
        f.finish()
