"""Where the largest or smallest element along an axis is.

Along rows, blocks of which only the extreme is found, and then its place in the best
block; across rows, columns side by side in lanes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import (
    I8,
    I32,
    I64,
    Function,
    Module,
    Number,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, held, stored
from onnxplug_cpu.compiler.kernels.loop_nest import Walk
from onnxplug_cpu.compiler.kernels.reduction.accumulator import maximum, minimum
from onnxplug_cpu.compiler.kernels.selection.keys import (
    chosen_bits,
    first_bit,
    last_bit,
)
from onnxplug_cpu.compiler.kernels.sweep import sweep

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_SIDE: Final = 4
"""Vectors side by side, as a comparison waits for the one before."""
_BLOCK: Final = 32
"""Vectors of a block, of which one place is found in the end."""
COLUMNS: Final = 256
"""Columns that a chunk takes at least."""


class _Order:
    """Which of two elements is preferred; NaN to all numbers, the first or the last of
    equal ones."""

    def __init__(self, f: Function, type_: Type, *, largest: bool, last: bool) -> None:
        self.f, self.largest, self.last = f, largest, last
        self.worst = _limit(type_, lowest=largest)

    def join(self, a: Value, b: Value) -> Value:
        """The preferred of two."""
        return (maximum if self.largest else minimum)(self.f, a, b)

    def prefers(self, x: Value, to: Value) -> Value:
        """Whether *x*, which comes later, is preferred."""
        predicate = ("g" if self.largest else "l") + ("e" if self.last else "t")
        better = x.compare(predicate, to)
        if not x.type.is_float:
            return better
        missing = x.compare("ne", x)
        if not self.last:
            missing = missing & to.compare("eq", to)
        return better | missing


def _limit(type_: Type, *, lowest: bool) -> Number:
    """What no element is below, or above."""
    if type_.is_float:
        return -math.inf if lowest else math.inf
    least = -(1 << type_.bits - 1) if type_.is_signed else 0
    return least if lowest else least + (1 << type_.bits) - 1


class ArgAlong(Generator):
    """Rows whose elements are along the lanes.  A chunk is some rows.

    Attributes:
        axes: of rows.
        element: of x.
        largest: not the smallest.
        last: of equal ones the last.
        strided: elements of a row are apart.
    """

    axes: int
    element: str
    largest: bool
    last: bool
    strided: bool

    @property
    def walk(self) -> Walk:
        return Walk(("x", "out"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "size", "step")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Along(self, KernelFunction(module, name, self.words), isa)


class _Along:
    """Writes the function."""

    def __init__(self, form: ArgAlong, k: KernelFunction, isa: Isa) -> None:
        f = self.f = k.function
        self.form = form
        self.element = _compared(form.element)
        self.itemsize = stored(self.element).nbytes
        self.width = 64 // held(self.element).nbytes
        self.lanes = Lanes(f, isa, self.width)
        self.lanes.reserve_for(self.element, form.strided)
        type_ = held(self.element, self.width)
        self.order = _Order(f, type_, largest=form.largest, last=form.last)
        self.start = f.value(self.order.worst, type_)
        self.size = k.integer("size")
        self.step = k.integer("step") if form.strided else None
        form.walk.write(k, self._row)
        f.finish()

    def _load(self, x: Value, index: Value, part: Part) -> Value:
        step = self.itemsize if self.step is None else self.step
        place = self.f.at(x, index * step, I8)
        return self.lanes.load(self.element, place, part, self.step)

    def _row(self, pointers: list[Value], _: list[Value]) -> None:
        f = self.f
        x, out = pointers
        each = _BLOCK * self.width

        def block(first: Value, best: Value, at: Value) -> list[Value]:
            extreme = self._extreme(x, first, f.minimum(first + each, self.size))
            better = self.order.prefers(extreme, best)
            return [f.select(better, extreme, best), f.select(better, first, at)]

        begin = [f.value(self.order.worst, self.start.type.scalar)]
        begin.append(f.value(0, I64))
        best, at = f.loop(self.size, block, begin, step=each, nonempty=True)
        f.store(self._place(x, best, at, f.minimum(at + each, self.size)), out)

    def _extreme(self, x: Value, first: Value, end: Value) -> Value:
        """The extreme of the elements from *first* to *end*."""
        f, join, width = self.f, self.order.join, self.width
        whole = self.lanes.whole()

        def side(index: Value, *totals: Value) -> list[Value]:
            return [
                join(total, self._load(x, index + n * width, whole))
                for n, total in enumerate(totals)
            ]

        rest = first + ((end - first) & -(_SIDE * width))
        starts = [self.start] * _SIDE
        total, *others = f.loop(rest, side, starts, start=first, step=_SIDE * width)
        for other in others:
            total = join(total, other)

        def one(index: Value, part: Part, total: Value) -> list[Value]:
            found = self._load(x, index, part)
            if part.mask is not None:
                found = f.select(part.mask, found, self.start)
            return [join(total, found)]

        (total,) = sweep(f, self.lanes, end, one, [total], start=rest)
        lanes = width
        while lanes > 1:
            lanes //= 2
            low = f.shuffle(total, total, range(lanes))
            high = f.shuffle(total, total, range(lanes, 2 * lanes))
            total = join(low, high)
        return f.lane(total, 0)

    def _place(self, x: Value, best: Value, first: Value, end: Value) -> Value:
        """Where *best* is from *first* to *end*."""
        f = self.f
        wanted = f.splat(best, self.width)

        def found(index: Value, part: Part, at: Value) -> list[Value]:
            there = self._load(x, index, part)
            same = there.compare("eq", wanted)
            if there.type.is_float:
                missing = there.compare("ne", there) & wanted.compare("ne", wanted)
                same = same | missing
            bits = chosen_bits(f, same, part)
            lane = (last_bit if self.form.last else first_bit)(f, bits)
            known = bits.compare("ne", 0)
            if not self.form.last:
                known = known & (at < 0)
            return [f.select(known, index + lane, at)]

        begin = [f.value(-1, I64)]
        (at,) = sweep(f, self.lanes, end, found, begin, start=first)
        return at


def _compared(element: str) -> str:
    """bool is compared as bytes."""
    return "u8" if element == "i1" else element


class ArgAcross(Generator):
    """Columns along the lanes.  The last axis of the walk counts blocks of columns.

    Attributes:
        axes: of blocks.
        element: of x.
        largest: not the smallest.
        last: of equal ones the last.
        strided: the places of columns are written apart.
    """

    axes: int
    element: str
    largest: bool
    last: bool
    strided: bool

    @property
    def walk(self) -> Walk:
        return Walk(("x", "out"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "size", "step", "columns", "out_step")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Across(self, KernelFunction(module, name, self.words), isa)


class _Across:
    """Writes the function."""

    def __init__(self, form: ArgAcross, k: KernelFunction, isa: Isa) -> None:
        f = self.f = k.function
        self.form = form
        self.element = _compared(form.element)
        self.itemsize = stored(self.element).nbytes
        self.lanes = Lanes(f, isa)
        self.lanes.reserve_for(self.element, False)
        self.lanes.reserve_for("i64", form.strided)
        self.size, self.step = k.integer("size"), k.integer("step")
        self.columns = k.integer("columns")
        self.out_step = k.integer("out_step") if form.strided else None
        form.walk.write(k, self._block)
        f.finish()

    def _block(self, pointers: list[Value], indices: list[Value]) -> None:
        f, (x, out) = self.f, pointers
        count = f.minimum(self.columns - indices[-1] * COLUMNS, COLUMNS)

        def some(first: Value, part: Part) -> None:
            places = self._places(f.at(x, first * self.itemsize, I8), part)
            wide = f.convert(places, I64.vector(self.lanes.width))
            by = I64.nbytes if self.out_step is None else self.out_step
            place = f.at(out, first * by, I8)
            self.lanes.store("i64", wide, place, part, self.out_step)

        sweep(f, self.lanes, count, some)

    def _places(self, x: Value, part: Part) -> Value:
        """The places of some columns."""
        f, width = self.f, self.lanes.width
        first = self.lanes.load(self.element, x, part)
        form = self.form
        order = _Order(f, first.type, largest=form.largest, last=form.last)

        def row(index: Value, best: Value, places: Value) -> list[Value]:
            there = f.at(x, index * self.step, I8)
            found = self.lanes.load(self.element, there, part)
            better = order.prefers(found, best)
            here = f.splat(f.convert(index, I32), width)
            return [f.select(better, found, best), f.select(better, here, places)]

        begin = [first, f.zero(I32.vector(width))]
        _, places = f.loop(self.size, row, begin, start=1)
        return places
