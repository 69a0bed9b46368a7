"""Rows that were rounded to bytes times weights that are codes.

Products are summed up as integers within a block, and exactly; the scales of both are
applied to sums of blocks.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.byte_products import add_fours, magnitude
from onnxplug_cpu.compiler.codegen.emit import F32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.coded.few import Few, FewWords
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import Isa

_CACHE_LINE = 64


def byte_tile(rows: int) -> tuple[int, int]:
    """How many rows and columns are computed at once: their sums stay in registers."""
    return min(rows, 2), 4


class ByteWords(FewWords):
    """Words of :class:`ByteRows`: ``x_scales`` with ``x_scales_row`` are those of the
    rows, and ``groups`` how many times blocks are read."""

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
        Few(k, isa, self, self._sums, middle_of(self.form)).write()

    def _sums(self, few: Few, column: Value, count: int, first: Value) -> list[Value]:
        return _Sums(few, self, column, count, first).compute()


def middle_of(form: Form) -> int:
    """What is taken away from codes as they are multiplied: as bytes without a sign,
    two products of those of 8 bits would be too large."""
    return 128 if form.bits == 8 else 0


class _Sums:
    """The products of some rows and some columns.

    What the loop over groups of blocks carries are the places of codes, of those of the
    next columns, of scales, of rows and of theirs, and vectors of sums.
    """

    def __init__(
        self, few: Few, form: ByteRows, column: Value, count: int, first: Value
    ) -> None:
        self.few, self.form, self.column, self.count = few, form, column, count
        f, codes, k = few.f, few.codes, few.k
        assert isinstance(k, ByteWords)
        self.f, self.k = f, k
        self.sums = [
            offset(f, k.sums, (first + row) * k.sums_row) for row in range(form.rows)
        ]
        start = codes.start("codes", column)
        self.places = [
            start,
            # what the next columns have, which lie behind these
            offset(f, start, codes.words["codes_column"] * count),
            codes.start("scale", column),
            offset(f, k.x, first * k.x_row),
            offset(f, k.x_scales, first * k.x_scales_row),
        ]
        self.total = Type("i32", form.form.lanes // 4)
        self.vector = self.total.of("f32")

    def compute(self) -> list[Value]:
        """Of each row the products with all columns."""
        f, few, count, lead = self.f, self.few, self.count, len(self.places)
        carried = [*self.places] + [f.zero(self.vector)] * (count * self.form.rows)
        totals = f.loop(self.k.groups, self._group, carried, nonempty=True)[lead:]
        found = [f.reduce("fadd", total) for total in totals]
        for j in range(count):
            taken = few.zero_points.taken(self.column + j, few.k.blocks, self.sums)
            for row, away in enumerate(taken):
                found[row * count + j] = found[row * count + j] - away
        return found

    def _group(
        self,
        _: Value,
        codes: Value,
        ahead: Value,
        scale: Value,
        x: Value,
        x_scale: Value,
        *sums: Value,
    ) -> list[Value]:
        f, few, form, count = self.f, self.few, self.form, self.count
        words, total = few.codes.words, list(sums)
        nbytes, steps = form.form.lanes, self.k.steps
        for distance in range(0, nbytes * count * max(form.steps, 1), _CACHE_LINE):
            f.prefetch(offset(f, ahead, distance))
        for j in range(count):
            here, here_scale, codes_here = x, x_scale, codes
            if j and form.rows > 1:
                # a column after the other: LLVM would load for all, and spill sums
                before = [total[row * count + j - 1] for row in range(form.rows)]
                pointers = [x, x_scale, codes]
                here, here_scale, codes_here = known_after(f, few.isa, pointers, before)
            place = offset(f, codes_here, words["codes_column"] * j)
            factor = self._scales(offset(f, scale, words["scale_column"] * j))
            for row, product in enumerate(self._products(place, here)):
                line = offset(f, here_scale, self.k.x_scales_row * row)
                both = f.load(line, self.vector) * factor
                at = row * count + j
                wide = f.convert(product, self.vector)
                total[at] = multiply_add(f, few.isa, wide, both, total[at])
        return [
            offset(f, codes, words["codes_block"] * form.spans),
            offset(f, ahead, steps * (nbytes * count)),
            offset(f, scale, words["scale_block"] * form.spans),
            offset(f, x, steps * form.form.step),
            offset(f, x_scale, self.vector.lanes * F32.nbytes),
            *total,
        ]

    def _scales(self, place: Value) -> Value:
        """The scales of the blocks of a group, each in the lanes of its sums."""
        f, few, spans, lanes = self.f, self.few, self.form.spans, self.vector.lanes
        if spans == 1:
            whole = few.codes.scale(place)
            return f.shuffle(whole, whole, [0] * lanes)
        found = few.codes.scales(place, spans)
        return f.shuffle(found, found, [lane * spans // lanes for lane in range(lanes)])

    def _products(self, codes: Value, x: Value) -> list[Value]:
        """The sums of products of each row with a group of blocks of a column."""
        f, form = self.f, self.form
        found = [f.zero(self.total)] * form.rows
        if form.steps:
            for step in range(form.steps):
                found = self._step(f.value(step, I64), codes, x, found)
            return found
        return f.loop(
            self.k.steps,
            lambda step, *carried: self._step(step, codes, x, list(carried)),
            found,
            nonempty=True,
        )

    def _step(
        self, step: Value, codes: Value, x: Value, products: list[Value]
    ) -> list[Value]:
        """Add the products with the codes of a step."""
        f, few, form = self.f, self.few, self.form.form
        stored, signed = Type("u8", form.lanes), Type("i8", form.lanes)
        raw = f.load(offset(f, codes, step * form.lanes), stored, align=1)
        parts = few.codes.parts(raw)
        place = offset(f, x, step * form.step)
        found = list(products)
        for row in range(self.form.rows):
            line = offset(f, place, self.k.x_row * row)
            values = [
                f.load(offset(f, line, part * form.lanes), signed, align=1)
                for part in range(form.per_byte)
            ]
            pairs = list(zip(parts, values, strict=True))
            if middle_of(form):
                middle = f.bitcast(raw ^ middle_of(form), signed)
                pairs = [magnitude(f, few.isa, middle, values[0])]
            found[row] = add_fours(f, few.isa, pairs, found[row])
        return found
