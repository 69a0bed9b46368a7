"""The kernels of reductions.

*Across* reduces along the lanes of vectors, *down* keeps the lanes and reduces from row
to row; *short* reduces rows of a few vectors, as many rows at once as there are lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onnxplug_cpu.compiler.codegen import math
from onnxplug_cpu.compiler.codegen.emit import (
    I8,
    I64,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.reduction.accumulator import (
    BLOCK,
    Accumulator,
    Fold,
    fold_of,
)
from onnxplug_cpu.compiler.kernels.rows import (
    Elements,
    Walk,
    lanes_of,
    opaque,
    walk_words,
)
from onnxplug_cpu.compiler.machine.isa import Isa

MOMENTS = "Moments"
"""The kind of reduction that gives two results: the mean, and the variance."""


class ReductionWords(KernelWords):
    """Words of :class:`Reduction`.

    Addresses; ``rows``, the places of the kept axes without the innermost one, and
    those of a chunk; ``count``, the elements that become one; ``inner``, the size of
    the innermost axis, and its stride in bytes.  By name: the axes; the columns of a
    chunk, the ``parts`` that they are divided into, and the output's stride;
    ``variances``, how far behind a mean its variance is written.
    """

    x: Pointer
    out: Pointer
    rows: Integer
    chunk_rows: Integer
    count: Integer
    inner: Integer
    x_stride: Integer


class Reduction(Generator):
    """A chunk is some places of the kept axes; unless across, of some columns.

    Attributes:
        way: ``across``, ``down`` or ``short``.
        kind: ONNX's name of the reduction, or :data:`MOMENTS`.
        element: the element type.
        near, out_near: whether neighbours on the innermost axis are adjacent in the
            input and in the output.
        kept_rank, reduced_rank: of the axes without the innermost one.
        vectors: of a short row.
    """

    way: str
    kind: str
    element: str
    near: bool
    out_near: bool
    kept_rank: int
    reduced_rank: int
    vectors: int

    @property
    def words(self) -> tuple[str, ...]:
        return (*ReductionWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        words = (
            *walk_words("kept", self.kept_rank, 2),
            *walk_words("reduced", self.reduced_rank, 1),
        )
        if self.way != "across":
            words = (*words, "chunk_columns", "parts", "out_stride")
        return (*words, "variances") if self.kind == MOMENTS else words

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = ReductionWords(module, name, self._more)
        scalar = Type(self.element)
        vector = scalar.vector(lanes_of(scalar))
        if self.way == "across":
            _write_across(k, isa, self, vector)
        else:
            _write_columns(k, isa, self, vector)


def _write_across(k: ReductionWords, isa: Isa, form: Reduction, vector: Type) -> None:
    f = k.function
    elements = Elements(f, vector, None if form.near else k.x_stride)
    inner, count = k.inner, k.count
    rows, chunk_rows = k.rows, k.chunk_rows
    begin = k.chunk * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    kept = Walk(k, "kept", form.kept_rank, 2)
    reduced = Walk(k, "reduced", form.reduced_rank, 1)

    def fold_row(
        x: Value, fold: Fold, change: Callable[[list[Value]], list[Value]] = list
    ) -> list[Value]:
        accumulator = Accumulator(f, fold, vector)
        empty = accumulator.start()

        def turn(_: Value, *state: Value) -> list[Value]:
            place, rest = state[: len(state) - len(empty)], state[-len(empty) :]
            after = accumulator.run(
                rest, elements, place[0], inner, lambda x: change([x])[0]
            )
            return [*reduced.advance(place), *after]

        first = reduced.start([x])
        after = f.loop(reduced.count, turn, [*first, *empty])
        return [accumulator.lanes(after[-len(empty) :])]

    def in_lanes(total: Value) -> Value:
        return f.splat(total, vector.lanes)

    def row(_: Value, *state: Value) -> list[Value]:
        x, out = kept.pointers(state)
        fold = functools.partial(fold_row, x)
        results = _reduced(f, isa, form.kind, vector, count, fold, in_lanes)
        for (result,), place in zip(results, _places(k, form, out), strict=True):
            f.store(result, place)
        return kept.advance(state)

    f.loop(end, row, kept.start([k.x, k.out], begin), start=begin)
    f.finish()


def _write_columns(k: ReductionWords, isa: Isa, form: Reduction, vector: Type) -> None:
    """Columns are kept; several vectors of them are reduced side by side."""
    f = k.function
    lanes = vector.lanes
    inner, parts = k.inner, k.integer("parts")
    rows, chunk_rows = k.rows, k.chunk_rows
    chunk_columns = k.integer("chunk_columns")
    begin = (k.chunk // parts) * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    left = (k.chunk % parts) * chunk_columns
    right = f.minimum(left + chunk_columns, inner)
    kept = Walk(k, "kept", form.kept_rank, 2)
    spaced = not form.near or form.way == "short"
    source = Elements(f, vector, k.x_stride if spaced else None)
    target = Elements(f, vector, None if form.out_near else k.integer("out_stride"))
    side = 1 if form.way == "short" else 4
    reduced_at = (_short if form.way == "short" else _down)(k, isa, form, source)

    def columns(
        x: Value, out: Value, column: Value, masks: Sequence[Value | None]
    ) -> None:
        reduced = reduced_at(source.at(x, column), inner - column, masks)
        places = _places(k, form, target.at(out, column))
        for results, place in zip(reduced, places, strict=True):
            for u, (result, mask) in enumerate(zip(results, masks, strict=True)):
                target.store(result, target.at(place, lanes * u), mask)

    def row(_: Value, *state: Value) -> list[Value]:
        x, out = kept.pointers(state)
        full = right - ((right - left) % (side * lanes))

        def whole(column: Value) -> None:
            columns(x, out, column, [None] * side)

        def part(column: Value) -> None:
            columns(x, out, column, [f.first_lanes(right - column, lanes)])

        f.loop(full, whole, start=left, step=side * lanes)
        f.loop(right, part, start=full, step=lanes)
        return kept.advance(state)

    f.loop(end, row, kept.start([k.x, k.out], begin), start=begin)
    f.finish()


def _places(k: ReductionWords, form: Reduction, out: Value) -> list[Value]:
    """Where the results of one place go."""
    if form.kind != MOMENTS:
        return [out]
    return [out, k.function.at(out, k.integer("variances"), I8)]


_Columns = Callable[[Value, Value, Sequence[Value | None]], list[list[Value]]]
"""From the address of the first column, how many columns follow, and masks of the
vectors of columns: the reduced vectors of each result."""


def _short(k: ReductionWords, isa: Isa, form: Reduction, source: Elements) -> _Columns:
    """Rows of a few vectors: what the lanes hold is added up for all rows at once."""
    f, vector = k.function, source.type
    lanes, fold = vector.lanes, fold_of(form.kind, vector)
    count = k.count
    end = f.first_lanes(count - lanes * (form.vectors - 1), lanes)
    near = Elements(f, vector)

    def row(x: Value, columns: Value, lane: int, before: list[Value]) -> Value:
        # behind the last row it is read again, and not kept
        index = f.minimum(columns - 1, f.value(lane, I64)) if lane else 0
        place = opaque(f, source.at(x, index))
        if isa.registers_per_vector > 1:
            # otherwise all rows are loaded at once, for which there is no room
            (place,) = known_after(f, isa, [place], before)
        total = f.value(fold.identity, vector)
        for u in range(form.vectors):
            mask = end if u == form.vectors - 1 else None
            element = near.load(near.at(place, lanes * u), mask, fold.identity)
            total = fold.step(f, total, element)
        return total

    def reduced(
        x: Value, columns: Value, masks: Sequence[Value | None]
    ) -> list[list[Value]]:
        columns = opaque(f, columns)

        def joined(lane: int, width: int, before: list[Value]) -> Value:
            """What so many rows from one on are folded to, *width* lanes of each."""
            if width == lanes:
                return row(x, columns, lane, before)
            a = joined(lane, 2 * width, before)
            b = joined(lane + lanes // (2 * width), 2 * width, [a])
            return _joined(f, fold, a, b, width)

        return [[_finish(f, isa, form.kind, count, joined(0, 1, []))]]

    return reduced


def _joined(f: Function, fold: Fold, a: Value, b: Value, width: int) -> Value:
    """Groups of ``2 * width`` lanes of *a*, then of *b*, folded to *width* lanes."""
    low = [
        start + lane
        for start in range(0, 2 * a.type.lanes, 2 * width)
        for lane in range(width)
    ]
    high = [lane + width for lane in low]
    return fold.combine(f, f.shuffle(a, b, low), f.shuffle(a, b, high))


def _down(k: ReductionWords, isa: Isa, form: Reduction, source: Elements) -> _Columns:
    """From row to row."""
    f, vector, count = k.function, source.type, k.count
    reduced = Walk(k, "reduced", form.reduced_rank, 1)

    def columns(x: Value, _: Value, masks: Sequence[Value | None]) -> list[list[Value]]:
        rows = _Rows(f, source, reduced, count, masks)
        fold = functools.partial(rows.fold, [x])
        return _reduced(f, isa, form.kind, vector, count, fold)

    return columns


class _Rows(NamedTuple):
    """Rows that are folded for some vectors of columns side by side.

    Attributes:
        source: loads vectors.
        walk: goes from row to row.
        rows: how many there are.
        masks: of the vectors.
    """

    f: Function
    source: Elements
    walk: Walk
    rows: Value
    masks: Sequence[Value | None]

    def fold(
        self,
        pointer: list[Value],
        fold: Fold,
        change: Callable[[list[Value]], list[Value]] = list,
    ) -> list[Value]:
        """The vectors' totals, from the first row's address on."""
        f, vectors = self.f, len(self.masks)
        accumulator = Accumulator(f, fold, self.source.type)
        starts = [accumulator.start() for _ in self.masks]
        width = len(starts[0])
        turn = functools.partial(self._turn, fold, change)

        def block(first: Value, *state: Value) -> list[Value]:
            turns = f.minimum(self.rows - first, f.value(BLOCK, I64))
            place = state[: len(state) - width * vectors]
            totals = state[len(place) :]
            empty = [f.value(fold.identity, self.source.type)] * vectors
            after = f.loop(turns, turn, [*place, *empty], nonempty=True)
            result = after[: len(place)]
            for u, total in enumerate(after[len(place) :]):
                before = totals[width * u : width * (u + 1)]
                result += accumulator.absorb(before, total)
            return result

        first = self.walk.start(pointer)
        flat = [value for start in starts for value in start]
        after = f.loop(self.rows, block, [*first, *flat], step=BLOCK)[len(first) :]
        return [
            accumulator.result(after[width * u : width * (u + 1)])
            for u in range(vectors)
        ]

    def _turn(
        self,
        fold: Fold,
        change: Callable[[list[Value]], list[Value]],
        _: Value,
        *state: Value,
    ) -> list[Value]:
        """A row more in the vectors' totals."""
        source, vectors = self.source, len(self.masks)
        place, totals = state[:-vectors], state[-vectors:]
        xs = [
            source.load(source.at(place[0], source.type.lanes * u), mask, fold.identity)
            for u, mask in enumerate(self.masks)
        ]
        pairs = zip(totals, change(xs), strict=True)
        after = [fold.step(self.f, total, x) for total, x in pairs]
        return [*self.walk.advance(place), *after]


def _reduced(
    f: Function,
    isa: Isa,
    kind: str,
    vector: Type,
    count: Value,
    fold: Callable[..., list[Value]],
    spread: Callable[[Value], Value] = lambda total: total,
) -> list[list[Value]]:
    """The reductions of what *fold* gives totals of.

    Args:
        fold: gives them of a :class:`Fold`, and of a change of vectors side by side.
        spread: a total as it is combined with vectors.
    """
    if kind == MOMENTS:
        sums = fold(fold_of("ReduceSum", vector))
        means = [_mean(f, count, total) for total in sums]
        centers = list(map(spread, means))
        totals = fold(
            fold_of("ReduceSumSquare", vector),
            lambda xs: [x - center for x, center in zip(xs, centers, strict=True)],
        )
        return [means, [_mean(f, count, total) for total in totals]]
    if kind != "ReduceLogSumExp":
        results = fold(fold_of(kind, vector))
        return [[_finish(f, isa, kind, count, result) for result in results]]
    largest = fold(fold_of("ReduceMax", vector))
    shifts = [_finite(f, value) for value in largest]
    tops = list(map(spread, shifts))
    totals = fold(
        fold_of("ReduceSum", vector),
        lambda xs: [math.exp(f, isa, x - top) for x, top in zip(xs, tops, strict=True)],
    )
    return [[_log(f, isa, t) + s for t, s in zip(totals, shifts, strict=True)]]


def _finish(f: Function, isa: Isa, kind: str, count: Value, total: Value) -> Value:
    """The result from the fold of *count* elements, a scalar or lanes."""
    if kind == "ReduceL2":
        return f.unary("sqrt", total)
    if kind == "ReduceLogSum":
        return _log(f, isa, total)
    return _mean(f, count, total) if kind == "ReduceMean" else total


def _mean(f: Function, count: Value, total: Value) -> Value:
    # the mean of nothing is zero
    divisor = f.convert(f.maximum(count, f.value(1, I64)), total.type.scalar)
    if total.type.lanes:
        divisor = f.splat(divisor, total.type.lanes)
    return total / divisor if total.type.is_float else total // divisor


def _finite(f: Function, value: Value) -> Value:
    """*value*, or 0 where it is not finite."""
    return f.select((value - value).compare("eq", 0.0), value, 0.0)


def _log(f: Function, isa: Isa, x: Value) -> Value:
    if x.type.lanes:
        return math.log(f, isa, x)
    return f.lane(math.log(f, isa, f.splat(x, lanes_of(x.type))), 0)
