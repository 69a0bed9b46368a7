"""Commands that do not depend on each other as one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Code, Command, Word, Words
from onnxplug_cpu.compiler.machine.isa import Isa

_ROW = 3  # words of a part: chunks, code, words


def record_together(
    recorder: Recorder, record: Callable[[Recorder], None], *, label: str = ""
) -> None:
    """Record what *record* records, as one command.

    The workers meet once at its end and not after each part, so no part may read
    what another writes.  Parts of one chunk each run on one worker.

    Args:
        record: records the parts, into the recorder that it is given.
        label: the command's; the parts' labels by default.
    """
    inner = recorder.part()
    record(inner)
    parts = inner.commands
    if len(parts) < 2:
        recorder.commands.extend(
            part._replace(label=label or part.label) for part in parts
        )
        return
    total = sum(part.chunks for part in parts)
    # small parts are not worth another worker
    nbytes = sum(part.nbytes for part in parts)
    spread = total > len(parts) or fewest_chunks(nbytes / BYTES_PER_SECOND) > 1
    call(
        recorder,
        _SPREAD if spread else _IN_TURN,
        {"parts": len(parts), "table": Words(tuple(_table(parts)))},
        chunks=total if spread else 1,
        label=label or ", ".join(dict.fromkeys(part.label for part in parts)),
        flops=sum(part.flops for part in parts),
        nbytes=nbytes,
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )


def _table(parts: Sequence[Command]) -> list[Word]:
    table: list[Word] = []
    for part in parts:
        table += [part.chunks, Code(part.kernel), Words(part.words)]
    return table


class _Parts(Generator):
    words = ("parts", "table")


class _InTurn(_Parts):
    """Does the parts one after the other, on one worker."""

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, table = k.function, k.pointer("table")

        def part(number: Value) -> None:
            row = f.at(table, number * _ROW, I64)
            code = f.load(f.at(row, 1, I64), PTR)
            words = f.load(f.at(row, 2, I64), PTR)
            f.loop(
                f.load(row, I64),
                lambda chunk: f.call_pointer(code, words, chunk, k.worker),
            )

        f.loop(k.integer("parts"), part)
        f.finish()


class _Spread(_Parts):
    """A chunk is a chunk of one of the parts."""

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, table = k.function, k.pointer("table")

        def part(number: Value, first: Value) -> list[Value]:
            row = f.at(table, number * _ROW, I64)
            end = first + f.load(row, I64)

            def here() -> None:
                code = f.load(f.at(row, 1, I64), PTR)
                words = f.load(f.at(row, 2, I64), PTR)
                f.call_pointer(code, words, k.chunk - first, k.worker)

            inside = (k.chunk >= first) & (k.chunk < end)
            f.branch(inside, here)
            return [end]

        f.loop(k.integer("parts"), part, [f.value(0, I64)])
        f.finish()


_IN_TURN, _SPREAD = Kernel(_InTurn()), Kernel(_Spread())
