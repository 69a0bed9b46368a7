"""Softmax and its logarithm along one axis.

The largest element is subtracted before the exponential (N. J. Higham et al.,
"Accurately computing the log-sum-exp and softmax functions", 2021).  Several rows, or
vectors of columns, go side by side, so that no instruction waits for the one before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen import math as vector
from onnxplug_cpu.compiler.codegen.emit import Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.rows import (
    Axes,
    Operand,
    Operands,
    Walk,
    byte_strides,
    chunk_size,
    fewest_parts,
    move,
    spread,
    walk_words,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_NANOSECONDS = 0.4
"""What one element takes, about."""


def record_softmax(
    recorder: Recorder,
    x: View,
    out: View,
    *,
    axis: int = -1,
    log: bool = False,
    label: str = "",
) -> None:
    """See ``families.Rows.record_softmax``.

    Of float32 and float64; fastest where the axis or another one has stride 1 in both
    views, which may be the same.  Exponentials that are no normal numbers are 0.
    """
    if not out.size:
        return
    views = [x, out]
    axis %= len(x.shape)
    others = [a for a in range(len(x.shape)) if a != axis and x.shape[a] != 1]
    others.sort(key=lambda a: -abs(x.strides[a]))
    count = x.shape[axis]
    down = bool(others) and abs(x.strides[others[-1]]) < abs(x.strides[axis])
    down = down and count > 1
    lane_axis = others.pop() if down else axis
    operands = tuple(
        Operand.of(name, view, lane_axis) for name, view in (("x", x), ("out", out))
    )
    _check(x, views, operands)
    rows = Axes.collapsed(
        [x.shape[a] for a in others],
        [[byte_strides(view)[a] for a in others] for view in views],
    )
    columns = x.shape[lane_axis] if down else 1
    parts = fewest_parts(count * columns, _NANOSECONDS)
    if parts > 1:
        # few are so long, and what they take is not imported for others
        from onnxplug_cpu.compiler.kernels.normalization.long_rows import (
            record_long_softmax,
        )

        label = label or f"{'Log' * log}Softmax {'×'.join(map(str, x.shape))}"
        across = lane_axis if columns >= LANES * parts else None
        record_long_softmax(recorder, x, out, axis, across, parts, log, label)
        return
    held = 0 if down else _held(count, recorder.target.isa, operands[0].element)
    form = _Softmax(down, held, log, rows.rank, operands)
    words: dict[str, Word] = {
        "count": count,
        "columns": x.shape[lane_axis] if down else 1,
        "rows": rows.count,
        **rows.words("row"),
        **Operands.values(operands, views, lane_axis),
    }
    for operand, view in zip(operands, views, strict=True):
        words[f"{operand.name}_step"] = byte_strides(view)[axis]
    each = _NANOSECONDS * count * (x.shape[lane_axis] if down else 1)
    chunk_rows = chunk_size(
        rows.count, each, recorder.target.workers, form.side(recorder.target.isa)
    )
    words["chunk_rows"] = chunk_rows
    call(
        recorder,
        Kernel(form),
        words,
        chunks=-(-rows.count // chunk_rows),
        label=label or f"{'Log' * log}Softmax {'×'.join(map(str, x.shape))}",
        flops=20 * x.size,
        nbytes=x.nbytes + out.nbytes,
    )


def _check(x: View, views: Sequence[View], operands: Sequence[Operand]) -> None:
    for view, operand in zip(views, operands, strict=True):
        if operand.element not in ("f32", "f64") or view.dtype != x.dtype:
            raise ValueError(
                f"softmax has no kernel for {operand.name} of {view.dtype}; expected "
                f"float32 or float64, as {x.dtype} is"
            )
        if view.shape != x.shape:
            raise ValueError(
                f"{operand.name} of softmax has the shape {view.shape}; expected "
                f"{x.shape}: broadcast it"
            )


class SoftmaxWords(KernelWords):
    """Words of :class:`_Softmax`; those of operands and of the walk follow."""

    count: Integer
    columns: Integer
    rows: Integer
    chunk_rows: Integer


class _Softmax(Generator):
    """Softmax of rows; a chunk is some rows.

    Attributes:
        down: whether the axis runs from vector to vector, not along the lanes.
        held: how many vectors of a row are held in registers; 0 for passes over rows
            in memory.
        operands: x and out.
    """

    down: bool
    held: int
    log: bool
    rank: int
    operands: tuple[Operand, ...]

    def side(self, isa: Isa) -> int:
        """How many rows go side by side."""
        if self.down or not self.held:
            return 1
        capacity = _capacity(isa, self.operands[0].element)
        return max(1, min(4, capacity // self.held))

    @property
    def words(self) -> tuple[str, ...]:
        return (*SoftmaxWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        return (
            *Operands.words(self.operands),
            *(f"{operand.name}_step" for operand in self.operands),
            *walk_words("row", self.rank, len(self.operands)),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = SoftmaxWords(module, name, self._more)
        if self.down:
            _write_down(k, isa, self)
        else:
            _Across(k, isa, self).write()


def _capacity(isa: Isa, element: str) -> int:
    """Vectors that registers can hold beside the exponential's constants."""
    each = isa.registers_per_vector * Type(element).nbytes // Type("f32").nbytes
    return isa.registers // 2 // each


def _held(count: int, isa: Isa, element: str) -> int:
    """How many vectors to hold a row of *count* elements in, 0 for too many.

    Even numbers but for one, so that there are half as many kernels.
    """
    vectors = -(-count // LANES)
    vectors += vectors > 1 and vectors % 2
    return vectors if vectors <= _capacity(isa, element) else 0


_Places = Sequence[Sequence[Value]]
"""For each vector the addresses of the operands."""

_Masks = Sequence[Value | None]
"""For each vector which lanes exist; ``None`` for all."""


class _Scores:
    """The steps of softmax on vectors."""

    def __init__(self, k: SoftmaxWords, isa: Isa, form: _Softmax) -> None:
        self.f, self.isa, self.form = k.function, isa, form
        self.operands = Operands(k, form.operands, LANES)
        self.type = Type(form.operands[0].element).vector(LANES)

    def load(self, places: _Places, masks: _Masks) -> list[Value]:
        """The scores; minus infinity in lanes that do not exist."""
        return [
            self.operands.load(0, place, lanes, -math.inf)
            for place, lanes in zip(places, masks, strict=True)
        ]

    def store(self, xs: Sequence[Value], places: _Places, masks: _Masks) -> None:
        """Write the vectors to the output."""
        for x, place, lanes in zip(xs, places, masks, strict=True):
            self.operands.store(1, x, place, lanes)

    def larger(self, a: Value, b: Value) -> Value:
        """The larger, and *b* if one is NaN, which the exponentials then are."""
        return self.f.select(a > b, a, b)

    def exponential(self, x: Value, top: Value) -> Value:
        """e**(x - top)."""
        return vector.exp_flushed(self.f, self.isa, x - top)

    def logarithm(self, total: Value) -> Value:
        """The logarithm of the exponentials' sum."""
        return vector.log(self.f, self.isa, total)


def _plus(a: Value, b: Value) -> Value:
    return a + b


def _tree(values: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    values = list(values)
    while len(values) > 1:
        paired = [
            combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)
        ]
        values = paired + values[2 * len(paired) :]
    return values[0]


def _in_registers(scores: _Scores, rows: Sequence[_Places], masks: _Masks) -> None:
    """Softmax of rows, all of whose vectors are in registers at once."""
    f = scores.f
    loaded = [scores.load(row, masks) for row in rows]
    tops = [spread(f, _tree(xs, scores.larger), scores.larger) for xs in loaded]
    powers = [
        [scores.exponential(x, top) for x in xs]
        for xs, top in zip(loaded, tops, strict=True)
    ]
    totals = [spread(f, _tree(es, _plus), _plus) for es in powers]
    for row, xs, es, top, total in zip(rows, loaded, powers, tops, totals, strict=True):
        if scores.form.log:
            logarithm = scores.logarithm(total)
            results = [(x - top) - logarithm for x in xs]
        else:
            factor = 1.0 / total
            results = [e * factor for e in es]
        scores.store(results, row, masks)


class _Sweep(Protocol):
    """Calls *turn* with vectors of the whole axis, up to a number at a time.

    Turns get places, masks and the carried values, one for each vector at most, and
    return the new carried values.
    """

    def __call__(
        self, turn: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> list[Value]: ...


def _in_passes(
    scores: _Scores,
    count: int,
    sweep: _Sweep,
    across: Callable[[Sequence[Value], Callable[[Value, Value], Value]], list[Value]],
) -> None:
    """Softmax by passes over memory.

    Args:
        count: of vectors that a turn gets at most.
        across: from the accumulators of the vectors those that hold for them all.
    """
    f = scores.f

    def folded(
        carried: Sequence[Value], xs: Sequence[Value], combine: Any
    ) -> list[Value]:
        new = [combine(x, a) for x, a in zip(xs, carried, strict=False)]
        return [*new, *carried[len(new) :]]

    def largest(places: _Places, masks: _Masks, *tops: Value) -> list[Value]:
        return folded(tops, scores.load(places, masks), scores.larger)

    def exponentials(places: _Places, masks: _Masks, *sums: Value) -> list[Value]:
        xs = scores.load(places, masks)
        es = [scores.exponential(x, top) for x, top in zip(xs, tops, strict=False)]
        if not scores.form.log:
            scores.store(es, places, masks)
        return folded(sums, es, _plus)

    def finish(places: _Places, masks: _Masks) -> list[Value]:
        if scores.form.log:
            xs = scores.load(places, masks)
            results = [
                (x - top) - logarithm
                for x, top, logarithm in zip(xs, tops, last, strict=False)
            ]
        else:
            es = [
                scores.operands.load(1, place, lanes)
                for place, lanes in zip(places, masks, strict=True)
            ]
            results = [e * factor for e, factor in zip(es, last, strict=False)]
        scores.store(results, places, masks)
        return []

    lowest = f.value(-math.inf, scores.type)
    tops = across(sweep(largest, [lowest] * count), scores.larger)
    totals = across(sweep(exponentials, [f.zero(scores.type)] * count), _plus)
    if scores.form.log:
        last = list(map(scores.logarithm, totals))
    else:
        last = [1.0 / total for total in totals]
    sweep(finish, [])


_SWEPT = 4
"""Vectors of a row that are computed at a time, so that none waits for another."""


def _together(isa: Isa) -> int:
    """The same on a processor: where a vector is four registers, that is enough, and
    exponentials of more do not fit."""
    return 1 if isa.registers_per_vector == _SWEPT else _SWEPT


class _Across:
    """Rows along the lanes, in registers or by passes over memory."""

    def __init__(self, k: SoftmaxWords, isa: Isa, form: _Softmax) -> None:
        self.k, self.isa, self.form = k, isa, form
        self.f, self.scores = k.function, _Scores(k, isa, form)
        self.at = self.scores.operands.at
        self.count, self.rows = k.count, k.rows
        self.chunk_rows = k.chunk_rows
        self.together = _together(isa)

    def write(self) -> None:
        f, k, form = self.f, self.k, self.form
        begin = k.chunk * self.chunk_rows
        end = f.minimum(begin + self.chunk_rows, self.rows)
        self.walk = Walk(k, "row", form.rank, len(form.operands))
        state = self.walk.start([k.pointer(name) for name, *_ in form.operands], begin)
        ends = [f.first_lanes(self.count - LANES * u, LANES) for u in range(form.held)]
        # only the last two vectors can be cut off: the number is even
        self.masks = [*([None] * (form.held - 2)), *ends[-2:]]
        number = form.side(self.isa)
        if number > 1:
            many = end - (end - begin) % number
            held = functools.partial(self._held, number)
            state = f.loop(many, held, state, start=begin, step=number)
            begin = many
        one = functools.partial(self._held, 1) if form.held else self._swept
        f.loop(end, one, state, start=begin)
        f.finish()

    def _held(self, number: int, _: Value, *state: Value) -> list[Value]:
        """So many rows side by side, in registers."""
        here = list(state)
        streams = []
        for _unused in range(number):
            pointers = self.walk.pointers(here)
            vectors = range(self.form.held)
            streams.append([self.at(pointers, LANES * u) for u in vectors])
            here = self.walk.advance(here)
        _in_registers(self.scores, streams, self.masks)
        return here

    def _swept(self, _: Value, *state: Value) -> list[Value]:
        """A row, by passes."""
        sweep = functools.partial(self._sweep, self.walk.pointers(state))
        _in_passes(self.scores, self.together, sweep, self._spread)
        return self.walk.advance(state)

    def _sweep(
        self,
        pointers: Sequence[Value],
        turn: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
    ) -> list[Value]:
        f, count, together = self.f, self.count, self.together
        full = count - count % (together * LANES)

        def whole(index: Value, *carried: Value) -> Sequence[Value]:
            here = self.at(pointers, index)
            places = [self.at(here, LANES * u) for u in range(together)]
            return turn(places, [None] * together, *carried)

        def part(index: Value, *carried: Value) -> Sequence[Value]:
            lanes = f.first_lanes(count - index, LANES)
            return turn([self.at(pointers, index)], [lanes], *carried)

        carried = f.loop(full, whole, carried, step=together * LANES)
        return f.loop(count, part, carried, start=full, step=LANES)

    def _spread(
        self, vectors: Sequence[Value], combine: Callable[[Value, Value], Value]
    ) -> list[Value]:
        return [spread(self.f, _tree(vectors, combine), combine)] * len(vectors)


def _write_down(k: SoftmaxWords, isa: Isa, form: _Softmax) -> None:
    f = k.function
    scores = _Scores(k, isa, form)
    at = scores.operands.at
    count, rows, chunk_rows, columns = k.count, k.rows, k.chunk_rows, k.columns
    together = _together(isa)
    steps = [k.integer(f"{name}_step") for name, *_ in form.operands]
    begin = k.chunk * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    walk = Walk(k, "row", form.rank, len(form.operands))

    def block(pointers: Sequence[Value], masks: _Masks) -> None:
        def sweep(
            turn: Callable[..., Sequence[Value]], carried: Sequence[Value]
        ) -> list[Value]:
            def step(index: Value, *carried: Value) -> Sequence[Value]:
                here = [
                    move(f, pointer, index * step)
                    for pointer, step in zip(pointers, steps, strict=True)
                ]
                places = [at(here, LANES * u) for u in range(len(masks))]
                return turn(places, masks, *carried)

            return f.loop(count, step, carried)

        _in_passes(scores, len(masks), sweep, lambda vectors, _: list(vectors))

    def row(_: Value, *state: Value) -> list[Value]:
        pointers = walk.pointers(state)
        many = columns - columns % (together * LANES)

        def whole(column: Value) -> None:
            block(at(pointers, column), [None] * together)

        def part(column: Value) -> None:
            block(at(pointers, column), [f.first_lanes(columns - column, LANES)])

        f.loop(many, whole, step=together * LANES)
        f.loop(columns, part, start=many, step=LANES)
        return walk.advance(state)

    f.loop(
        end,
        row,
        walk.start([k.pointer(name) for name, *_ in form.operands], begin),
        start=begin,
    )
    f.finish()
