"""The launches of a plan as plain data: texts of kernels, numbers, and places."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import MOST_GROUPS, Kernel, Launch, render
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_compiler.ir.buffers import (
    Buffer,
    Check,
    Constant,
    Flag,
    Input,
    Output,
    Temporary,
)
from onnxplug_compiler.ir.pieces import Work

APART: Final = 256
"""Bytes by which the numbers of launches are apart, at least."""

FLAG: Final = 8
"""Bytes of a flag."""

KINDS: Final = ("slot", "input", "output", "constant", "flags")
"""Where a buffer of a kernel may be in a run."""


class Place(Record):
    """Where a buffer is in a run.

    Attributes:
        kind: one of :data:`KINDS`.
        number: which of these.
    """

    kind: str
    number: int


class Step(Record):
    """A launch.

    Attributes:
        text: of the kernel.
        written: which of its buffers it writes to.
        places: of its buffers.
        window: bytes of its numbers.
        start: where these begin.
        x, y: workgroups.
        nodes: indices of the graph's nodes that it computes.
    """

    text: str
    written: tuple[bool, ...]
    places: tuple[Place, ...]
    window: int
    start: int
    x: int
    y: int
    nodes: tuple[int, ...]


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
        constants: what steps read.
        flags: how many there are.
        checks: of these.
    """

    steps: tuple[Step, ...]
    numbers: bytes
    slots: tuple[int, ...]
    constants: tuple[Constant, ...]
    flags: int
    checks: tuple[FlagCheck, ...]

    @property
    def inputs(self) -> frozenset[int]:
        """Positions of those that steps read."""
        places = (place for step in self.steps for place in step.places)
        return frozenset(place.number for place in places if place.kind == "input")


def link(work: Work, checks: Sequence[Check], look: Callable[[], None]) -> Linked:
    """The launches of *work*.

    Args:
        checks: what to look at after a run, with errors that name nodes.
        look: called now and then; it may raise.

    Raises:
        ValueError: a number of a launch has more than 32 bits.
    """
    linker = _Linker(work)
    for piece, buffers, offsets, own in work.placed:
        places = [linker.place(buffer) for buffer in buffers]
        starts = [
            offset + FLAG * linker.flags.get(buffer, 0)
            for buffer, offset in zip(buffers, offsets, strict=True)
        ]
        assembly = piece.assembly
        for launch, named in zip(assembly.launches, assembly.numbers, strict=True):
            look()
            linker.add(launch, named, places, starts, own)
    flags = linker.flags
    return Linked(
        tuple(linker.steps),
        bytes(linker.numbers),
        tuple(linker.slots),
        tuple(linker.constants),
        len(flags),
        tuple(FlagCheck(flags[check.flag], check.error) for check in checks),
    )


class _Linker:
    def __init__(self, work: Work) -> None:
        self.slots, self._slot_of = _placed_temporaries(work)
        self.flags: dict[Buffer, int] = {}
        self.constants: dict[Constant, int] = {}
        self.numbers = bytearray()
        self.steps: list[Step] = []

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
        if isinstance(buffer, Constant):
            number = self.constants.setdefault(buffer, len(self.constants))
            return Place("constant", number)
        raise TypeError(f"a launch names {buffer!r}, which has no place")

    def add(
        self,
        launch: Launch,
        named: Sequence[int],
        places: Sequence[Place],
        starts: Sequence[int],
        own: tuple[int, ...] | None,
    ) -> None:
        """Put the numbers of *launch* behind the others."""
        bindings: dict[Place, int] = {}
        operands = tuple(
            bindings.setdefault(places[number], len(bindings)) for number in named
        )
        text, written = _rendered(launch.kernel, operands)
        words = list(launch.sizes)
        for view, number in zip(launch.views, named, strict=True):
            start, itemsize = starts[number] + view.offset, view.dtype.itemsize
            if start % itemsize:
                raise ValueError(f"{launch.label} has an array at an odd place")
            words += [start // itemsize, *view.strides]
        if any(not -(1 << 31) <= word < 1 << 31 for word in words):
            raise ValueError(f"{launch.label} has a size or a stride beyond 32 bits")
        begin, content = len(self.numbers), struct.pack(f"<{len(words)}i", *words)
        window = max(16, -(-len(content) // 16) * 16)
        self.numbers += content.ljust(-(-window // APART) * APART, b"\0")
        x = min(launch.groups, MOST_GROUPS)
        y = -(-launch.groups // x)
        nodes = launch.nodes if own is None else own
        self.steps.append(
            Step(text, written, tuple(bindings), window, begin, x, y, nodes)
        )


@functools.lru_cache(4096)
def _written(kind: type[Kernel], parameters: str, bindings: tuple[int, ...]) -> Any:
    """Where the text of a kernel is kept: kernels are told apart by their texts, as
    records of equal numbers are equal whatever these are of."""
    return []


def _rendered(
    kernel: Kernel, bindings: tuple[int, ...]
) -> tuple[str, tuple[bool, ...]]:
    """The text of a kernel, and which of its buffers it writes to."""
    kept = _written(type(kernel), repr(kernel), bindings)
    if not kept:
        body = render(kernel, bindings, WGSL)
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
