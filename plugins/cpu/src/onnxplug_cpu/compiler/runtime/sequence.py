"""Commands one after another, natively: those of a program, and those within one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnxplug_cpu.compiler.codegen.types import I1, I64, PTR
from onnxplug_cpu.compiler.runtime.pool import write_parallel

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Module, Value
    from onnxplug_cpu.compiler.machine.isa import Isa

# The first words of a program's block.
CONTROL: Final = 0
"""The address of the pool's control block; not used for one thread."""
THREADS: Final = 1
"""How many threads a command may use."""
PAUSED: Final = 2
"""1 when a command is to be called again, as it has not ended: nothing behind it is
done then, and whoever entered the program looks whether to go on."""


def word(f: Function, words: Value, index: int, type_: Any = I64) -> Value:
    """What the word of that number is."""
    return f.load(f.at(words, index, I64), type_)


def write_sequence(module: Module, name: str, isa: Isa, system: str) -> str:
    """Define ``i64 sequence(ptr block, ptr commands, i64 first, i64 last, i64 begin,
    i64 end)``: do *commands*, from the first up to, but not with, the last, of each
    its chunks from *begin* up to, but not with, *end*.

    A command is three words: its function, the address of its words, and its chunks.

    Args:
        system: how workers sleep, the :attr:`~.waits.System.name`.

    Returns:
        The function's name.  It returns *last*, or the number of a command that is
        paused.
    """
    parallel = write_parallel(module, name, isa, system)
    sequence = f"{name}.sequence"
    f = module.function(
        sequence,
        [("block", PTR), ("commands", PTR)]
        + [(n, I64) for n in ("first", "last", "begin", "end")],
        I64,
        internal=True,
        inline=False,
    )
    block, commands, first, last, begin, stop = f.parameters
    threads = word(f, block, THREADS)
    alone = threads.compare("lt", 2)

    def command(index: Value) -> tuple[Value, list[Value]]:
        entry = f.at(commands, index * 3, I64)
        function, words = f.load(entry, PTR), word(f, entry, 1, PTR)
        end = f.minimum(word(f, entry, 2), stop)

        def by_pool() -> list[Value]:
            control = word(f, block, CONTROL, PTR)
            return [
                f.intrinsic(I1, parallel, control, function, words, begin, end, threads)
            ]

        (done,) = f.branch(
            alone | (end - begin).compare("lt", 2), lambda: [f.value(0, I1)], by_pool
        )
        f.branch(done, lambda: None, lambda: by_caller(function, words, end))
        goes_on = word(f, block, PAUSED).compare("eq", 0)
        following = f.select(goes_on, index + 1, index)
        return goes_on & following.compare("lt", last), [following]

    def by_caller(function: Value, words: Value, end: Value) -> None:
        f.loop(
            end,
            lambda chunk: f.call_pointer(function, words, chunk, f.value(0, I64)),
            start=begin,
            nonempty=True,
        )

    (ended,) = f.branch(
        first.compare("lt", last),
        lambda: f.repeat(command, [first]),
        lambda: [first],
    )
    f.finish(ended)
    return sequence
