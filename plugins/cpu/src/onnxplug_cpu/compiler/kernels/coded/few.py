"""The loops around products with weights that are codes, which are read where they are.

A column is the sum over its blocks of ``scale * (sum of x * code)``, less
``scale * zero * (sum of x)``: so codes are multiplied as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol, TypeAlias

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Value
from onnxplug_cpu.compiler.codegen.kernel import Integer, KernelWords, Pointer
from onnxplug_cpu.compiler.kernels.coded.weights import Codes, Form
from onnxplug_cpu.compiler.kernels.coded.zero_points import ZeroPoints
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile, offset
from onnxplug_cpu.compiler.machine.isa import Isa


class FewWords(KernelWords):
    """Words of :class:`Few`; strides are in bytes.

    - ``x`` with ``x_row`` and ``sums`` with ``sums_row``, as
      :class:`~.rows.OrderRows` writes them;
    - ``rows`` and ``columns`` of the result, ``blocks`` of ``steps`` each; ``parts`` of
      columns and ``row_parts`` of rows: a chunk is one of each;
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
    row_parts: Integer
    out: Pointer
    out_row: Integer
    tile: Pointer
    tile_distance: Integer
    tile_row: Integer
    epilogue: Pointer
    epilogue_words: Pointer


class FewForm(Protocol):
    """What the loops depend on."""

    @property
    def form(self) -> Form: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...


Sums: TypeAlias = Callable[["Few", Value, int, Value], list[Value]]
"""Of rows from a number on, and some columns from one on, the products, row by row:
``sums(few, column, count, first_row)``."""


class Few:
    """The loops over columns and rows.

    Args:
        sums: computes.
        middle: is taken away from codes as they are multiplied.

    Attributes:
        k: the words.
        codes: the weights.
        form: of the code.
    """

    def __init__(
        self, k: FewWords, isa: Isa, form: FewForm, sums: Sums, middle: int = 0
    ) -> None:
        self.k, self.isa, self.form, self._sums = k, isa, form, sums
        f = self.f = k.function
        self.codes = Codes(k, isa, form.form)
        self.zero_points = ZeroPoints(k, isa, self.codes, middle)
        k.keep(("x", "x_row", "sums", "sums_row", "rows", "blocks", "steps"))
        parts, row_parts = k.parts, k.row_parts
        part, row_part = k.chunk // row_parts, k.chunk % row_parts
        groups = (k.columns + (form.columns - 1)) // form.columns
        self.first = groups * part // parts * form.columns
        end = groups * (part + 1) // parts * form.columns
        self.end = f.minimum(end, k.columns)
        # whole groups of rows, but for the last one
        row_groups = (k.rows + (form.rows - 1)) // form.rows
        self.first_row = row_groups * row_part // row_parts * form.rows
        end_row = row_groups * (row_part + 1) // row_parts * form.rows
        self.end_row = f.minimum(end_row, k.rows)
        self.has_epilogue = k.epilogue.compare("ne", f.zero(PTR))
        tile = offset(f, k.tile, k.worker * k.tile_distance)
        out = f.at(offset(f, k.out, self.first_row * k.out_row), self.first, F32)
        self.target = f.select(self.has_epilogue, tile, out)
        self.target_row = f.select(self.has_epilogue, k.tile_row, k.out_row)

    def write(self) -> None:
        """Write the whole kernel."""
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
            row=self.first_row,
            rows=self.end_row - self.first_row,
            column=self.first,
            columns=self.end - self.first,
            tile=self.target,
            tile_stride=self.target_row >> 2,
        )
        f.call_pointer(k.epilogue, *finished)

    def _columns(self, column: Value, count: int) -> None:
        """Some columns of all rows, the last of which may be computed twice."""
        f, rows = self.f, self.form.rows

        def some(number: Value) -> None:
            first = f.minimum(number, self.end_row - rows)
            found = self._sums(self, column, count, first)
            for row in range(rows):
                line = first + row - self.first_row
                store = functools.partial(
                    self._store, line, column, found[row * count : (row + 1) * count]
                )
                # what is before is another chunk's
                f.branch(line >= 0, store)

        f.loop(self.end_row, some, start=self.first_row, step=rows, nonempty=True)

    def _store(self, line: Value, column: Value, found: list[Value]) -> None:
        f = self.f
        row = offset(f, self.target, line * self.target_row)
        place = f.at(row, column - self.first, F32)
        for j, value in enumerate(found):
            f.store(value, f.at(place, j, F32))
