"""Commands that were recorded once, for all groups and shapes that ask for the same.

A piece names no buffer of a plan but stand-ins, by the role that a value has in its
group.  Its words are laid out when it is made; a program puts pieces one after another
and adds addresses.
"""

from __future__ import annotations

import array
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.ir.commands import (
    Acceptance,
    Address,
    Buffer,
    Check,
    Code,
    Command,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
    Word,
    Words,
)
from onnxplug_cpu.compiler.ir.recorder import Filling
from onnxplug_cpu.compiler.ir.views import View

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


Halo: TypeAlias = tuple[tuple[int, int], ...]
"""For each axis how many places lie before the elements of a value, and after."""


class Place:
    """How a value lies in a buffer, but for where it begins; there is one object for
    equal ones.

    Attributes:
        kind: the class of the buffer.
        dtype, shape, strides: as of a :class:`~.views.View`.
        halo: how many places of the buffer, before and after the elements along each
            axis, are the value's, too, and have zeros; ``None`` if there are none.
        nbytes: from the first byte of any element, or of the halo, to the last.
        offset: of element 0 from the first of these.
    """

    __slots__ = (
        "_is_contiguous",
        "dtype",
        "halo",
        "kind",
        "nbytes",
        "offset",
        "shape",
        "strides",
    )

    def __init__(
        self,
        kind: type[Buffer],
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        halo: Halo | None = None,
    ) -> None:
        self.kind: Final = kind
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.strides: Final = strides
        self.halo: Final = halo
        low = high = 0
        if 0 not in shape:
            around = halo or ((0, 0),) * len(shape)
            for size, stride, (before, after) in zip(
                shape, strides, around, strict=True
            ):
                first, last = -before * stride, (size - 1 + after) * stride
                if stride > 0:
                    low += first
                    high += last
                elif stride:
                    low += last
                    high += first
            high += 1
        self.offset: Final = -low * dtype.itemsize
        self.nbytes: Final = (high - low) * dtype.itemsize
        self._is_contiguous: bool | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow each other in C order."""
        found = self._is_contiguous
        if found is None:
            found = self._is_contiguous = self.view(Buffer(self.nbytes)).is_contiguous
        return found

    def view(self, buffer: Buffer) -> View:
        """The value in a buffer that has as many bytes, and no others."""
        return View(buffer, self.offset, self.dtype, self.shape, self.strides)

    def around(self, buffer: Buffer) -> View:
        """The value in such a buffer, with its halo."""
        halo = self.halo or ((0, 0),) * len(self.shape)
        first = sum(
            before * stride
            for (before, _), stride in zip(halo, self.strides, strict=True)
        )
        shape = tuple(
            before + size + after
            for (before, after), size in zip(halo, self.shape, strict=True)
        )
        offset = self.offset - first * self.dtype.itemsize
        return View(buffer, offset, self.dtype, shape, self.strides)


class Alias(Record):
    """A value that is seen where another is.

    Attributes:
        role: of the value.
        buffer: what stands for the buffer that it is seen in.
        place: how it lies there.
        offset: of its first byte from that of the buffer, or of what it stands for.
    """

    role: int
    buffer: Buffer
    place: Place
    offset: int


class PackRequest(Record):
    """A packed constant that a piece reads.

    Attributes:
        source: the stand-in, or the constant itself.
        offset, dtype, shape, strides: of the view of it.
        layout, nbytes, record, accepts: as :meth:`~.record.Recorder.packed` takes them.
    """

    source: Buffer
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    layout: str
    nbytes: int
    record: Filling
    accepts: Acceptance | None


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
        nested: which words are addresses of others, of which they have the distance
            from the first one in bytes.
        code: which words are addresses of kernels.
        chunks: of each command.
        kernels: of each command.
        entries: the addresses of these.
        resolved_by: the library that these addresses are of, if they are written.
        layout: the same number for all that have the same in the same places, but for
            what is in words.
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        self.words = array.array("Q")
        self.starts: list[int] = []
        self.buffers: list[Buffer] = []
        self.uses: list[Use] = []
        self.nested: list[int] = []
        self.code: list[tuple[int, Kernel]] = []
        self.chunks = [command.chunks for command in commands]
        self.kernels = [command.kernel for command in commands]
        self.entries: list[int] = []
        self.resolved_by: object = None
        self._numbers: dict[Buffer, int] = {}
        self._waiting: list[tuple[int, tuple[Word, ...]]] = []
        for number, command in enumerate(commands):
            self.starts.append(self._place(command.words, number))
        self.layout = _layouts.setdefault(
            (
                len(self.words),
                tuple(self.starts),
                tuple(self.nested),
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
                values.append(offset & _MASK)
                self._use(buffer, position, command)
            elif type(word) is Code:
                values.append(0)
                self.code.append((position, word.kernel))
            elif type(word) is Words:
                values.append(0)
                self._waiting.append((position, word.words))
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


class Piece:
    """Commands over stand-ins.

    Args:
        commands: in order.
        checks: what to look at after a run.
        roles: the stand-ins, and the roles of the values whose buffers they stand for.
        pack_requests: packed constants by what stands for them.
        aliases: values that are seen in a buffer.

    Attributes:
        laid: the words.
        sources: of each buffer of the words the role, or what stands for another.
        seconds: about how long each command takes, when that is known.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        checks: Sequence[Check],
        roles: dict[Buffer, int],
        pack_requests: dict[Buffer, PackRequest],
        aliases: Sequence[Alias],
    ) -> None:
        self.commands = tuple(commands)
        self.checks = tuple(checks)
        self.roles = roles
        self.pack_requests = pack_requests
        self.aliases = tuple(aliases)
        self.laid = Laid(self.commands)
        self.sources = [roles.get(buffer, buffer) for buffer in self.laid.buffers]
        self.seconds: list[float] | None = None


class Placed(Record):
    """A piece as a part of a plan.

    Attributes:
        piece: the commands.
        buffers: in the place of its stand-ins, in their order.
        offsets: bytes from the start of each buffer to that of what it stands for.
        nodes: indices of the graph's nodes that it computes.
    """

    piece: Piece
    buffers: Sequence[Buffer]
    offsets: Sequence[int]
    nodes: tuple[int, ...] | None


class Work(Sequence[Command]):
    """The commands of a program, piece by piece.

    Args:
        outlines: where everything lies in the blocks of such work; grows.

    As a sequence it is of commands over stand-ins, made when they are asked for.
    """

    def __init__(
        self, placed: Sequence[Placed], outlines: dict[Any, Any] | None = None
    ) -> None:
        self.placed = [each for each in placed if each.piece.commands]
        self.outlines = {} if outlines is None else outlines
        self._commands: tuple[Command, ...] | None = None

    @classmethod
    def of(cls, commands: Sequence[Command], checks: Sequence[Check] = ()) -> Work:
        """Commands over buffers."""
        if isinstance(commands, Work):
            return commands
        piece = Piece(commands, checks, {}, {}, ())
        buffers = piece.laid.buffers
        return cls([Placed(piece, buffers, [0] * len(buffers), None)])

    @property
    def checks(self) -> Iterator[Check]:
        """What to look at after a run, over the buffers of the plan."""
        for piece, buffers, _, nodes in self.placed:
            for check in piece.checks:
                number = piece.laid.buffers.index(check.flag)
                flag = buffers[number]
                assert isinstance(flag, Flag)
                yield Check(flag, check.error, check.nodes if nodes is None else nodes)

    @property
    def commands(self) -> tuple[Command, ...]:
        """All commands, with the nodes that they compute."""
        if self._commands is None:
            self._commands = tuple(
                command if nodes is None else command._replace(nodes=nodes)
                for piece, _, _, nodes in self.placed
                for command in piece.commands
            )
        return self._commands

    def __len__(self) -> int:
        return sum(len(each.piece.commands) for each in self.placed)

    def __getitem__(self, index: Any) -> Any:
        return self.commands[index]
