"""Rows that were rounded to bytes times weights that are codes.

Products are summed up as integers within a block, and exactly; the scales of both are
applied to sums of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxplug_cpu.compiler.codegen.byte_products import (
    add_fours,
    magnitude,
    multiplies_fours,
)
from onnxplug_cpu.compiler.codegen.emit import F32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.kernels.coded.few import Few, FewWords
from onnxplug_cpu.compiler.kernels.coded.row_sums import RowSums
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import Isa


def byte_tile(isa: Isa, rows: int, nbytes: int) -> tuple[int, int]:
    """How many rows and columns are computed at once: their sums stay in registers.

    One row takes as long as reading the codes does.  Those of the next columns wait in
    the first cache, of which they and these fill half at most.

    Args:
        nbytes: of a column.
    """
    if rows == 1 and 2 * (4 + 4) * nbytes > isa.l1:
        return 1, 2
    return min(rows, 4 if isa.name == "avx512" else 2), 4


class ByteWords(FewWords):
    """Words of :class:`ByteRows`: ``x_scales`` with ``x_scales_row`` are those of the
    rows, and ``groups`` how many times blocks are read; ``sums`` are what products
    begin with if all weights have one zero point."""

    x_scales: Pointer
    x_scales_row: Integer
    groups: Integer


class ByteRows(Generator):
    """Computes some columns of some rows, as :class:`~.rows.RoundRows` writes them.

    Attributes:
        form: of the weights; its lanes are the bytes that are read at once.
        rows, columns: that are computed at once.
        steps: of a group of blocks; 0 if there are many.
        spans: blocks whose codes are read at once.
    """

    form: Form
    rows: int
    columns: int
    steps: int
    spans: int

    words = (*ByteWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = ByteWords(module, name, WEIGHT_WORDS)
        k.keep(("x_scales", "x_scales_row", "groups"))
        Few(k, isa, self, self._sums, middle_of(isa, self.form)).write()

    def _sums(self, few: Few, column: Value, count: int, first: Value) -> list[Value]:
        return _Sums(few, self, column, count, first).compute()


def middle_of(isa: Isa, form: Form) -> int:
    """What is taken away from codes as they are multiplied: as bytes without a sign,
    two products of those of 8 bits would be too large where their sum saturates."""
    return 128 if form.bits == 8 and not multiplies_fours(isa) else 0


class _Sums(RowSums):
    def __init__(
        self, few: Few, form: ByteRows, column: Value, count: int, first: Value
    ) -> None:
        k = few.k
        assert isinstance(k, ByteWords)
        self.k = k
        product = Type("i32", form.form.lanes // 4)
        self.takes_zeros = bool(form.form.zero)
        more = [offset(few.f, k.x_scales, first * k.x_scales_row)]
        if not self.takes_zeros:
            more.append(offset(few.f, k.sums, first * k.sums_row))
        super().__init__(
            few,
            form,
            column,
            count,
            first,
            vector=product.of("f32"),
            product=product,
            turns=k.groups,
            spans=form.spans,
            more=more,
        )

    def _scaled(
        self, codes: Value, scale: Value, rows: Sequence[Value]
    ) -> Iterator[list[tuple[Value, Value]]]:
        f, (x, x_scales, *more) = self.f, rows
        factor, starts = self._scales(scale), None
        if more:
            starts = [
                f.load(offset(f, more[0], self.k.sums_row * row), self.product)
                for row in range(self.rows)
            ]
        for row, product in enumerate(self._products(codes, x, starts)):
            line = offset(f, x_scales, self.k.x_scales_row * row)
            both = f.load(line, self.vector) * factor
            yield [(f.convert(product, self.vector), both)]

    def _advance(self) -> list[Value | int]:
        step = self.few.codes.form.step
        lanes = self.vector.lanes * F32.nbytes
        return [self.k.steps * step, lanes, *([] if self.takes_zeros else [lanes])]

    def _scales(self, place: Value) -> Value:
        """The scales of the blocks of a group, each in the lanes of its sums."""
        f, few, spans, lanes = self.f, self.few, self.spans, self.vector.lanes
        if spans == 1:
            whole = few.codes.scale(place)
            return f.shuffle(whole, whole, [0] * lanes)
        found = few.codes.scales(place, spans)
        return f.shuffle(found, found, [lane * spans // lanes for lane in range(lanes)])

    def _step(
        self, step: Value, codes: Value, x: Value, products: list[Value]
    ) -> list[Value]:
        f, few, form = self.f, self.few, self.few.codes.form
        stored, signed = Type("u8", form.lanes), Type("i8", form.lanes)
        raw = f.load(offset(f, codes, step * form.lanes), stored, align=1)
        parts = few.codes.parts(raw)
        place = offset(f, x, step * form.step)
        found = list(products)
        for row in range(self.rows):
            line = offset(f, place, self.k.x_row * row)
            values = [
                f.load(offset(f, line, part * form.lanes), signed, align=1)
                for part in range(form.per_byte)
            ]
            pairs = list(zip(parts, values, strict=True))
            if middle_of(few.isa, form):
                middle = f.bitcast(raw ^ middle_of(few.isa, form), signed)
                pairs = [magnitude(f, few.isa, middle, values[0])]
            found[row] = add_fours(f, few.isa, pairs, found[row])
        return found
