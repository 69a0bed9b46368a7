"""Records what is computed for some of several experts.

See :class:`onnxplug_compiler.ir.experts.Experts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Buffer, Temporary
from onnxplug_compiler.ir.experts import Assignment
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Block, Code, Command, Word, Words
from onnxplug_cpu.compiler.flow.alternatives import MOST_STEPS, Alternatives
from onnxplug_cpu.compiler.flow.commands import note_of, rewritten, table_of
from onnxplug_cpu.compiler.kernels.selection.assignment import Assign
from onnxplug_cpu.compiler.runtime.pool import SYSTEM


def record_assignment(
    recorder: Recorder,
    chosen: View,
    experts: int,
    assignment: Assignment,
    *,
    label: str = "",
) -> None:
    """See ``Experts.record_assignment``.

    Raises:
        ValueError: there are so many slots that one chunk takes too long.
    """
    if fewest_chunks(10e-9 * chosen.size) > 1:
        raise ValueError(f"{label} sorts {chosen.size} slots, which takes long")
    _, block = assignment.rows.shape
    scratch = recorder.temporary(np.dtype(np.int64), (experts,))
    words: dict[str, Word] = {
        "chosen": chosen.address,
        "slots": chosen.size,
        "of_row": chosen.shape[1],
        "numbers": experts,
        "block": block,
        "next": scratch.address,
        "rows": assignment.rows.address,
        "places": assignment.places.address,
        "experts": assignment.experts.address,
        "used": assignment.used.address,
    }
    nbytes = 4 * chosen.nbytes + assignment.rows.nbytes
    call(recorder, Kernel(Assign()), words, label=label, nbytes=nbytes)


def record_alternatives(
    recorder: Recorder,
    number: View,
    alternatives: Sequence[Sequence[Command]],
    *,
    label: str = "",
) -> None:
    """See ``Experts.record_alternatives``."""
    first, *others = alternatives
    tables = [table_of(first), *(_like(first, other) for other in others)]
    if not first:
        return
    variations: list[Word] = []
    count = 0
    for path, found in _varying((), tables):
        steps = [*path, *[0] * (MOST_STEPS - len(path))]
        variations += [len(path), *steps, Words(found)]
        count += 1
    words: dict[str, Word] = {
        "block": Block(pauses=False),
        "number": number.address,
        "commands": tables[0],
        "count": len(first),
        "variations": Words(tuple(variations)) if variations else 0,
        "variations_count": count,
        "place": 0,
    }
    call(
        recorder,
        Kernel(Alternatives(SYSTEM.name)),
        words,
        label=label,
        flops=sum(command.flops for command in first),
        nbytes=sum(command.nbytes for command in first),
        note=note_of(first),
    )


def _like(first: Sequence[Command], other: Sequence[Command]) -> Word:
    """The table of *other*, with the temporary buffers of *first*."""
    mine, theirs = (_own(commands) for commands in (first, other))
    if [each.nbytes for each in mine] != [each.nbytes for each in theirs]:
        raise ValueError("alternatives want memory of different sizes")
    same: dict[Buffer, Address] = dict(zip(theirs, map(Address, mine), strict=True))
    return table_of(
        [each._replace(words=rewritten(each.words, same)) for each in other]
    )


def _own(commands: Sequence[Command]) -> list[Temporary]:
    """Temporary buffers in the order in which they are named."""
    found: dict[Temporary, None] = {}

    def look(words: Sequence[Word]) -> None:
        for word in words:
            if type(word) is Address and type(word.buffer) is Temporary:
                found.setdefault(word.buffer)
            elif type(word) is Words:
                look(word.words)

    for command in commands:
        look(command.words)
    return list(found)


def _varying(
    path: tuple[int, ...], words: Sequence[Word]
) -> Iterator[tuple[tuple[int, ...], tuple[Word, ...]]]:
    """Where addresses of alternatives are not the same, and which they are."""
    first, *others = words
    if any(type(word) is not type(first) for word in others):
        raise ValueError("alternatives are not the same commands")
    if isinstance(first, Words):
        rows = [word.words for word in words if isinstance(word, Words)]
        if any(len(row) != len(first.words) for row in rows):
            raise ValueError("alternatives are not as many commands")
        for position, each in enumerate(zip(*rows, strict=True)):
            yield from _varying((*path, position), each)
    elif any(word != first for word in others):
        if not isinstance(first, Address | Code) or len(path) > MOST_STEPS:
            raise ValueError("alternatives differ in more than in their buffers")
        yield path, tuple(words)
