"""What is kept by a condition, written one after another, and how much it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, held, stored
from onnxplug_cpu.compiler.codegen.row_copy import copy_row, from_memory
from onnxplug_cpu.compiler.kernels.selection.keys import (
    chosen_bits,
    count_bits,
    each_bit,
)
from onnxplug_cpu.compiler.kernels.sweep import sweep

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


class NonZero(Generator):
    """Where elements are not zero, a row of places for each axis; one chunk.

    Attributes:
        axes: of x, at least one.
        element: of x.
        strided: elements along the last axis are apart.
    """

    axes: int
    element: str
    strided: bool

    @property
    def words(self) -> tuple[str, ...]:
        sizes = (f"size{axis}" for axis in range(self.axes))
        steps = (f"step{axis}" for axis in range(self.axes))
        return ("x", "rows", *sizes, *steps, "out", "total")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _NonZero(self, KernelFunction(module, name, self.words), isa)


class _NonZero:
    """Writes the function, which goes over x twice: places of an axis are written
    behind all of those of the axes before."""

    def __init__(self, form: NonZero, k: KernelFunction, isa: Isa) -> None:
        f = self.f = k.function
        self.form, self.k = form, k
        # bool is a byte that is 0 or not
        self.element = "u8" if form.element == "i1" else form.element
        self.itemsize = stored(self.element).nbytes
        self.lanes = Lanes(f, isa, 64 // held(self.element).nbytes)
        self.lanes.reserve_for(self.element, form.strided)
        axes = range(form.axes)
        self.sizes = [k.integer(f"size{axis}") for axis in axes]
        self.steps = [k.integer(f"step{axis}") for axis in axes]
        self.x, self.out, self.rows = (
            k.pointer("x"),
            k.pointer("out"),
            k.integer("rows"),
        )
        begin = [f.value(0, I64)]
        (total,) = f.loop(self.rows, self._count, begin)
        f.store(total, k.pointer("total"))
        self.total = total
        f.loop(self.rows, self._write, begin)
        f.finish()

    def _row(self, row: Value) -> tuple[Value, list[Value]]:
        """Where a row along the last axis begins, and its places along the others."""
        f, rest = self.f, row
        places: list[Value] = []
        for size in reversed(self.sizes[:-1]):
            places.insert(0, rest % size)
            rest = rest // size
        start = self.x
        for place, step in zip(places, self.steps[:-1], strict=True):
            start = f.at(start, place * step, I8)
        return start, places

    def _bits(self, start: Value, first: Value, part: Part) -> Value:
        step = self.steps[-1] if self.form.strided else self.itemsize
        place = self.f.at(start, first * step, I8)
        found = self.lanes.load(
            self.element, place, part, self.steps[-1] if self.form.strided else None
        )
        return chosen_bits(self.f, found.compare("ne", 0), part)

    def _count(self, row: Value, total: Value) -> list[Value]:
        start, _ = self._row(row)

        def some(first: Value, part: Part, total: Value) -> list[Value]:
            return [total + count_bits(self.f, self._bits(start, first, part))]

        return sweep(self.f, self.lanes, self.sizes[-1], some, [total])

    def _write(self, row: Value, count: Value) -> list[Value]:
        f = self.f
        start, places = self._row(row)

        def some(first: Value, part: Part, count: Value) -> list[Value]:
            bits = self._bits(start, first, part)

            def one(lane: Value, count: Value) -> list[Value]:
                at = f.at(self.out, count, I64)
                for place in (*places, first + lane):
                    f.store(place, at)
                    at = f.at(at, self.total, I64)
                return [count + 1]

            return f.branch(
                bits.compare("ne", 0),
                lambda: each_bit(f, bits, one, [count]),
                lambda: [count],
            )

        return sweep(f, self.lanes, self.sizes[-1], some, [count])


class KeptRows(Generator):
    """The parts of x along an axis that places name; one chunk.

    Attributes:
        class_: of the length of what is copied for a place.
    """

    class_: str

    @property
    def words(self) -> tuple[str, ...]:
        return ("x", "x_step", "outer", "places", "total", "out", "nbytes")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        total = f.load(k.pointer("total"), I64)
        x, out, places = (k.pointer(word) for word in ("x", "out", "places"))
        x_step, nbytes = k.integer("x_step"), k.integer("nbytes")

        def part(number: Value) -> None:
            from_, to = f.at(x, number * x_step, I8), number * total

            def one(index: Value) -> None:
                place = f.load(f.at(places, index, I64), I64)
                source = f.at(from_, place * nbytes, I8)
                target = f.at(out, (to + index) * nbytes, I8)
                copy_row(f, target, from_memory(f, source), nbytes, self.class_)

            f.loop(total, one)

        f.loop(k.integer("outer"), part)
        f.finish()
