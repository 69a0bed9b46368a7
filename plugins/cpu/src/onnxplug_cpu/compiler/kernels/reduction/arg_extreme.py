"""Positions of the largest or smallest elements along an axis."""

from __future__ import annotations

import math

import numpy as np

from onnxplug_cpu.compiler.codegen.emit import I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.reduction.accumulator import maximum, minimum
from onnxplug_cpu.compiler.kernels.rows import (
    Axes,
    Elements,
    Walk,
    byte_strides,
    chunk_size,
    element_of,
    lanes_of,
    spread,
    walk_words,
)
from onnxplug_cpu.compiler.target.isa import Isa

_NANOSECONDS = 0.3
"""What one element takes, about."""


def record_arg_extreme(
    recorder: Recorder,
    x: View,
    out: View,
    axis: int,
    *,
    largest: bool,
    last: bool = False,
    label: str = "",
) -> None:
    """ArgMax or ArgMin: NaN is beyond all numbers, as it is for numpy.

    Args:
        x: f32, f64, i32 or i64, any strides; fastest where *axis* or another axis has
            stride 1.
        out: int64, any strides; *axis* is of size 1 or left out.
        axis: of fewer than 2**31 elements, and at least one.
        largest: or the smallest.
        last: the last of equal elements, not the first.
        label: for profiles.
    """
    element = element_of(x)
    if element == "i1" or out.dtype_name != "int64" or not x.shape[axis]:
        raise ValueError(
            f"no kernel for positions {out.dtype} in {x.dtype} {x.shape} along {axis}"
        )
    if not out.size:
        return
    rank, count = len(x.shape), x.shape[axis]
    strides = byte_strides(x)
    out_strides = list(byte_strides(out))
    if len(out_strides) < rank:
        out_strides.insert(axis, 0)
    others = [a for a in range(rank) if a != axis and x.shape[a] != 1]
    others.sort(key=lambda a: -abs(strides[a]))
    down = bool(others) and abs(strides[others[-1]]) < abs(strides[axis])
    columns = others.pop() if down else None
    rows = Axes.collapsed(
        [x.shape[a] for a in others],
        [[strides[a] for a in others], [out_strides[a] for a in others]],
    )
    spacing = strides[axis if columns is None else columns]
    out_spacing = 8 if columns is None else out_strides[columns]
    form = _ArgExtreme(
        element,
        down,
        largest,
        last,
        spacing == x.dtype.itemsize,
        out_spacing == 8,
        rows.rank,
    )
    width = 1 if columns is None else x.shape[columns]
    chunk = chunk_size(rows.count, count * width * _NANOSECONDS, recorder.workers)
    recorder.call(
        Kernel(form),
        {
            "x": x.address,
            "out": out.address,
            "count": count,
            "step": strides[axis],
            "columns": width,
            "spacing": spacing,
            "out_spacing": out_spacing,
            "rows": rows.count,
            "chunk_rows": chunk,
            **rows.words("row"),
        },
        chunks=-(-rows.count // chunk),
        label=label or f"Arg{'Max' if largest else 'Min'} {x.shape}",
        flops=x.size,
        nbytes=x.nbytes + out.nbytes,
    )


class _ArgExtreme(Generator):
    """Positions of extremes; *down* if the axis runs from vector to vector."""

    element: str
    down: bool
    largest: bool
    last: bool
    near: bool
    out_near: bool
    rank: int

    @property
    def words(self) -> tuple[str, ...]:
        return (
            *("x", "out", "count", "step", "columns", "spacing", "out_spacing"),
            *("rows", "chunk_rows"),
            *walk_words("row", self.rank, 2),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        rows, chunk_rows = k.integer("rows"), k.integer("chunk_rows")
        begin = k.chunk * chunk_rows
        end = f.minimum(begin + chunk_rows, rows)
        walk = Walk(k, "row", self.rank, 2)
        search = _Search(k, self)

        def row(_: Value, *state: Value) -> list[Value]:
            x, out = walk.pointers(state)
            (search.down if self.down else search.across)(x, out)
            return walk.advance(state)

        start = walk.start([k.pointer("x"), k.pointer("out")], begin)
        f.loop(end, row, start, start=begin)
        f.finish()


class _Search:
    """Keeps the best element of each lane and its position."""

    def __init__(self, k: KernelFunction, form: _ArgExtreme) -> None:
        self.f, self.form = k.function, form
        scalar = Type(form.element)
        self.lanes = lanes_of(scalar)
        self.type = scalar.vector(self.lanes)
        # as wide as the elements, so that both have as many lanes in a register
        self.positions = Type("i32" if scalar.nbytes == 4 else "i64", self.lanes)
        self.count, self.step = k.integer("count"), k.integer("step")
        self.columns = k.integer("columns")
        self.source = Elements(
            k.function, self.type, None if form.near else k.integer("spacing")
        )
        self.target = Elements(
            k.function,
            I64.vector(self.lanes),
            None if form.out_near else k.integer("out_spacing"),
        )
        if scalar.is_float:
            self.worst = -math.inf if form.largest else math.inf
        else:
            limits = np.iinfo(f"int{scalar.bits}")
            self.worst = int(limits.min if form.largest else limits.max)

    def across(self, x: Value, out: Value) -> None:
        """One row, its elements along the lanes."""
        f, lanes = self.f, self.lanes
        full = self.count - self.count % lanes
        first = f.iota(self.positions)
        none = f.value(-1, self.positions) if self.form.last else first

        def whole(index: Value, *state: Value) -> list[Value]:
            best, at, here = state
            element = self.source.load(self.source.at(x, index))
            return [*self._better(best, at, element, here, None), here + lanes]

        def part(index: Value, *state: Value) -> list[Value]:
            best, at, here = state
            mask = f.first_lanes(self.count - index, lanes)
            place = self.source.at(x, index)
            element = self.source.load(place, mask, self.worst)
            return [*self._better(best, at, element, here, mask), here + lanes]

        state = [f.value(self.worst, self.type), none, first]
        state = f.loop(full, whole, state, step=lanes)
        best, at, _ = f.loop(self.count, part, state, start=full, step=lanes)
        extreme = maximum if self.form.largest else minimum
        top = spread(f, best, lambda a, b: extreme(f, a, b))
        chosen = best.compare("eq", top)
        if self.type.is_float:
            chosen = chosen | best.compare("ne", best)
        if self.form.last:
            at = spread(f, f.select(chosen, at, -1), lambda a, b: f.maximum(a, b))
        else:
            beyond = int(np.iinfo(np.int32).max)
            at = spread(f, f.select(chosen, at, beyond), lambda a, b: f.minimum(a, b))
        f.store(f.convert(f.lane(at, 0), I64), out)

    def down(self, x: Value, out: Value) -> None:
        """All columns, a vector of them at a time."""
        f, lanes = self.f, self.lanes
        none = -1 if self.form.last else 0

        def some(column: Value) -> None:
            mask = f.first_lanes(self.columns - column, lanes)
            start = self.source.at(x, column)

            def turn(index: Value, *state: Value) -> list[Value]:
                place = f.at(start, index * self.step, Type("i8"))
                element = self.source.load(place, mask, self.worst)
                here = f.splat(f.convert(index, self.positions.scalar), lanes)
                return self._better(state[0], state[1], element, here, None)

            state = [f.value(self.worst, self.type), f.value(none, self.positions)]
            at = f.loop(self.count, turn, state)[1]
            wide = f.convert(at, I64.vector(lanes))
            self.target.store(wide, self.target.at(out, column), mask)

        f.loop(self.columns, some, step=lanes)

    def _better(
        self, best: Value, at: Value, x: Value, here: Value, mask: Value | None
    ) -> list[Value]:
        """The better ones of what was found and the elements *x* at *here*."""
        f, form = self.f, self.form
        beyond = "gt" if form.largest else "lt"
        if form.last:
            taken = x.compare(beyond[0] + "e", best)
            if self.type.is_float:
                taken = taken | x.compare("ne", x)
        else:
            taken = x.compare(beyond, best)
            if self.type.is_float:
                number = best.compare("eq", best)
                taken = taken | (x.compare("ne", x) & number)
        if mask is not None:
            taken = taken & mask
        return [f.select(taken, x, best), f.select(taken, here, at)]
