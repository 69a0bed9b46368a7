"""Few rows times weights that are codes: these are read once, where they are.

A column is the sum over its blocks of ``scale * (sum of x * code)``, less
``scale * zero * (sum of x)``: so codes are multiplied as they are, and a zero point
costs a multiplication for a block.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Codes, Form
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    FinishedTile,
    multiply_add,
    offset,
)
from onnxplug_cpu.compiler.machine.isa import Isa


class FewWords(KernelWords):
    """Words of :class:`FewRows`; strides are in bytes.

    - ``x`` with ``x_row`` and ``sums`` with ``sums_row``, as
      :class:`~.rows.OrderRows` writes them;
    - ``rows`` and ``columns`` of the result, ``blocks`` of ``steps`` each; ``parts`` of
      columns, which are the chunks;
    - ``out`` with ``out_row``, or ``tile``, of each worker, and ``tile_distance``
      between two, with rows of ``tile_row``, and the ``epilogue`` with its words.
    """

    x: Pointer
    x_row: Integer
    sums: Pointer
    sums_row: Integer
    rows: Integer
    columns: Integer
    blocks: Integer
    steps: Integer
    parts: Integer
    out: Pointer
    out_row: Integer
    tile: Pointer
    tile_distance: Integer
    tile_row: Integer
    epilogue: Pointer
    epilogue_words: Pointer


def together(isa: Isa, rows: int) -> tuple[int, int]:
    """How many rows and columns are computed at once: their sums stay in registers."""
    if isa.name == "avx512":
        return min(rows, 4), 4
    return (min(rows, 4), 1) if rows > 2 else (rows, 4 // rows)


class FewRows(Generator):
    """Computes some columns of all rows.

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
        _Few(FewWords(module, name, WEIGHT_WORDS), isa, self).write()


class _Few:
    """The loops over columns, rows, blocks and steps."""

    def __init__(self, k: FewWords, isa: Isa, form: FewRows) -> None:
        self.k, self.isa, self.form = k, isa, form
        f = self.f = k.function
        self.codes = Codes(k, isa, form.form)
        k.keep(("x", "x_row", "sums", "sums_row", "rows", "blocks", "steps"))
        parts, groups = k.parts, (k.columns + (form.columns - 1)) // form.columns
        self.first = groups * k.chunk // parts * form.columns
        end = groups * (k.chunk + 1) // parts * form.columns
        self.end = f.minimum(end, k.columns)
        epilogue = k.epilogue
        self.has_epilogue = epilogue.compare("ne", f.zero(PTR))
        tile = offset(f, k.tile, k.worker * k.tile_distance)
        out = f.at(k.out, self.first, F32)
        self.target = f.select(self.has_epilogue, tile, out)
        self.target_row = f.select(self.has_epilogue, k.tile_row, k.out_row)

    def write(self) -> None:
        f, form = self.f, self.form
        whole = self.end - (self.end - self.first) % form.columns
        f.loop(
            whole,
            lambda column: self._columns(column, form.columns),
            start=self.first,
            step=form.columns,
        )
        f.loop(self.end, lambda column: self._columns(column, 1), start=whole)
        f.branch(self.has_epilogue, self._finish)
        f.finish()

    def _finish(self) -> None:
        k, f = self.k, self.f
        none = f.value(0, I64)
        finished = FinishedTile(
            words=k.epilogue_words,
            batch0=none,
            batch1=none,
            line=none,
            row=none,
            rows=k.rows,
            column=self.first,
            columns=self.end - self.first,
            tile=self.target,
            tile_stride=self.target_row >> 2,
        )
        f.call_pointer(k.epilogue, *finished)

    def _columns(self, column: Value, count: int) -> None:
        """Some columns of all rows, the last of which may be computed twice."""
        f, k, rows = self.f, self.k, self.form.rows

        def some(first: Value) -> None:
            first = f.minimum(first, k.rows - rows)
            sums = _Sums(self, column, count, first).compute()
            for row in range(rows):
                line = offset(f, self.target, (first + row) * self.target_row)
                for j in range(count):
                    place = f.at(line, column - self.first + j, F32)
                    f.store(sums[row * count + j], place)

        f.loop(k.rows, some, step=rows, nonempty=True)


class _Sums:
    """The products of some rows and some columns.

    What the loop over blocks carries are the places of codes and scales, vectors of
    sums, and what zero points take away from each.
    """

    def __init__(self, few: _Few, column: Value, count: int, first: Value) -> None:
        self.few, self.count, k = few, count, few.k
        f, self.rows = few.f, few.form.rows
        self.f, codes = f, few.codes
        self.sums = [
            offset(f, k.sums, (first + row) * k.sums_row) for row in range(self.rows)
        ]
        start = codes.start("codes", column)
        # what the next columns have, which lie behind these
        ahead = offset(f, start, codes.words["codes_column"] * count)
        x = offset(f, k.x, first * k.x_row)
        self.places = [start, ahead, codes.start("scale", column), x]
        self.zeros = [codes.start("zero", column + j) for j in range(count)]
        form = few.form.form
        self.vector = Type("f32", form.lanes)

    def compute(self) -> list[Value]:
        """Of each row the products with all columns."""
        f, count, lead = self.f, self.count * self.rows, len(self.places)
        carried = [*self.places]
        carried += [f.zero(self.vector)] * count + [f.zero(F32)] * count
        found = f.loop(self.few.k.blocks, self._block, carried, nonempty=True)
        totals, taken = found[lead : lead + count], found[lead + count :]
        return [
            f.reduce("fadd", total) - away
            for total, away in zip(totals, taken, strict=True)
        ]

    def _block(
        self,
        number: Value,
        codes: Value,
        ahead: Value,
        scale: Value,
        x: Value,
        *sums: Value,
    ) -> list[Value]:
        f, few, count = self.f, self.few, self.count
        words, form = few.codes.words, few.form.form
        total, taken = list(sums[: len(sums) // 2]), list(sums[len(sums) // 2 :])
        steps = few.form.steps or few.k.steps
        begin = [f.zero(self.vector)] * len(total)
        if few.form.steps:
            products = begin
            for step in range(few.form.steps):
                index = f.value(step, I64)
                products = self._step(index, codes, ahead, x, products)
        else:
            products = f.loop(
                steps,
                lambda step, *carried: self._step(step, codes, ahead, x, list(carried)),
                begin,
                nonempty=True,
            )
        for j in range(count):
            place = offset(f, scale, words["scale_column"] * j)
            factor = few.codes.scale(place)
            weight = f.lane(factor, 0)
            if form.zero:
                weight = weight * few.codes.zero(self.zeros[j], number)
            for row, sums_of in enumerate(self.sums):
                at = row * count + j
                total[at] = multiply_add(f, few.isa, products[at], factor, total[at])
                sum_ = f.load(f.at(sums_of, number, F32), F32)
                taken[at] = multiply_add(f, few.isa, weight, sum_, taken[at])
        block = few.k.steps * (form.step * F32.nbytes)
        return [
            offset(f, codes, words["codes_block"]),
            offset(f, ahead, few.k.steps * (form.lanes * count)),
            offset(f, scale, words["scale_block"]),
            offset(f, x, block),
            *total,
            *taken,
        ]

    def _step(
        self,
        step: Value,
        codes: Value,
        ahead: Value,
        x: Value,
        products: list[Value],
    ) -> list[Value]:
        """Add the products with the codes of a step."""
        f, few, count = self.f, self.few, self.count
        form, stride = few.form.form, few.codes.words["codes_column"]
        found = list(products)
        here = offset(f, codes, step * form.lanes)
        elements = offset(f, x, step * (form.step * F32.nbytes))
        soon = offset(f, ahead, step * (form.lanes * count))
        for distance in range(0, form.lanes * count, 64):
            f.prefetch(offset(f, soon, distance))
        for j in range(count):
            place = offset(f, here, stride * j)
            for part, code in enumerate(few.codes.numbers(place)):
                for row in range(self.rows):
                    line = offset(f, elements, few.k.x_row * row)
                    value = f.load(
                        f.at(line, part * form.lanes, self.vector), self.vector
                    )
                    at = row * count + j
                    found[at] = multiply_add(f, few.isa, value, code, found[at])
        return found
