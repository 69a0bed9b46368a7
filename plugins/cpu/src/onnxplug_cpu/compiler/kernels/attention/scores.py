"""Softmax of the rows of scores that attention keeps in scratch memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from onnxplug_compiler.ir.families import Undefined
from onnxplug_cpu.compiler.codegen.emit import F32, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.math.exponential import exp_flushed, tanh
from onnxplug_cpu.compiler.kernels.rows import Operand, Operands, move, opaque, spread
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR = F32.vector(LANES)


class RowForm(Protocol):
    """What the code of a row depends on."""

    @property
    def capped(self) -> bool: ...
    @property
    def undefined(self) -> Undefined: ...
    @property
    def hides(self) -> bool: ...
    @property
    def fill(self) -> float: ...
    @property
    def mask(self) -> Operand | None: ...


class Row(NamedTuple):
    """Scores, with room for whole vectors; their mask; how many there are; and in all
    lanes one more, that of no key."""

    scores: Value
    mask: Value | None
    length: Value
    sink: Value | None = None


def mask_words(form: RowForm) -> tuple[str, ...]:
    """The names of the words of the mask."""
    if form.mask is None:
        return ()
    return (
        *Operands.words([form.mask]),
        "mask_batch",
        "mask_head",
        "mask_row",
    )


class Rows:
    """Writes the softmax of rows; one object for all rows of a kernel."""

    def __init__(self, k: KernelFunction, isa: Isa, form: RowForm) -> None:
        f = self.f = k.function
        self.isa, self.form = isa, form
        self.mask = Operands(k, [form.mask], LANES) if form.mask else None
        if form.capped:
            self.cap = f.splat(k.word("softcap", F32), LANES)

    def mask_at(
        self, k: KernelFunction, batch: Value, head: Value, row: Value
    ) -> Value | None:
        """Where the mask of a row begins."""
        if self.mask is None:
            return None
        offset = batch * k.integer("mask_batch") + head * k.integer("mask_head")
        place = move(self.f, k.pointer("mask"), offset + row * k.integer("mask_row"))
        return opaque(self.f, place)

    def softmax(self, rows: Sequence[Row], least: Value, most: Value) -> None:
        """Softmax in place of rows of scores, side by side.

        Rows that are given twice are computed once more, with the same result.

        Args:
            rows: how many scores each has decides what is zero.
            least, most: whole vectors up to *least* are full in all rows; all vectors
                that begin before *most* are written.
        """
        f, form = self.f, self.form
        rows = [row._replace(scores=opaque(f, row.scores)) for row in rows]
        largest = functools.partial(self._largest, rows)
        tops = self._sweep(rows, least, most, largest, -math.inf)
        tops = [spread(f, top, self._larger) for top in tops]
        tops = [
            top if row.sink is None else self._larger(row.sink, top)
            for row, top in zip(rows, tops, strict=True)
        ]
        if form.undefined == "masked_zero":
            zero = f.zero(_VECTOR)
            tops = [f.select(t.compare("eq", -math.inf), zero, t) for t in tops]
        exponentials = functools.partial(self._exponentials, rows, tops)
        totals = self._sweep(rows, least, most, exponentials, 0.0)
        totals = [spread(f, total, lambda a, b: a + b) for total in totals]
        totals = [
            total
            if row.sink is None
            else total + exp_flushed(f, self.isa, row.sink - top)
            for row, top, total in zip(rows, tops, totals, strict=True)
        ]
        factors = [1.0 / total for total in totals]
        if form.undefined == "masked_zero":
            factors = [
                f.select(total.compare("eq", 0.0), total, factor)
                for total, factor in zip(totals, factors, strict=True)
            ]

        def scale(index: Value) -> None:
            loaded = self._load(rows, index)
            xs = [x * factor for x, factor in zip(loaded, factors, strict=True)]
            if form.undefined == "zero":
                xs = [f.select(x.compare("eq", x), x, 0.0) for x in xs]
            self._store(rows, index, xs)

        f.loop(most, scale, step=LANES)

    def _load(self, rows: Sequence[Row], index: Value) -> list[Value]:
        f = self.f
        return [f.load(f.at(row.scores, index, F32), _VECTOR) for row in rows]

    def _store(self, rows: Sequence[Row], index: Value, xs: Sequence[Value]) -> None:
        for row, x in zip(rows, xs, strict=True):
            self.f.store(x, self.f.at(row.scores, index, F32))

    def _largest(
        self,
        rows: Sequence[Row],
        index: Value,
        lanes: Sequence[Value | None],
        *tops: Value,
    ) -> list[Value]:
        """The largest scores; writes them capped and masked."""
        xs = self._load(rows, index)
        if self.form.capped or any(row.mask is not None for row in rows):
            xs = [
                self._prepare(x, row.mask, index, kept)
                for x, row, kept in zip(xs, rows, lanes, strict=True)
            ]
            self._store(rows, index, xs)
        xs = self._where(lanes, xs, -math.inf)
        return [self._larger(x, top) for x, top in zip(xs, tops, strict=True)]

    def _exponentials(
        self,
        rows: Sequence[Row],
        tops: Sequence[Value],
        index: Value,
        lanes: Sequence[Value | None],
        *totals: Value,
    ) -> list[Value]:
        """The sums of exponentials; writes these."""
        pairs = zip(self._load(rows, index), tops, strict=True)
        es = [exp_flushed(self.f, self.isa, x - top) for x, top in pairs]
        es = self._where(lanes, es, 0.0)
        self._store(rows, index, es)
        return [total + e for total, e in zip(totals, es, strict=True)]

    def _prepare(
        self, x: Value, mask: Value | None, index: Value, lanes: Value | None
    ) -> Value:
        """The score capped and masked."""
        f, form = self.f, self.form
        if form.capped:
            x = tanh(f, self.isa, x / self.cap) * self.cap
        if mask is None or self.mask is None or form.mask is None:
            return x
        value = self.mask.load(0, self.mask.at([mask], index), lanes)
        if form.mask.element == "i1":
            fill = f.value(form.fill, x.type)
            return f.select(value, fill, x) if form.hides else f.select(value, x, fill)
        if form.undefined != "masked_zero":
            return x + value
        return f.select(value.compare("ne", -math.inf), x + value, -math.inf)

    def _where(
        self, lanes: Sequence[Value | None], xs: Sequence[Value], default: float
    ) -> list[Value]:
        return [
            x if kept is None else self.f.select(kept, x, default)
            for x, kept in zip(xs, lanes, strict=True)
        ]

    def _sweep(
        self,
        rows: Sequence[Row],
        least: Value,
        most: Value,
        turn: Callable[..., list[Value]],
        start: float,
    ) -> list[Value]:
        f = self.f
        full = least - least % LANES

        def whole(index: Value, *carried: Value) -> list[Value]:
            return turn(index, [None] * len(rows), *carried)

        def part(index: Value, *carried: Value) -> list[Value]:
            counts = {row.length.text: row.length for row in rows}
            lanes = {
                text: f.first_lanes(count - index, LANES)
                for text, count in counts.items()
            }
            return turn(index, [lanes[row.length.text] for row in rows], *carried)

        carried = f.loop(full, whole, [f.value(start, _VECTOR)] * len(rows), step=LANES)
        return f.loop(most, part, carried, start=full, step=LANES)

    def _larger(self, a: Value, b: Value) -> Value:
        return self.f.select(a > b, a, b)
