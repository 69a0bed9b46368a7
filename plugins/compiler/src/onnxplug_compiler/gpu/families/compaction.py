"""Elements that are kept: each is flagged, and what is before it is summed."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families import ranks
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.gpu.families.ranking import record_ranks
from onnxplug_compiler.gpu.families.sums import record_sums
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body, Operand, Pair
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_WORD: Final = np.dtype(np.uint32)


def _flag(body: Body, number: int, at: str, condition: str) -> None:
    value = body.let("u32", body.dialect.select(condition, "1u", "0u"))
    body.store(number, body.place(number, [at]), value)


def record_none(recorder: Recorder[Any], count: View) -> None:
    """Say that nothing is kept."""
    zeros = recorder.constant(np.zeros(count.shape, count.dtype))
    record_copy(recorder, zeros, count)


class NonZeroKernel(Parameters):
    """Flags what is not zero; the sizes are how many elements there are, and those of
    the axes."""

    element: str
    rank: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.element, self.rank), Operand("u32", 1, True)

    @property
    def sizes(self) -> int:
        return 1 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, self.sizes))
            value = body.load(0, body.place(0, at))
            if self.element in PAIRED:
                found = f"({value.low} | {value.high}) != 0u"
            elif KINDS[self.element] == "i1":
                found = value
            elif KINDS[self.element] == "f32":
                # by its bits, as compilers may take it that all are numbers
                bits = body.dialect.reinterpret("u32", value)
                found = f"({bits} << 1u) != 0u"
            else:
                found = f"{value} != {body.number(KINDS[self.element], 0)}"
            _flag(body, 1, index, found)


class PlacesKernel(Parameters):
    """Writes the coordinates of what is flagged; the sizes are how many elements there
    are, and those of the axes.  The arrays are the flags, what is before each, how many
    there are, and the coordinates."""

    rank: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        word = Operand("u32", 1)
        return word, word, Operand("i64", 0), Operand("i64", 1, True)

    @property
    def sizes(self) -> int:
        return 1 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            flag = body.load(0, body.place(0, [index]))
            with body.when(f"{flag} != 0u"):
                before = body.load(1, body.place(1, [index]))
                total = body.load(2, body.place(2, [])).low
                at = body.coordinates(index, range(1, self.sizes))
                for axis, coordinate in enumerate(at):
                    place = body.let("u32", f"{axis}u * {total} + {before}")
                    body.store(3, body.place(3, [place]), Pair(coordinate, "0u"))


def record_non_zero(recorder: Recorder[Any], x: View, out: View, count: View) -> None:
    """Where elements are not zero; see ``ir.selection.Selection``."""
    if not x.size:
        record_none(recorder, count)
        return
    rank, sizes = len(x.shape), (x.size, *x.shape)
    groups = math.ceil(x.size / LANES)
    flags = recorder.temporary(_WORD, (x.size,))
    kernel = NonZeroKernel(operand(x).element, rank)
    launch(recorder, kernel, [x, flags], sizes, groups, "NonZero")
    before = record_sums(recorder, flags, count, "NonZero")
    views = [flags, before, _scalar(count), _flat(out)]
    launch(recorder, PlacesKernel(rank), views, sizes, groups, "NonZero")


def _scalar(view: View) -> View:
    return View(view.buffer, view.offset, view.dtype, (), ())


def _flat(view: View) -> View:
    """An array in C order as one axis."""
    return View.contiguous(view.buffer, view.dtype, (view.size,), view.offset)


class ConditionKernel(Parameters):
    """Flags what a condition is true of; the size is how long it is."""

    lanes = LANES
    sizes = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("i1", 1), Operand("u32", 1, True)

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            _flag(body, 1, index, body.load(0, body.place(0, [index])))


class CompressKernel(Parameters):
    """Takes the parts that are flagged; the sizes are how many elements may be taken,
    and of these the axes: outer ones, flags, inner ones.  The arrays are those, the
    flags, what is before each, how many there are, and the result, in C order."""

    data: Operand

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        word = Operand("u32", 1)
        result = Operand(self.data.element, 1, True)
        return self.data, word, word, Operand("i64", 0), result

    @property
    def sizes(self) -> int:
        return 1 + self.data.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, self.sizes))
            with body.when(f"{body.load(1, body.place(1, [at[1]]))} != 0u"):
                before = body.load(2, body.place(2, [at[1]]))
                total = body.load(3, body.place(3, [])).low
                place = f"({at[0]} * {total} + {before})"
                for axis, coordinate in enumerate(at[2:], 3):
                    place = f"({place} * {body.size(axis)} + {coordinate})"
                value = body.load(0, body.place(0, at))
                body.store(4, body.place(4, [body.let("u32", place)]), value)


def record_compress(
    recorder: Recorder[Any],
    x: View,
    condition: View,
    out: View,
    count: View,
) -> None:
    """The parts for which a condition is true; see ``ir.selection.Selection``."""
    size = condition.size
    if not size:
        record_none(recorder, count)
        return
    flags = recorder.temporary(_WORD, (size,))
    groups = math.ceil(size / LANES)
    launch(recorder, ConditionKernel(), [condition, flags], (size,), groups, "Compress")
    before = record_sums(recorder, flags, count, "Compress")
    data = as_bits(x.slice((0, 0, 0), (x.shape[0], size, x.shape[2])))
    if not data.size:
        return
    launch(
        recorder,
        CompressKernel(operand(data)),
        [data, flags, before, _scalar(count), _flat(as_bits(out))],
        (data.size, *data.shape),
        math.ceil(data.size / LANES),
        "Compress",
    )


class RunKernel(Parameters):
    """Flags where a run of equal elements begins in a sorted line; the size is how many
    elements there are.  The arrays are the words of their order, and the flags."""

    words: int

    lanes = LANES
    sizes = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        return *[Operand("u32", 1)] * self.words, Operand("u32", 1, True)

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            near = body.dialect.select(f"{index} == 0u", "0u", f"{index} - 1u")
            ahead = body.let("u32", near)
            differs = [f"{index} == 0u"]
            for number in range(self.words):
                one, other = (
                    body.load(number, body.place(number, [at])) for at in (index, ahead)
                )
                differs.append(f"{one} != {other}")
            _flag(body, self.words, index, " || ".join(differs))


class DistinctKernel(Parameters):
    """Writes what begins runs, where these are first, which run each element is of, and
    where each begins in order; the size is how many elements there are.

    The arrays are the places in order, the flags, what is before each, the elements,
    and what is written.
    """

    data: Operand

    lanes = LANES
    sizes = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        word, number = Operand("u32", 1), Operand("i64", 1, True)
        return (
            *[word] * 3,
            self.data,
            self.data._replace(written=True),
            number,
            number,
            word._replace(written=True),
        )

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            place, flag, before = (
                body.load(number, body.place(number, [index])) for number in range(3)
            )
            run = body.let("u32", f"{before} + {flag} - 1u")
            body.store(6, body.place(6, [place]), Pair(run, "0u"))
            with body.when(f"{flag} != 0u"):
                for half in (["0u"], ["1u"]) if self.data.rank > 1 else ([],):
                    value = body.load(3, body.place(3, [place, *half]))
                    body.store(4, body.place(4, [run, *half]), value)
                body.store(5, body.place(5, [run]), Pair(place, "0u"))
                body.store(7, body.place(7, [run]), index)


class RunLengthKernel(Parameters):
    """How many elements each run has; the size is how many elements there are.  The
    arrays are where runs begin, how many there are, and the result."""

    lanes = LANES
    sizes = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("u32", 1), Operand("i64", 0), Operand("i64", 1, True)

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        total = body.let("u32", body.load(1, body.place(1, [])).low)
        with body.when(f"{index} < {total}"):
            begin = body.load(0, body.place(0, [index]))
            is_last = body.let("i1", f"{index} + 1u == {total}")
            after = body.let("u32", body.dialect.select(is_last, "0u", f"{index} + 1u"))
            following = body.load(0, body.place(0, [after]))
            end = body.dialect.select(is_last, body.size(0), following)
            length = body.let("u32", f"{end} - {begin}")
            body.store(2, body.place(2, [index]), Pair(length, "0u"))


def record_distinct(
    recorder: Recorder[Any],
    x: View,
    values: View,
    firsts: View,
    inverse: View,
    counts: View,
    count: View,
) -> None:
    """The distinct elements; see ``ir.selection.Selection``."""
    if not x.size:
        record_none(recorder, count)
        return
    element, label, size = operand(x).element, "Unique", (x.size,)
    groups = math.ceil(x.size / LANES)
    *words, places = record_ranks(recorder, x, largest=False, label=label)
    flags = recorder.temporary(_WORD, size)
    kernel = RunKernel(ranks.count_of(element))
    launch(recorder, kernel, [*words, flags], size, groups, label)
    before = record_sums(recorder, flags, count, label)
    begins = recorder.temporary(_WORD, size)
    data = as_bits(x)
    views = [places, flags, before, data, as_bits(values), firsts, inverse, begins]
    launch(recorder, DistinctKernel(operand(data)), views, size, groups, label)
    views = [begins, _scalar(count), counts]
    launch(recorder, RunLengthKernel(), views, size, groups, label)
