"""Commands that were recorded once, for all groups and shapes that ask for the same.

A piece names no buffer of a plan but stand-ins, by the role that a value has in its
group.  The target assembles its commands when it is made, and puts pieces one after
another later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Acceptance, Buffer, Check, Flag
from onnxplug_compiler.ir.recorder import Filling
from onnxplug_compiler.ir.views import View

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


class Command(Protocol):
    """What a target does, of which planning knows no more than this.

    Attributes:
        label: what it does, for profiles: ``MatMul 128×768×3072 + Gelu``.
        flops: floating-point operations, or 0 when memory is what counts.
        nbytes: bytes that must be read and written at least.
        nodes: indices of the graph's nodes that it computes.
        note: what is to be said of how it does that.
    """

    @property
    def label(self) -> str: ...
    @property
    def flops(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def nodes(self) -> tuple[int, ...]: ...
    @property
    def note(self) -> str: ...

    def of_nodes(self, nodes: tuple[int, ...]) -> Self:
        """The same command as one that computes other nodes."""


class Assembly(Protocol):
    """What a target makes of the commands of a piece, once.

    Attributes:
        buffers: all that the commands read and write, each once.
    """

    @property
    def buffers(self) -> Sequence[Buffer]: ...


class Piece:
    """Commands over stand-ins.

    Args:
        commands: in order.
        assembly: what the target makes of them, an :class:`Assembly`.
        checks: what to look at after a run.
        roles: the stand-ins, and the roles of the values whose buffers they stand for.
        pack_requests: packed constants by what stands for them.
        aliases: values that are seen in a buffer.

    Attributes:
        sources: of each buffer of the commands the role, or what stands for another.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        checks: Sequence[Check],
        roles: dict[Buffer, int],
        pack_requests: dict[Buffer, PackRequest],
        aliases: Sequence[Alias],
        assembly: Any,
    ) -> None:
        self.commands = tuple(commands)
        self.checks = tuple(checks)
        self.roles = roles
        self.pack_requests = pack_requests
        self.aliases = tuple(aliases)
        self.assembly = assembly
        self.sources = [roles.get(buffer, buffer) for buffer in assembly.buffers]


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


class Work(Sequence[Any]):
    """The commands of a plan, piece by piece.

    Args:
        outlines: what the target keeps for plans of the same structure; grows.

    As a sequence it is of commands over stand-ins, made when they are asked for.
    """

    def __init__(
        self, placed: Sequence[Placed], outlines: dict[Any, Any] | None = None
    ) -> None:
        self.placed = [each for each in placed if each.piece.commands]
        self.outlines = {} if outlines is None else outlines
        self._commands: tuple[Any, ...] | None = None

    @property
    def checks(self) -> Iterator[Check]:
        """What to look at after a run, over the buffers of the plan."""
        for piece, buffers, _, nodes in self.placed:
            for check in piece.checks:
                number = piece.assembly.buffers.index(check.flag)
                flag = buffers[number]
                assert isinstance(flag, Flag)
                yield Check(flag, check.error, check.nodes if nodes is None else nodes)

    @property
    def commands(self) -> tuple[Any, ...]:
        """All commands, with the nodes that they compute."""
        if self._commands is None:
            self._commands = tuple(
                command if nodes is None else command.of_nodes(nodes)
                for piece, _, _, nodes in self.placed
                for command in piece.commands
            )
        return self._commands

    def __len__(self) -> int:
        return sum(len(each.piece.commands) for each in self.placed)

    def __getitem__(self, index: Any) -> Any:
        return self.commands[index]
