"""Few rows of floats times weights that are codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxplug_cpu.compiler.codegen.emit import F32, U32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.coded.few import Few, FewWords
from onnxplug_cpu.compiler.kernels.coded.row_sums import RowSums
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import Isa


def float_tile(isa: Isa, rows: int) -> tuple[int, int]:
    """How many rows and columns are computed at once: their sums stay in registers."""
    if isa.name == "avx512":
        return min(rows, 4), 4 if rows < 3 else 3
    return (min(rows, 4), 1) if rows > 2 else (rows, 4 // rows)


class FloatRows(Generator):
    """Computes some columns of some rows, as :class:`~.rows.OrderRows` writes them.

    Attributes:
        form: of the weights.
        rows, columns: that are computed at once.
        steps: of a block; 0 if there are many.
        spans: blocks whose scales are read at once; if several, they are of a step, and
            next to each other, as are their scales.
    """

    form: Form
    rows: int
    columns: int
    steps: int
    spans: int = 1

    words = (*FewWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = FewWords(module, name, WEIGHT_WORDS)
        Few(k, isa, self, self._sums).write()

    def _sums(self, few: Few, column: Value, count: int, first: Value) -> list[Value]:
        return _Sums(few, self, column, count, first).compute()


class _Sums(RowSums):
    def __init__(
        self, few: Few, form: FloatRows, column: Value, count: int, first: Value
    ) -> None:
        vector = Type("f32", form.form.lanes)
        self.takes_zeros = bool(form.form.zero)
        super().__init__(
            few,
            form,
            column,
            count,
            first,
            vector=vector,
            product=vector,
            turns=few.k.blocks // form.spans if form.spans > 1 else few.k.blocks,
            spans=form.spans,
            nbytes=form.form.lanes * form.spans,
        )

    def _scaled(
        self, codes: Value, scale: Value, rows: Sequence[Value]
    ) -> Iterator[list[tuple[Value, Value]]]:
        f, factors = self.f, self._scales(scale)
        step = self.few.codes.form.step * F32.nbytes
        found: list[list[tuple[Value, Value]]] = [[] for _ in range(self.rows)]
        for span, factor in enumerate(factors):
            place = offset(f, codes, span * self.few.codes.form.lanes)
            x = offset(f, rows[0], span * step)
            for scaled, product in zip(found, self._products(place, x), strict=True):
                scaled.append((product, factor))
        yield from found

    def _scales(self, place: Value) -> list[Value]:
        """The scales of a turn's blocks, each in all lanes."""
        if self.spans == 1:
            return [self.few.codes.scale(place)]
        if self.few.codes.form.scale == "bf16":
            return self._pairs_of_scales(place)
        found = self.few.codes.scales(place, self.spans)
        return [
            self.f.shuffle(found, found, [span] * self.vector.lanes)
            for span in range(self.spans)
        ]

    def _pairs_of_scales(self, place: Value) -> list[Value]:
        """Two at a time, each of which is half of a word."""
        f, found = self.f, []
        for first in range(0, self.spans, 2):
            word = f.load(offset(f, place, 2 * first), U32, align=2)
            both = f.splat(word, self.vector.lanes)
            found += [both << 16, both & 0xFFFF_0000]
        return [f.bitcast(each, self.vector) for each in found]

    def _advance(self) -> list[Value | int]:
        steps = self.few.k.steps if self.spans == 1 else self.spans
        return [steps * (self.few.codes.form.step * F32.nbytes)]

    def _step(
        self, step: Value, codes: Value, x: Value, products: list[Value]
    ) -> list[Value]:
        f, few, form = self.f, self.few, self.few.codes.form
        found = list(products)
        elements = offset(f, x, step * (form.step * F32.nbytes))
        numbers = few.codes.numbers(offset(f, codes, step * form.lanes))
        for part, code in enumerate(numbers):
            for row in range(self.rows):
                line = offset(f, elements, few.k.x_row * row)
                place = f.at(line, part * form.lanes, self.vector)
                value = f.load(place, self.vector)
                found[row] = multiply_add(f, few.isa, value, code, found[row])
        return found
