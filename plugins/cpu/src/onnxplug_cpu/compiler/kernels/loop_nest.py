"""Walks over strided arrays of one shape at once, in chunks.

The axes are collapsed when a command is recorded, so that a kernel depends on how many
are left and not on sizes or strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.traced import smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.types import I8, I64
from onnxplug_cpu.compiler.commands.chunks import chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.commands.words import Word

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Value

SPLAT, UNIT, STRIDED = "0", "1", "s"
"""How an operand's elements lie along the innermost axis: one, consecutive, apart."""


class Axis(Record):
    """An axis of several arrays: its size and, per array, its stride in bytes."""

    size: int
    strides: tuple[int, ...]


class Layout(Record):
    """Several arrays of one shape: their first elements and common axes."""

    addresses: tuple[Address, ...]
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """How many elements."""
        size = 1
        for axis in self.axes:
            size *= axis.size
        return size


def collapse(views: Sequence[View]) -> Layout:
    """The fewest axes that address the same elements in all of *views*.

    Axes are sorted by the first view's strides, largest first, and turned so that
    these are positive; neighbours that all views walk evenly become one.  The order
    in which elements are visited is therefore not that of the shape.
    """
    offsets = [view.offset for view in views]
    axes: list[Axis] = []
    for axis, size in enumerate(views[0].shape):
        if size == 1:
            continue
        strides = [view.strides[axis] * view.dtype.itemsize for view in views]
        if strides[0] < 0 and size:
            for position, stride in enumerate(strides):
                offsets[position] += stride * (size - 1)
                strides[position] = -stride
        axes.append(Axis(size, tuple(strides)))
    axes.sort(key=lambda axis: -axis.strides[0])
    addresses = [
        Address(view.buffer, offset)
        for view, offset in zip(views, offsets, strict=True)
    ]
    return Layout(tuple(addresses), merge(axes))


def merge(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Make one axis of neighbours that every array walks evenly."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and all(
            outer == inner * axis.size
            for outer, inner in zip(merged[-1].strides, axis.strides, strict=True)
        ):
            merged[-1] = Axis(merged[-1].size * axis.size, axis.strides)
        else:
            merged.append(axis)
    return tuple(merged)


def chunks_wanted(recorder: Recorder, nanoseconds: float) -> int:
    """How many chunks would be good for a command.

    Args:
        nanoseconds: about how long it takes one worker.
    """
    return chunks_for(1e-9 * nanoseconds, recorder.target.workers)


def chunks(recorder: Recorder, items: int, nanoseconds: float) -> tuple[int, int]:
    """How many chunks to cut *items* of work into, and the items of each.

    Args:
        nanoseconds: about how long all items take one worker.
    """
    if items == 0:
        return 0, 1
    count = smaller(items, chunks_wanted(recorder, nanoseconds))
    each = -(-items // count)
    return -(-items // each), each


class Walk:
    """The loop of a kernel over the items of *axes* axes of the arrays *names*."""

    def __init__(self, names: Sequence[str], axes: int) -> None:
        self.names = tuple(names)
        self.axes = axes
        self.words = (
            *names,
            "items",
            "each",
            *(f"size{axis}" for axis in range(axes)),
            *(f"{name}{axis}" for axis in range(axes) for name in names),
        )

    def values(
        self, addresses: Sequence[Word], axes: Sequence[Axis], each: int
    ) -> dict[str, Word]:
        """The words; a chunk takes *each* items, the last one what is left."""
        values: dict[str, Word] = dict(zip(self.names, addresses, strict=True))
        items = 1
        for number, axis in enumerate(axes):
            items *= axis.size
            values[f"size{number}"] = axis.size
            for name, stride in zip(self.names, axis.strides, strict=True):
                values[f"{name}{number}"] = stride
        return values | {"items": items, "each": each}

    def write(
        self, k: KernelFunction, body: Callable[[list[Value], list[Value]], None]
    ) -> None:
        """Emit ``body(pointers, indices)`` for each item of the chunk, in order."""
        f = k.function
        bases = [k.pointer(name) for name in self.names]
        if self.axes == 0:
            body(bases, [])
            return
        nest = _Nest(
            f,
            [k.integer(f"size{axis}") for axis in range(self.axes)],
            [
                [k.integer(f"{name}{axis}") for name in self.names]
                for axis in range(self.axes)
            ],
        )
        each = k.integer("each")
        begin = k.chunk * each
        end = f.minimum(begin + each, k.integer("items"))
        indices = nest.indices(begin)
        pointers = [
            f.at(base, _dot(indices, [s[number] for s in nest.strides]), I8)
            for number, base in enumerate(bases)
        ]
        count = len(pointers)

        def turn(_: Value, *carried: Value) -> list[Value]:
            at, now = list(carried[:count]), list(carried[count:])
            body(at, now)
            return nest.advance(self.axes - 1, at, now)

        f.loop(end, turn, [*pointers, *indices], start=begin)


class _Nest:
    """The axes of a walk: their sizes, and strides and steps for each array.

    A step is what a pointer moves by when an axis advances and all inner ones begin
    anew.
    """

    def __init__(
        self, f: Function, sizes: list[Value], strides: list[list[Value]]
    ) -> None:
        self.f, self.sizes, self.strides = f, sizes, strides
        self.steps = [strides[-1]]
        for axis in range(len(sizes) - 2, -1, -1):
            backs = [sizes[axis + 1] * stride for stride in strides[axis + 1]]
            each = zip(self.steps[0], strides[axis], backs, strict=True)
            inner = [step + (stride - back) for step, stride, back in each]
            self.steps.insert(0, inner)

    def indices(self, item: Value) -> list[Value]:
        """Where an item is along each axis."""
        indices: list[Value] = []
        for size in reversed(self.sizes[1:]):
            indices.insert(0, item % size)
            item = item // size
        return [item, *indices]

    def advance(self, axis: int, at: list[Value], now: list[Value]) -> list[Value]:
        """Pointers and indices one step further along *axis*."""
        f = self.f
        following = now[axis] + 1
        after = [*now[:axis], following, *now[axis + 1 :]]

        def here() -> list[Value]:
            moved = zip(at, self.steps[axis], strict=True)
            return [*(f.at(p, step, I8) for p, step in moved), *after]

        if axis == 0:
            return here()
        fresh = [*now[:axis], f.value(0, I64), *now[axis + 1 :]]
        return f.branch(
            following < self.sizes[axis],
            here,
            lambda: self.advance(axis - 1, at, fresh),
        )


def _dot(indices: Sequence[Value], strides: Sequence[Value]) -> Value:
    total = indices[0] * strides[0]
    for index, stride in zip(indices[1:], strides[1:], strict=True):
        total = total + index * stride
    return total
