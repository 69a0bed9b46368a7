"""Records commands of which others are parts.

See :class:`onnxplug_compiler.ir.flow.Flow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnxplug_compiler.ir.buffers import Address, Buffer, Temporary
from onnxplug_compiler.ir.flow import Move
from onnxplug_compiler.ir.flow import Turns as TurnsOf
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.laid import Laid
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Block, Code, Command, Word, Words
from onnxplug_cpu.compiler.flow.turns import MOVE_WORDS, Choice, Turns
from onnxplug_cpu.compiler.runtime.arena import place
from onnxplug_cpu.compiler.runtime.pool import SYSTEM
from onnxplug_cpu.compiler.runtime.time_slices import BETWEEN_LOOKS, estimated_seconds

_SHARE: Final = BETWEEN_LOOKS / 16
"""Estimated seconds after which a run looks whether it should go on: of many short
commands they are worth less than of a long one."""

MOST_TURNS: Final = 1 << 16
"""Turns after which it looks in any case."""

_UNKNOWN_TURNS: Final = 16
"""For how many turns work is counted, where their number is not known."""


def moved(
    recorder: Recorder, work: Work, places: Mapping[Buffer, Address]
) -> list[Command]:
    """See ``Flow.moved``."""
    places = {**_temporary_places(work), **places}
    commands: list[Command] = []
    for piece, buffers, offsets, _ in work.placed:
        laid: Laid = piece.assembly
        real = {
            stand_in: _behind(places.get(buffer, Address(buffer)), offset)
            for stand_in, buffer, offset in zip(
                laid.buffers, buffers, offsets, strict=True
            )
        }
        for command in piece.commands:
            if estimated_seconds(command, recorder.target.workers) > BETWEEN_LOOKS:
                raise ValueError(f"{command.label} of a body takes long by itself")
            commands.append(command._replace(words=rewritten(command.words, real)))
    return commands


def _behind(address: Address, offset: int) -> Address:
    return Address(address.buffer, address.offset + offset)


def rewritten(
    words: tuple[Word, ...], real: Mapping[Buffer, Address]
) -> tuple[Word, ...]:
    """Words over other buffers, where they name one that *real* has."""
    found: list[Word] = []
    for word in words:
        if type(word) is Address:
            place = real.get(word.buffer)
            word = word if place is None else _behind(place, word.offset)
        elif type(word) is Words:
            word = Words(rewritten(word.words, real))
        found.append(word)
    return tuple(found)


def _temporary_places(work: Work) -> dict[Buffer, Address]:
    """Places of temporary buffers in one, by their lifetimes."""
    lifetimes: dict[Buffer, tuple[int, int]] = {}
    index = 0
    for piece, buffers, _, _ in work.placed:
        laid: Laid = piece.assembly
        for use in laid.uses:
            buffer = buffers[use.buffer]
            if type(buffer) is Temporary:
                first, _ = lifetimes.get(buffer, (index + use.first, 0))
                lifetimes[buffer] = first, index + use.last
        index += len(laid.chunks)
    offsets, nbytes = place(
        [buffer.nbytes for buffer in lifetimes], list(lifetimes.values())
    )
    whole = Temporary(nbytes)
    return {
        buffer: Address(whole, offset)
        for buffer, offset in zip(lifetimes, offsets, strict=True)
    }


def record_choice(
    recorder: Recorder,
    condition: View,
    then: Sequence[Command],
    otherwise: Sequence[Command],
    *,
    label: str = "If",
) -> None:
    """See ``Flow.record_choice``."""
    words: dict[str, Word] = {
        "block": Block(pauses=False),
        "condition": condition.address,
        "then": table_of(then),
        "then_count": len(then),
        "otherwise": table_of(otherwise),
        "otherwise_count": len(otherwise),
        "at": 0,
        "place": 0,
    }
    call(
        recorder,
        Kernel(Choice(SYSTEM.name)),
        words,
        label=label,
        flops=max(_flops(then), _flops(otherwise)),
        nbytes=max(_nbytes(then), _nbytes(otherwise)),
        note=note_of([*then, *otherwise]),
    )


def record_turns(
    recorder: Recorder,
    turns: TurnsOf,
    commands: Sequence[Command],
    *,
    count: int | None = None,
    label: str = "Loop",
) -> None:
    """See ``Flow.record_turns``."""
    workers = recorder.target.workers
    seconds = 1e-7 + sum(estimated_seconds(each, workers) for each in commands)
    words: dict[str, Word] = {
        "block": Block(pauses=True),
        "commands": table_of(commands),
        "count": len(commands),
        "limit": _address(turns.limit),
        "given": _address(turns.given),
        "again": _address(turns.again),
        "number": _address(turns.number),
        "condition": _address(turns.condition),
        **_moves("first", turns.first),
        **_moves("before", turns.before),
        **_moves("after", turns.after),
        "start": _address(turns.start),
        "done": _address(turns.done),
        "between_looks": max(1, min(MOST_TURNS, int(_SHARE / seconds))),
        "phase": 0,
        "turn": 0,
        "place": 0,
    }
    times = _UNKNOWN_TURNS if count is None else count
    moved_bytes = sum(2 * each.nbytes for each in (*turns.before, *turns.after))
    call(
        recorder,
        Kernel(Turns(SYSTEM.name)),
        words,
        label=label,
        flops=times * _flops(commands),
        nbytes=times * (_nbytes(commands) + moved_bytes),
        note=note_of(commands),
    )


def table_of(commands: Sequence[Command]) -> Word:
    """Commands as a sequence of them takes them; 0 for none."""
    entries: list[Word] = []
    for command in commands:
        entries += (Code(command.kernel), Words(command.words), command.chunks)
    return Words(tuple(entries)) if entries else 0


def _address(view: View | None) -> Word:
    return 0 if view is None else view.address


def _moves(name: str, moves: Sequence[Move]) -> dict[str, Word]:
    words: list[Word] = []
    for move in moves:
        words += (move.target, move.source, move.nbytes)
        words += (move.target_step, move.source_step)
    assert len(words) == MOVE_WORDS * len(moves)
    return {name: Words(tuple(words)) if words else 0, f"{name}_count": len(moves)}


def _flops(commands: Sequence[Command]) -> int:
    return sum(command.flops for command in commands)


def _nbytes(commands: Sequence[Command]) -> int:
    return sum(command.nbytes for command in commands)


def note_of(commands: Sequence[Command]) -> str:
    """What is done within."""
    labels = dict.fromkeys(command.label for command in commands)
    return "; ".join(labels)
