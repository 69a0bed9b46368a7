"""Writes the kernels of control flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.chunks import MAX_CHUNKS
from onnxplug_cpu.compiler.runtime.sequence import PAUSED, word, write_sequence

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

MOVE_WORDS: Final = 5
"""Words of a move: target, source, bytes, and by how much the two are farther in each
turn."""


class ChoiceWords(KernelWords):
    """The words of :class:`Choice`.

    *at* is 0, or which branch was paused, 1 or 2, and *place* its command.
    """

    block: Pointer
    condition: Pointer
    then: Pointer
    then_count: Integer
    otherwise: Pointer
    otherwise_count: Integer
    at: Integer
    place: Integer


class TurnsWords(KernelWords):
    """The words of :class:`Turns`; pointers may be 0.

    *phase* is 0 when there was no turn yet, 1 between two turns, and 2 in a turn whose
    command *place* was paused; *turn* is which.
    """

    block: Pointer
    commands: Pointer
    count: Integer
    limit: Pointer
    given: Pointer
    again: Pointer
    number: Pointer
    condition: Pointer
    first: Pointer
    first_count: Integer
    before: Pointer
    before_count: Integer
    after: Pointer
    after_count: Integer
    start: Pointer
    done: Pointer
    between_looks: Integer
    phase: Integer
    turn: Integer
    place: Integer


def do_commands(
    f: Function,
    sequence: str,
    block: Value,
    commands: Value,
    first: Value,
    count: Value,
) -> Value:
    """Do commands; the number of one that is paused, or *count*."""
    ends = f.value(MAX_CHUNKS, I64)
    return f.intrinsic(
        I64, sequence, block, commands, first, count, f.value(0, I64), ends
    )


def is_paused(f: Function, block: Value) -> Value:
    """Whether a command has not ended."""
    return word(f, block, PAUSED).compare("ne", 0)


class Choice(Generator):
    """Does the commands of one of two branches.

    Attributes:
        system: how workers sleep, the :attr:`~.waits.System.name`.
    """

    system: str

    @property
    def words(self) -> tuple[str, ...]:
        return ChoiceWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        sequence = write_sequence(module, name, isa, self.system)
        k = ChoiceWords(module, name)
        f, block, at = k.function, k.block, k.at
        chosen = f.select(f.load(k.condition, I1), f.value(1, I64), 2)
        branch = f.select(at.compare("eq", 0), chosen, at)
        is_then = branch.compare("eq", 1)
        count = f.select(is_then, k.then_count, k.otherwise_count)
        commands = f.select(is_then, k.then, k.otherwise)
        place = do_commands(f, sequence, block, commands, k.place, count)
        paused = is_paused(f, block)
        zero = f.value(0, I64)
        k.put("at", f.select(paused, branch, zero))
        k.put("place", f.select(paused, place, zero))
        f.finish()


class Turns(Generator):
    """Does commands turn after turn, and moves bytes around them.

    It is paused, and called again, after *between_looks* turns.

    Attributes:
        system: how workers sleep, the :attr:`~.waits.System.name`.
    """

    system: str

    @property
    def words(self) -> tuple[str, ...]:
        return TurnsWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        sequence = write_sequence(module, name, isa, self.system)
        moves = f"{name}.moves"
        _write_moves(module, moves)
        _Writer(TurnsWords(module, name), sequence, moves).write()


class _Writer:
    def __init__(self, k: TurnsWords, sequence: str, moves: str) -> None:
        self.k, self.f = k, k.function
        self.sequence, self.moves = sequence, moves
        k.keep(("block", "commands", "count", "again", "number", "before", "after"))
        k.keep(("before_count", "after_count"))

    def write(self) -> None:
        k, f = self.k, self.f
        zero, true = f.value(0, I64), f.value(1, I1)
        phase = k.phase
        begins = phase.compare("eq", 0)
        f.branch(begins, lambda: self.move(k.first, k.first_count, zero))
        given = f.branch(
            begins & self.is_there(k.given),
            lambda: [f.load(k.given, I1)],
            lambda: [true],
        )[0]
        limited = self.is_there(k.limit)
        most = f.value((1 << 63) - 1, I64)
        (limit,) = f.branch(limited, lambda: [f.load(k.limit, I64)], lambda: [most])
        inside = phase.compare("eq", 2)
        goes_on = inside | (given & k.turn.compare("lt", limit))
        self.limit = limit
        ended = f.branch(
            goes_on,
            lambda: f.repeat(
                self.turn, [k.turn, k.place, inside, k.between_looks, zero]
            ),
            lambda: [k.turn, k.place, inside, k.between_looks, zero],
        )
        turn, place, _, _, state = ended
        stays = state.compare("ne", 0)
        done = k.done
        f.branch(self.is_there(done), lambda: f.store(turn, done))
        k.put("phase", state)
        k.put("turn", f.select(stays, turn, zero))
        k.put("place", f.select(stays, place, zero))
        f.finish()

    def turn(
        self, turn: Value, place: Value, inside: Value, left: Value, _: Value
    ) -> tuple[Value, list[Value]]:
        """One turn, or what was left of it; whether to go on at once, and the phase to
        be in if not."""
        k, f = self.k, self.f
        zero, one = f.value(0, I64), f.value(1, I64)
        f.branch(inside, lambda: None, lambda: self.begin(turn))
        place = do_commands(f, self.sequence, k.block, k.commands, place, k.count)

        def paused() -> list[Value]:
            return [f.value(0, I1), turn, place, left, f.value(2, I64)]

        def done() -> list[Value]:
            self.move(k.after, k.after_count, turn)
            again = f.branch(
                self.is_there(k.again),
                lambda: [f.load(k.again, I1)],
                lambda: [f.value(1, I1)],
            )[0]
            again = again & (turn + 1).compare("lt", self.limit)
            looks = again & left.compare("lt", 2)
            f.branch(looks, lambda: f.store(one, f.at(k.block, PAUSED, I64)))
            phase = f.select(looks, one, zero)
            return [again & ~looks, turn + 1, zero, left - 1, phase]

        go, turn, place, left, phase = f.branch(is_paused(f, k.block), paused, done)
        return go, [turn, place, f.value(0, I1), left, phase]

    def begin(self, turn: Value) -> None:
        k, f = self.k, self.f
        number, start = k.number, k.start
        (first,) = f.branch(
            self.is_there(start),
            lambda: [f.load(start, I64)],
            lambda: [f.value(0, I64)],
        )
        f.branch(self.is_there(number), lambda: f.store(first + turn, number))
        condition = k.condition
        true = f.value(1, I1)
        f.branch(self.is_there(condition), lambda: f.store(true, condition))
        self.move(k.before, k.before_count, turn)

    def is_there(self, pointer: Value) -> Value:
        return pointer.compare("ne", self.f.zero(PTR))

    def move(self, moves: Value, count: Value, turn: Value) -> None:
        self.f.call_void(self.moves, moves, count, turn)


def _write_moves(module: Module, name: str) -> None:
    """Define ``void moves(ptr moves, i64 count, i64 turn)``."""
    f = module.function(
        name,
        [("moves", PTR), ("count", I64), ("turn", I64)],
        internal=True,
        inline=False,
    )
    moves, count, turn = f.parameters

    def move(index: Value) -> None:
        entry = f.at(moves, index * MOVE_WORDS, I64)
        target, source = word(f, entry, 0, PTR), word(f, entry, 1, PTR)
        nbytes = word(f, entry, 2)
        target = f.at(target, turn * word(f, entry, 3), I8)
        source = f.at(source, turn * word(f, entry, 4), I8)
        _copy(f, target, source, nbytes)

    f.loop(count, move)
    f.finish()


def _copy(f: Function, target: Value, source: Value, nbytes: Value) -> None:
    """Copy bytes, by vectors and then by smaller parts."""

    begin = f.value(0, I64)
    for type_ in (I32.vector(16), I64, I8):
        size = type_.nbytes * max(1, type_.lanes)
        end = nbytes - nbytes % size

        def one(offset: Value, type_: Type = type_) -> None:
            value = f.load(f.at(source, offset, I8), type_, align=1)
            f.store(value, f.at(target, offset, I8), align=1)

        f.loop(end, one, start=begin, step=size)
        begin = end
