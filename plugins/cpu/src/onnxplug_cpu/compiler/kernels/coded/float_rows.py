"""Few rows of floats times weights that are codes."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.coded.few import Few, FewWords
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Form
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import Isa

_CACHE_LINE = 64


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
    """

    form: Form
    rows: int
    columns: int
    steps: int

    words = (*FewWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = FewWords(module, name, WEIGHT_WORDS)
        Few(k, isa, self, self._sums).write()

    def _sums(self, few: Few, column: Value, count: int, first: Value) -> list[Value]:
        return _Sums(few, self, column, count, first).compute()


class _Sums:
    """The products of some rows and some columns.

    What the loop over blocks carries are the places of codes, of those of the next
    columns, of scales and of rows, and vectors of sums.
    """

    def __init__(
        self, few: Few, form: FloatRows, column: Value, count: int, first: Value
    ) -> None:
        self.few, self.form, self.column, self.count = few, form, column, count
        f, k, codes = few.f, few.k, few.codes
        self.f = f
        self.sums = [
            offset(f, k.sums, (first + row) * k.sums_row) for row in range(form.rows)
        ]
        start = codes.start("codes", column)
        # what the next columns have, which lie behind these
        ahead = offset(f, start, codes.words["codes_column"] * count)
        x = offset(f, k.x, first * k.x_row)
        self.places = [start, ahead, codes.start("scale", column), x]
        self.vector = Type("f32", form.form.lanes)

    def compute(self) -> list[Value]:
        """Of each row the products with all columns."""
        f, few, count, lead = self.f, self.few, self.count, len(self.places)
        carried = [*self.places] + [f.zero(self.vector)] * (count * self.form.rows)
        totals = f.loop(few.k.blocks, self._block, carried, nonempty=True)[lead:]
        found = [f.reduce("fadd", total) for total in totals]
        for j in range(count):
            taken = few.zero_points.taken(self.column + j, few.k.blocks, self.sums)
            for row, away in enumerate(taken):
                found[row * count + j] = found[row * count + j] - away
        return found

    def _block(
        self,
        _: Value,
        codes: Value,
        ahead: Value,
        scale: Value,
        x: Value,
        *sums: Value,
    ) -> list[Value]:
        f, few, form, count = self.f, self.few, self.form.form, self.count
        words, total = few.codes.words, list(sums)
        steps = few.k.steps
        lines = form.lanes * count * max(self.form.steps, 1)
        for distance in range(0, lines, _CACHE_LINE):
            f.prefetch(offset(f, ahead, distance))
        for j in range(count):
            if j and self.form.rows > 1:
                # a column after the other: LLVM would load for all, and spill sums
                before = [total[row * count + j - 1] for row in range(self.form.rows)]
                codes_here, here = known_after(f, few.isa, [codes, x], before)
            else:
                codes_here, here = codes, x
            place = offset(f, codes_here, words["codes_column"] * j)
            products = self._products(place, here)
            factor = few.codes.scale(offset(f, scale, words["scale_column"] * j))
            for row, product in enumerate(products):
                at = row * count + j
                total[at] = multiply_add(f, few.isa, product, factor, total[at])
        return [
            offset(f, codes, words["codes_block"]),
            offset(f, ahead, steps * (form.lanes * count)),
            offset(f, scale, words["scale_block"]),
            offset(f, x, steps * (form.step * F32.nbytes)),
            *total,
        ]

    def _products(self, codes: Value, x: Value) -> list[Value]:
        """The sums of products of each row with a block of a column."""
        f, form = self.f, self.form
        found = [f.zero(self.vector)] * form.rows
        if form.steps:
            for step in range(form.steps):
                found = self._step(f.value(step, I64), codes, x, found)
            return found
        return f.loop(
            self.few.k.steps,
            lambda step, *carried: self._step(step, codes, x, list(carried)),
            found,
            nonempty=True,
        )

    def _step(
        self, step: Value, codes: Value, x: Value, products: list[Value]
    ) -> list[Value]:
        """Add the products with the codes of a step."""
        f, few, form = self.f, self.few, self.form.form
        found = list(products)
        elements = offset(f, x, step * (form.step * F32.nbytes))
        numbers = few.codes.numbers(offset(f, codes, step * form.lanes))
        for part, code in enumerate(numbers):
            for row in range(self.form.rows):
                line = offset(f, elements, few.k.x_row * row)
                place = f.at(line, part * form.lanes, self.vector)
                value = f.load(place, self.vector)
                found[row] = multiply_add(f, few.isa, value, code, found[row])
        return found
