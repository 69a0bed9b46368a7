"""Elements that are found by indices; those move as bits.

Indices of int64 are two words: one that is no int32 is out of range anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import largest, smallest
from onnxplug_compiler.gpu.render.steps import fitted
from onnxplug_compiler.ir.elements import SUB_BYTE
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_WORD: Final = np.dtype(np.uint32)
_FLAG: Final = Operand("flag", 0, True)


class _Indexed(Parameters):
    """What kernels with indices have in common; their arrays are the data, the indices,
    the target and the flag, and the first sizes how many invocations there are."""

    data: Operand
    indices: Operand
    target: Operand

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.data, self.indices, self.target, _FLAG

    def checked(self, body: Body, at: Sequence[str], size: str) -> str:
        """The index that lies at *at*, counted from the front of an axis of *size*;
        where it is out of range, the flag is raised, and it is 0."""
        signed, fits = signed_index(body, self.indices, 1, at)
        return _checked(body, signed, fits, size, 3)


def _combined(body: Body, reduction: str, value: str, place: str) -> str:
    """What is written to a place of the target, of which it may be a part."""
    if reduction == "none":
        return value
    element = body.element(2)
    kind = KINDS[element]
    known = body.load(2, place)
    if reduction in ("max", "min"):
        extreme = largest if reduction == "max" else smallest
        return body.let(kind, extreme(body, kind, known, value))
    operator = "Mul" if reduction == "mul" else "Add"
    found = f"{known} {'*' if reduction == 'mul' else '+'} {value}"
    return fitted(body, element, operator, found)


def signed_index(
    body: Body, indices: Operand, number: int, at: Sequence[str]
) -> tuple[str, str]:
    """An index as an int32, and whether it is one."""
    if indices.element == "i32":
        return body.load(number, body.place(number, at)), "true"
    low = body.load(number, body.place(number, [*at, "0u"]))
    high = body.load(number, body.place(number, [*at, "1u"]))
    signed = body.let("i32", body.dialect.reinterpret("i32", low))
    top = body.dialect.reinterpret("i32", high)
    return signed, body.let("i1", f"{top} == ({signed} >> 31u)")


def _checked(body: Body, signed: str, fits: str, size: str, flag: int) -> str:
    from_front = body.let(
        "i32", body.dialect.select(f"{signed} < 0", f"{signed} + i32({size})", signed)
    )
    found = f"{fits} && {from_front} >= 0 && {from_front} < i32({size})"
    is_in = body.let("i1", found)
    with body.when(f"!{is_in}"):
        body.raise_flag(flag)
    return body.let("u32", body.dialect.select(is_in, f"u32({from_front})", "0u"))


class GatherKernel(_Indexed):
    """``numpy.take``; the sizes are how many elements there are, the size of the data's
    axis, and the target's."""

    axis: int
    index_rank: int

    @property
    def sizes(self) -> int:
        return 2 + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(2, self.sizes))
            end = self.axis + self.index_rank
            index = self.checked(body, at[self.axis : end], body.size(1))
            place = body.place(0, [*at[: self.axis], index, *at[end:]])
            body.store(2, body.place(2, at), body.load(0, place))


class GatherElementsKernel(_Indexed):
    """``numpy.take_along_axis``; sizes as of :class:`GatherKernel`."""

    axis: int
    index_rank: int

    @property
    def sizes(self) -> int:
        return 2 + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(2, self.sizes))
            index = self.checked(body, at[: self.index_rank], body.size(1))
            where = [*at[: self.axis], index, *at[self.axis + 1 :]]
            body.store(2, body.place(2, at), body.load(0, body.place(0, where)))


class GatherNDKernel(_Indexed):
    """ONNX's GatherND; the sizes are how many elements there are, those of the data's
    axes that have indices, and the target's."""

    batch: int
    outer: int
    indexed: int

    @property
    def sizes(self) -> int:
        return 1 + self.indexed + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(1 + self.indexed, self.sizes))
            before = at[: self.batch + self.outer]
            found = [
                self.checked(body, [*before, f"{axis}u"], body.size(1 + axis))
                for axis in range(self.indexed)
            ]
            where = [*at[: self.batch], *found, *at[self.batch + self.outer :]]
            body.store(2, body.place(2, at), body.load(0, body.place(0, where)))


class ScatterElementsKernel(_Indexed):
    """Writes updates, which are the data, into the target, one line along the axis
    after the other, so that several for one place are combined, or the last is kept.

    The sizes are how many lines there are, how many updates each has, the size of the
    target's axis, and those of the updates' axes but that one.
    """

    axis: int
    index_rank: int
    reduction: str

    @property
    def sizes(self) -> int:
        return 2 + self.data.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            line = body.coordinates(number, range(3, self.sizes))
            with body.loop(body.size(1)) as step:
                at = [*line[: self.axis], step, *line[self.axis :]]
                index = self.checked(body, at[: self.index_rank], body.size(2))
                where = [*at[: self.axis], index, *at[self.axis + 1 :]]
                value = body.load(0, body.place(0, at))
                place = body.place(2, where)
                body.store(2, place, _combined(body, self.reduction, value, place))


class ScatterNDKernel(_Indexed):
    """ONNX's ScatterND: invocations share a slice, and go from update to update.

    The sizes are how many elements a slice has, how many updates there are, the
    target's axes that have indices, those of a slice, and those that count updates.
    """

    outer: int
    indexed: int
    reduction: str

    @property
    def sizes(self) -> int:
        return 2 + self.indexed + self.data.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            first = 2 + self.indexed
            inner = self.data.rank - self.outer
            within = body.coordinates(number, range(first, first + inner))
            with body.loop(body.size(1)) as update:
                at = body.coordinates(update, range(first + inner, self.sizes))
                found = [
                    self.checked(body, [*at, f"{axis}u"], body.size(2 + axis))
                    for axis in range(self.indexed)
                ]
                value = body.load(0, body.place(0, [*at, *within]))
                place = body.place(2, [*found, *within])
                body.store(2, place, _combined(body, self.reduction, value, place))


def index_words(indices: View) -> View:
    """Indices as kernels read them: those of int64 in words."""
    if indices.dtype.itemsize == 8:
        return as_bits(indices)
    return indices


def _record(
    recorder: Recorder[Any],
    make: Any,
    data: View,
    indices: View,
    target: View,
    numbers: Sequence[Any],
    sizes: Sequence[int],
    count: int,
    label: str,
) -> None:
    """Record a kernel that *make* makes of its operands and *numbers*."""
    flag = recorder.check(lambda _: IndexError(f"an index of {label} is out of range"))
    words = index_words(indices)
    kernel = make(
        operand(data), operand(words), operand(target, written=True), *numbers
    )
    raised = View.contiguous(flag.buffer, _WORD, (), flag.offset)
    views = [data, words, target, raised]
    launch(recorder, kernel, views, sizes, math.ceil(count / LANES), label)


def record_gather(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "Gather",
) -> None:
    """``numpy.take``; see ``ir.families.Indexing``."""
    if not target.size:
        return
    axis %= len(data.shape)
    _no_empty_axes(data.shape[axis : axis + 1], label)
    size, rank = data.shape[axis], len(indices.shape)
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, size, *target.shape)
    _record(
        recorder, GatherKernel, data, indices, target, (axis, rank), sizes,
        target.size, label,
    )  # fmt: skip


def record_gather_elements(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "GatherElements",
) -> None:
    """``numpy.take_along_axis``; see ``ir.families.Indexing``."""
    if not target.size:
        return
    axis %= len(data.shape)
    _no_empty_axes(data.shape, label)
    size, rank = data.shape[axis], len(indices.shape)
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, size, *target.shape)
    _record(
        recorder, GatherElementsKernel, data, indices, target, (axis, rank), sizes,
        target.size, label,
    )  # fmt: skip


def record_gather_nd(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    batch_dims: int = 0,
    *,
    label: str = "GatherND",
) -> None:
    """ONNX's GatherND; see ``ir.families.Indexing``."""
    if not target.size:
        return
    _no_empty_axes(data.shape, label)
    count, outer = indices.shape[-1], len(indices.shape) - 1 - batch_dims
    known = data.shape[batch_dims : batch_dims + count]
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, *known, *target.shape)
    numbers = (batch_dims, outer, count)
    _record(
        recorder, GatherNDKernel, data, indices, target, numbers, sizes, target.size,
        label,
    )  # fmt: skip


def record_scatter_elements(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    updates: View,
    target: View,
    axis: int,
    *,
    reduction: str = "none",
    label: str = "ScatterElements",
) -> None:
    """Write updates along an axis; see ``ir.families.Indexing``."""
    _copied(recorder, data, target, label)
    if not updates.size:
        return
    axis %= len(data.shape)
    _no_empty_axes(target.shape, label)
    size, rank = target.shape[axis], len(indices.shape)
    updates, target = _for(reduction, updates), _for(reduction, target)
    others = [n for each, n in enumerate(updates.shape) if each != axis]
    lines = math.prod(others)
    sizes = (lines, updates.shape[axis], size, *others)
    numbers = (axis, rank, reduction)
    _record(
        recorder, ScatterElementsKernel, updates, indices, target, numbers, sizes,
        lines, label,
    )  # fmt: skip


def record_scatter_nd(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    updates: View,
    target: View,
    *,
    reduction: str = "none",
    label: str = "ScatterND",
) -> None:
    """ONNX's ScatterND; see ``ir.families.Indexing``."""
    _copied(recorder, data, target, label)
    if not updates.size:
        return
    _no_empty_axes(target.shape, label)
    count, outer = indices.shape[-1], len(indices.shape) - 1
    known = target.shape[:count]
    updates, target = _for(reduction, updates), _for(reduction, target)
    inner = updates.shape[outer:]
    sizes = (
        math.prod(inner),
        math.prod(updates.shape[:outer]),
        *known,
        *inner,
        *updates.shape[:outer],
    )
    numbers = (outer, count, reduction)
    _record(
        recorder, ScatterNDKernel, updates, indices, target, numbers, sizes,
        math.prod(inner), label,
    )  # fmt: skip


def _for(reduction: str, view: View) -> View:
    """An array whose elements move, or are combined.

    Raises:
        ValueError: there is no arithmetic of them.
    """
    if reduction == "none":
        return as_bits(view)
    if operand(view).element not in KINDS.keys() - SUB_BYTE - {"i1"}:
        raise ValueError(f"{view.dtype} is not combined")
    return view


def _copied(recorder: Recorder[Any], data: View, target: View, label: str) -> None:
    same = data.buffer is target.buffer and data.offset == target.offset
    if not same:
        record_copy(recorder, data, target, label=label)


def _no_empty_axes(shape: Sequence[int], label: str) -> None:
    """Where an index that is out of range may be taken for 0.

    Raises:
        ValueError: there is nothing at 0.
    """
    if 0 in shape:
        raise ValueError(f"{label} of an array without elements")
