"""The commands of a plan as plain data: texts of kernels, numbers, and places."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import EngineCall, Kernel, Launch, render
from onnxplug_compiler.gpu.execution.device import Device
from onnxplug_compiler.gpu.execution.splitting import can_be_split, split
from onnxplug_compiler.gpu.render.dialect import Dialect
from onnxplug_compiler.ir.buffers import (
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
from onnxplug_compiler.ir.recorder import Recorder

FLAG: Final = 8
"""Bytes of a flag."""

KINDS: Final = ("slot", "input", "output", "constant", "flags")
"""Where a buffer of a kernel may be in a run."""


class Place(Record):
    """Where a buffer is in a run.

    Attributes:
        kind: one of :data:`KINDS`.
        number: which of these.
        begin, nbytes: what is bound of it; all if there are 0 bytes.
    """

    kind: str
    number: int
    begin: int = 0
    nbytes: int = 0


class Step(Record):
    """A launch.

    Attributes:
        text: of the kernel.
        written: which of its buffers it writes to.
        lanes: invocations of a workgroup.
        places: of its buffers.
        window: bytes of its numbers.
        start: where these begin.
        x, y: workgroups.
        nodes: indices of the graph's nodes that it computes.
        label: what it is called in profiles.
        flops: how many operations it has.
        nbytes: how many bytes it reads and writes.
        in_place: it copies its first buffer to its second one, and is left out where
            these are the same.
    """

    text: str
    written: tuple[bool, ...]
    lanes: int
    places: tuple[Place, ...]
    window: int
    start: int
    x: int
    y: int
    nodes: tuple[int, ...]
    label: str = ""
    flops: int = 0
    nbytes: int = 0
    in_place: bool = False

    @property
    def copied(self) -> tuple[int, int] | None:
        """Of a step that is left out in place the output, and the input that it is
        then; ``None`` of others."""
        if not self.in_place or len(self.places) < 2:
            return None
        source, target = self.places[:2]
        if (source.kind, target.kind) != ("input", "output"):
            return None
        return target.number, source.number


class CallStep(Record):
    """A call of a library.

    Attributes:
        call: the command's.
        places: of its views, from the first element of each to the buffer's end.
        workspace: where there is room for it, and how much it needs; ``None`` if it
            needs none.
        nodes, label, flops, nbytes: as a launch's.
    """

    call: Any
    places: tuple[Place, ...]
    workspace: Place | None
    nodes: tuple[int, ...]
    label: str = ""
    flops: int = 0
    nbytes: int = 0

    @property
    def begins(self) -> tuple[int, ...]:
        """Where the first elements are, in bytes from the beginnings of memories."""
        return tuple(place.begin for place in self.places)

    @property
    def workspace_nbytes(self) -> int:
        """Bytes that it needs besides."""
        return 0 if self.workspace is None else self.workspace.nbytes


AnyStep: TypeAlias = Step | CallStep


class FlagCheck(Record):
    """What to look at after a run.

    Attributes:
        number: of the flag.
        error: makes the exception to raise from what a kernel wrote.
    """

    number: int
    error: Callable[[int], Exception]


class Linked(Record):
    """What a program does.

    Attributes:
        steps: in order.
        numbers: those of all launches.
        slots: sizes of the memories between nodes.
        constants: what steps read; packed ones are filled before.
        flags: how many there are.
        checks: of these.
    """

    steps: tuple[AnyStep, ...]
    numbers: bytes
    slots: tuple[int, ...]
    constants: tuple[Constant | Packed, ...]
    flags: int
    checks: tuple[FlagCheck, ...]

    @property
    def inputs(self) -> frozenset[int]:
        """Positions of those that steps read."""
        places = (place for step in self.steps for place in step.places)
        return frozenset(place.number for place in places if place.kind == "input")

    @property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """Outputs that may be in the memory of an input, each with this: where one is
        copied to the other, the input is not read after, nor the output used before."""
        copies: dict[tuple[int, int], list[int]] = {}
        uses: dict[Place, list[int]] = {}
        for number, step in enumerate(self.steps):
            pair = step.copied if isinstance(step, Step) else None
            if pair is not None:
                copies.setdefault(pair, []).append(number)
            else:
                for kind, which, *_ in step.places:
                    uses.setdefault(Place(kind, which), []).append(number)
        return frozenset(
            (output, source)
            for (output, source), numbers in copies.items()
            if max(uses.get(Place("input", source), [-1])) < numbers[0]
            and min(uses.get(Place("output", output), [len(self.steps)])) > numbers[-1]
            and all(
                pair == (output, source) or (pair[0] != output and pair[1] != source)
                for pair in copies
            )
        )


class RefusedLaunch(ValueError):
    """A launch that the device does not take.

    Attributes:
        nodes: indices of the graph's nodes that it computes.
    """

    def __init__(self, message: str, nodes: tuple[int, ...]) -> None:
        super().__init__(message)
        self.nodes = nodes


def work_of(recorder: Recorder[Any]) -> Work:
    """What *recorder* has recorded outside any plan."""
    assembly = recorder.target.assemble(recorder.commands)
    piece = Piece(recorder.commands, (), {}, {}, (), assembly)
    buffers = list(assembly.buffers)
    return Work([Placed(piece, buffers, [0] * len(buffers), None)])


def link(
    work: Work, checks: Sequence[Check], look: Callable[[], None], device: Device
) -> Linked:
    """The commands of *work*, for *device*.

    Args:
        checks: what to look at after a run, with errors that name nodes.
        look: called now and then; it may raise.

    Raises:
        RefusedLaunch: an array is larger than what the device binds, and the launch is
            none that can be split; or a number of it has more than 32 bits.
    """
    linker = _Linker(work, device)
    for piece, buffers, offsets, own in work.placed:
        places = [linker.place(buffer) for buffer in buffers]
        starts = [
            offset + FLAG * linker.flags.get(buffer, 0)
            for buffer, offset in zip(buffers, offsets, strict=True)
        ]
        assembly = piece.assembly
        for command, named in zip(assembly.launches, assembly.numbers, strict=True):
            look()
            bound = [places[number] for number in named]
            begins = [
                starts[number] + view.offset
                for view, number in zip(command.views, named, strict=True)
            ]
            nodes = command.nodes if own is None else own
            if isinstance(command, EngineCall):
                linker.add_call(command, bound, begins, nodes)
            else:
                linker.add(command, bound, begins, nodes)
    flags = linker.flags
    return Linked(
        tuple(linker.steps),
        bytes(linker.numbers),
        tuple(linker.slots),
        tuple(linker.constants),
        len(flags),
        tuple(FlagCheck(flags[check.flag], check.error) for check in checks),
    )


MOST_PARTS: Final = 4096
"""In how many parts an array is bound, at most: no device has memory for more, and
planning them would take minutes."""


class _Linker:
    def __init__(self, work: Work, device: Device) -> None:
        self._dialect = device.dialect
        self._most = device.largest
        self._most_x, _ = device.most_groups
        self._alignment = device.alignment
        self._apart = device.numbers_alignment
        self._workspace: int | None = None
        self.slots, self._slot_of = _placed_temporaries(work)
        self.flags: dict[Buffer, int] = {}
        self.constants: dict[Constant | Packed, int] = {}
        self.numbers = bytearray()
        self.steps: list[AnyStep] = []

    def place(self, buffer: Buffer) -> Place:
        if isinstance(buffer, Temporary):
            return Place("slot", self._slot_of[buffer])
        if isinstance(buffer, Input):
            return Place("input", buffer.position)
        if isinstance(buffer, Output):
            return Place("output", buffer.position)
        if isinstance(buffer, Flag):
            self.flags.setdefault(buffer, len(self.flags))
            return Place("flags", 0)
        if isinstance(buffer, Constant | Packed):
            number = self.constants.setdefault(buffer, len(self.constants))
            return Place("constant", number)
        raise TypeError(f"a launch names {buffer!r}, which has no place")

    def add(
        self,
        launch: Launch,
        bound: Sequence[Place],
        begins: Sequence[int],
        nodes: tuple[int, ...],
    ) -> None:
        """Put *launch* behind the others, in parts if need be.

        Args:
            bound: where the buffers of its views are.
            begins: bytes from their beginnings to the first elements.
        """
        largest = max(view.buffer.nbytes for view in launch.views)
        if largest <= self._most:
            strides = [view.strides for view in launch.views]
            self._append(launch, bound, begins, strides, nodes)
            return
        if not can_be_split(launch) or largest > MOST_PARTS * self._most:
            raise RefusedLaunch(
                f"{launch.label} has an array of {largest} bytes; kernels bind "
                f"{self._most} at most",
                nodes,
            )
        for part, arrays in split(launch, begins, self._most, self._alignment):
            windows = [
                array.window(part.sizes[1:], self._alignment) for array in arrays
            ]
            self._append(
                part,
                [
                    place._replace(begin=begin, nbytes=nbytes)
                    for place, (begin, nbytes) in zip(bound, windows, strict=True)
                ],
                [
                    array.start - begin
                    for array, (begin, _) in zip(arrays, windows, strict=True)
                ],
                [array.strides for array in arrays],
                nodes,
            )

    def _append(
        self,
        launch: Launch,
        bound: Sequence[Place],
        begins: Sequence[int],
        strides: Sequence[tuple[int, ...]],
        nodes: tuple[int, ...],
    ) -> None:
        """Put a launch, whose arrays begin at these bytes, behind the others."""
        bindings: dict[Place, int] = {}
        operands = tuple(bindings.setdefault(place, len(bindings)) for place in bound)
        text, written = _rendered(launch.kernel, operands, self._dialect)
        words = list(launch.sizes)
        for view, begin, steps in zip(launch.views, begins, strides, strict=True):
            if begin % view.dtype.itemsize:
                raise RefusedLaunch(
                    f"{launch.label} has an array at an odd place", nodes
                )
            words += [begin // view.dtype.itemsize, *steps]
        if any(not -(1 << 31) <= word < 1 << 31 for word in words):
            raise RefusedLaunch(
                f"{launch.label} has a size or a stride beyond 32 bits", nodes
            )
        start, content = len(self.numbers), struct.pack(f"<{len(words)}i", *words)
        window = max(16, -(-len(content) // 16) * 16)
        padded = -(-window // self._apart) * self._apart
        self.numbers += content.ljust(padded, b"\0")
        x = min(launch.groups, self._most_x)
        y = -(-launch.groups // x)
        self.steps.append(
            Step(
                text,
                written,
                launch.kernel.lanes,
                tuple(bindings),
                window,
                start,
                x,
                y,
                nodes,
                launch.label,
                launch.flops,
                launch.nbytes,
                launch.in_place,
            )
        )

    def add_call(
        self,
        command: EngineCall,
        bound: Sequence[Place],
        begins: Sequence[int],
        nodes: tuple[int, ...],
    ) -> None:
        """Put a call behind the others; see :meth:`add`."""
        workspace = None
        if command.workspace:
            # one for all calls, which follow each other
            if self._workspace is None:
                self._workspace = len(self.slots)
                self.slots.append(0)
            number = self._workspace
            self.slots[number] = max(self.slots[number], command.workspace)
            workspace = Place("slot", number, 0, command.workspace)
        places = [
            place._replace(begin=begin, nbytes=max(0, view.buffer.nbytes - view.offset))
            for place, begin, view in zip(bound, begins, command.views, strict=True)
        ]
        self.steps.append(
            CallStep(
                command.call,
                tuple(places),
                workspace,
                nodes,
                command.label,
                command.flops,
                command.nbytes,
            )
        )


@functools.lru_cache(4096)
def _written(
    kind: type[Kernel], parameters: str, bindings: tuple[int, ...], dialect: type[Any]
) -> Any:
    """Where the text of a kernel is kept: kernels are told apart by their texts, as
    records of equal numbers are equal whatever these are of."""
    return []


def _rendered(
    kernel: Kernel, bindings: tuple[int, ...], dialect: Dialect
) -> tuple[str, tuple[bool, ...]]:
    """The text of a kernel, and which of its buffers it writes to."""
    kept = _written(type(kernel), repr(kernel), bindings, type(dialect))
    if not kept:
        body = render(kernel, bindings, dialect)
        written = tuple(each.written for each in body.buffers)
        kept.append((body.text(kernel.lanes), written))
    found: tuple[str, tuple[bool, ...]] = kept[0]
    return found


def _placed_temporaries(work: Work) -> tuple[list[int], dict[Buffer, int]]:
    """The sizes of the memories that temporaries share, and which of them each has.

    Two share one if no launch needs both; of those that are free the smallest that is
    large enough is taken, or else the largest, which grows.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    index = 0
    for piece, buffers, *_ in work.placed:
        for named in piece.assembly.numbers:
            for buffer in (buffers[number] for number in named):
                if isinstance(buffer, Temporary):
                    first.setdefault(buffer, index)
                    last[buffer] = index
            index += 1
    slots: list[int] = []
    slot_of: dict[Buffer, int] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, end in last.items():
        ends.setdefault(end, []).append(buffer)
    free: list[int] = []
    begins: dict[int, list[Buffer]] = {}
    for buffer, begin in first.items():
        begins.setdefault(begin, []).append(buffer)
    for at in range(index):
        for buffer in begins.get(at, ()):
            slot_of[buffer] = _take(free, slots, buffer.nbytes)
        for buffer in ends.get(at, ()):
            free.append(slot_of[buffer])
    return slots, slot_of


def _take(free: list[int], slots: list[int], nbytes: int) -> int:
    """A free slot for *nbytes*, or a new one."""
    enough = [number for number in free if slots[number] >= nbytes]
    if enough:
        found = min(enough, key=slots.__getitem__)
    elif free:
        found = max(free, key=slots.__getitem__)
        slots[found] = nbytes
    else:
        slots.append(nbytes)
        return len(slots) - 1
    free.remove(found)
    return found
