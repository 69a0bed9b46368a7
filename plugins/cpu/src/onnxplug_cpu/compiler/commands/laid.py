"""The words of commands, laid out once for all programs that they are part of."""

from __future__ import annotations

import array
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import (
    Address,
    Buffer,
    Check,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
)
from onnxplug_compiler.ir.pieces import Piece, Placed, Work
from onnxplug_compiler.ir.traced import TracedSize, is_traced
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.words import (
    Block,
    ChosenCode,
    Code,
    Command,
    Word,
    Words,
)

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


class Use(Record):
    """Where the addresses of a buffer are.

    Attributes:
        buffer: the number of the buffer among those of the piece.
        words: numbers of words, which have the offset.
        first, last: the commands that have them.
    """

    buffer: int
    words: list[int]
    first: int
    last: int


_layouts: Final[dict[tuple[Any, ...], int]] = {}
_layout_numbers: Final = itertools.count()


class Laid:
    """The words of commands, one after another.

    Attributes:
        words: all of them; instead of addresses offsets.
        starts: for each command which is its first word.
        buffers: those that are named.
        uses: where, for each buffer.
        traced: words, by their numbers, that are traced sizes; 0 stands for them.
        chosen: words, by their numbers, that are addresses of kernels that traced sizes
            choose; 0 stands for them.
        nested: which words are addresses of others, of which they have the distance
            from the first one in bytes.
        blocks: which words are the address of the whole block.
        pauses: whether a command may end before it is done, to be called again.
        code: which words are addresses of kernels.
        chunks: of each command.
        kernels: of each command.
        entries: the addresses of these.
        resolved_by: the library that these addresses are of, if they are written.
        layout: the same number for all that have the same in the same places, but for
            what is in words.
        seconds: about how long each command takes, when that is known.
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        self.words = array.array("Q")
        self.starts: list[int] = []
        self.buffers: list[Buffer] = []
        self.uses: list[Use] = []
        self.traced: list[tuple[int, TracedSize]] = []
        self.chosen: list[tuple[int, ChosenCode]] = []
        self.nested: list[int] = []
        self.blocks: list[int] = []
        self.pauses = False
        self.code: list[tuple[int, Kernel]] = []
        self.chunks = [command.chunks for command in commands]
        self.kernels = [command.kernel for command in commands]
        self.entries: list[int] = []
        self.resolved_by: object = None
        self.seconds: list[float] | None = None
        self._numbers: dict[Buffer, int] = {}
        self._waiting: list[tuple[int, tuple[Word, ...]]] = []
        for number, command in enumerate(commands):
            self.starts.append(self._place(command.words, number))
        self.layout = _layouts.setdefault(
            (
                len(self.words),
                tuple(self.starts),
                tuple(self.nested),
                tuple(self.blocks),
                tuple(map(type, self.buffers)),
                tuple([(use.buffer, *use[2:], *use.words) for use in self.uses]),
            ),
            next(_layout_numbers),
        )

    def resolve(self, library: object, addresses: Mapping[int, int]) -> None:
        """Write the addresses of kernels, which are given by identity."""
        for position, kernel in self.code:
            self.words[position] = addresses[id(kernel)]
        self.entries = [addresses[id(kernel)] for kernel in self.kernels]
        self.resolved_by = library

    def _place(self, words: tuple[Word, ...], command: int) -> int:
        """Append words and those nested in them; the number of the first."""
        start = self._append(words, command)
        waiting = self._waiting
        while waiting:
            position, more = waiting.pop()
            self.words[position] = 8 * self._append(more, command)
            self.nested.append(position)
        return start

    def _append(self, words: tuple[Word, ...], command: int) -> int:
        # comparing types is three times as fast as isinstance, and there are thousands
        values = self.words
        start = position = len(values)
        for word in words:
            if type(word) is int:
                values.append(word & _MASK)
            elif type(word) is Address:
                buffer, offset = word
                if type(offset) is not int and is_traced(offset):
                    self.traced.append((position, cast(TracedSize, offset)))
                    offset = 0
                values.append(offset & _MASK)
                self._use(buffer, position, command)
            elif type(word) is Code:
                values.append(0)
                self.code.append((position, word.kernel))
            elif type(word) is Words:
                values.append(0)
                self._waiting.append((position, word.words))
            elif type(word) is Block:
                values.append(0)
                self.blocks.append(position)
                self.pauses = self.pauses or word.pauses
            elif type(word) is ChosenCode:
                values.append(0)
                self.chosen.append((position, word))
            elif is_traced(word):
                values.append(0)
                self.traced.append((position, cast(TracedSize, word)))
            else:  # an integer of numpy
                values.append(int(word) & _MASK)  # type: ignore[arg-type]
            position += 1
        return start

    def _use(self, buffer: Buffer, position: int, command: int) -> None:
        number = self._numbers.get(buffer)
        if number is None:
            if not isinstance(buffer, _PLACED):
                raise TypeError(
                    f"a word is the address of {buffer!r}, which has no place"
                )
            number = self._numbers[buffer] = len(self.buffers)
            self.buffers.append(buffer)
            self.uses.append(Use(number, [], command, command))
        use = self.uses[number]
        use.words.append(position)
        if use.last != command:
            self.uses[number] = use._replace(last=command)


_PLACED = (Temporary, Input, Output, Constant, Packed, Flag)


def work_of(commands: Sequence[Command], checks: Sequence[Check] = ()) -> Work:
    """Commands over the buffers of a program."""
    if isinstance(commands, Work):
        return commands
    laid = Laid(commands)
    piece = Piece(commands, checks, {}, {}, (), laid)
    return Work([Placed(piece, laid.buffers, [0] * len(laid.buffers), None)])
