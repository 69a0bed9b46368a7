"""Writes the kernel that does commands with the addresses that a number chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.flow.turns import do_commands, is_paused
from onnxplug_cpu.compiler.runtime.sequence import word, write_sequence

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

MOST_STEPS: Final = 5
"""Words that lead from the table of commands to one of a command: its entry, and within
its words those of others that it calls."""

VARIATION_WORDS: Final = MOST_STEPS + 2
"""Of a word that varies: how many steps lead there, these, and the address of a table
of what it is for each number."""


class AlternativesWords(KernelWords):
    """The words of :class:`Alternatives`; *place* is the command that was paused."""

    block: Pointer
    number: Pointer
    commands: Pointer
    count: Integer
    variations: Pointer
    variations_count: Integer
    place: Integer


class Alternatives(Generator):
    """Writes words of commands, and does these.

    No chunk of them runs meanwhile, and each run has words of its own.

    Attributes:
        system: how workers sleep, the :attr:`~.waits.System.name`.
    """

    system: str

    @property
    def words(self) -> tuple[str, ...]:
        return AlternativesWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        sequence = write_sequence(module, name, isa, self.system)
        k = AlternativesWords(module, name)
        k.keep(("block", "number", "commands", "count", "variations"))
        f = k.function
        number = f.load(k.number, I64)

        def vary(index: Value) -> None:
            entry = f.at(k.variations, index * VARIATION_WORDS, I64)
            last = word(f, entry, 0) - 1

            def follow(step: Value, words: Value) -> list[Value]:
                at = f.load(f.at(entry, step + 1, I64), I64)
                return [f.load(f.at(words, at, I64), PTR)]

            (words,) = f.loop(last, follow, [k.commands])
            at = f.load(f.at(entry, last + 1, I64), I64)
            table = word(f, entry, MOST_STEPS + 1, PTR)
            value = f.load(f.at(table, number, I64), I64)
            f.store(value, f.at(words, at, I64))

        f.loop(k.variations_count, vary)
        place = do_commands(f, sequence, k.block, k.commands, k.place, k.count)
        k.put("place", f.select(is_paused(f, k.block), place, f.value(0, I64)))
        f.finish()
