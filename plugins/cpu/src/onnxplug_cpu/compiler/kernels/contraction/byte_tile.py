"""A tile of a product of bytes by tile registers.

It is two tiles of rows by two of columns: registers 0–3 hold its sums, 4 and 5 the rows
of A, 6 and 7 the columns of B.  Four products take four loads.  Both factors are read
where they are: a step of K is 64 bytes of each row of A, and sixteen rows of quads of a
panel of B.
"""

from __future__ import annotations

import functools
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I8, I32, I64, Module, Value
from onnxplug_cpu.compiler.codegen.integer_products import SIGNED
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    ROWS,
    TILE_BYTES,
    state_bytes,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileArguments,
    TileShape,
    offset,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

BYTE_TILE: Final = TileShape(2 * ROWS, 2)
"""The largest."""

BEYOND: Final = ROWS - 1
"""How many rows of B behind a panel may be read, for nothing: the quads of A that they
are multiplied with are zero."""

_A_TILES, _B_TILES = (4, 5), (6, 7)

_AHEAD: Final = 4
"""Steps by which B is brought into the first cache before it is needed."""


class ByteTile(Generator):
    """A function that computes a tile; its arguments are
    :class:`~.tile.TileArguments`, with quads for elements of A.

    ``b`` has rows of *vectors* of 64 bytes, ``k`` for each tap, and of ``c`` as much is
    written of each row.

    Attributes:
        element: of the bytes of A, :data:`~.tile.QUADS` or
            :data:`~.tile.SIGNED_QUADS`.
        rows: of the tile, up to 32.
        vectors: in a row of it, 1 or 2.
        alone: no other tile reads the same of ``b``; ``next`` does not matter.
        taps: ``a`` is read at several offsets.
    """

    element: str
    rows: int
    vectors: int
    alone: bool = False
    taps: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Tile(module, name, isa, self).write()


class _Tile:
    """The loops over panels, taps and steps; they carry where the rows of A and B are,
    and what is prefetched."""

    def __init__(self, module: Module, name: str, isa: Isa, form: ByteTile) -> None:
        self.f = f = module.function(name, TileArguments.parameters())
        self.form = form
        self.arguments = arguments = TileArguments(*f.parameters)
        self.tiles = tiles_of(f, isa, f.stack(I8, state_bytes(isa)))
        self.rest = f.stack(I8, TILE_BYTES * BYTE_TILE.rows // ROWS)
        first = min(form.rows, ROWS)
        self.heights = [n for n in (first, form.rows - first) if n]
        self.used = [
            (row, column)
            for column in range(form.vectors)
            for row in range(len(self.heights))
        ]
        self.whole = arguments.k & -ROWS
        self.left = arguments.k - self.whole

    def write(self) -> None:
        f, arguments = self.f, self.arguments
        rows = {}
        for number, height in enumerate(self.heights):
            count = f.value(height, I64)
            of_sums = (_sum_tile(number, column) for column in range(2))
            rows.update(dict.fromkeys((_A_TILES[number], *of_sums), count))
        self.tiles.configure(rows)
        if not self.form.taps:
            self._fill_up(arguments.a)
        begin = [arguments.b, arguments.c, arguments.next]
        f.loop(arguments.panels, self._panel, begin, nonempty=True)
        self.tiles.release()
        f.finish()

    def _panel(self, _: Value, b: Value, c: Value, following: Value) -> list[Value]:
        f, form, arguments = self.f, self.form, self.arguments
        places = [
            (
                _sum_tile(row, column),
                offset(f, c, arguments.c_row * (ROWS * row) + ROW_BYTES * column),
            )
            for row, column in self.used
        ]

        def load() -> None:
            for tile, place in places:
                self.tiles.load(tile, place, arguments.c_row)

        def clear() -> None:
            for tile, _ in places:
                self.tiles.zero(tile)

        f.branch(arguments.add.compare("eq", 0), clear, load)
        if form.taps:
            _, following = f.loop(arguments.taps, self._tap, [b, following])
        else:
            _, following = self._sum_up(arguments.a, b, following)
        for tile, place in places:
            self.tiles.store(tile, place, arguments.c_row)
        width = ROW_BYTES * form.vectors
        return [offset(f, b, arguments.b_panel), offset(f, c, width), following]

    def _tap(self, number: Value, b: Value, following: Value) -> list[Value]:
        f = self.f
        distance = f.load(f.at(self.arguments.offsets, number, I64), I64)
        a = offset(f, self.arguments.a, distance)
        self._fill_up(a)
        return self._sum_up(a, b, following)

    def _fill_up(self, a: Value) -> None:
        """Copy what of the rows of A is no whole step, zeros behind it."""
        f, arguments = self.f, self.arguments
        begin = f.at(a, self.whole, I32)
        vector = I32.vector(LANES)
        mask = f.first_lanes(self.left, LANES)

        def row(number: Value) -> None:
            source = offset(f, begin, number * arguments.a_row)
            place = offset(f, self.rest, number * ROW_BYTES)
            f.store(f.load_masked(source, mask, vector), place)

        some = self.left.compare("ne", 0)
        f.branch(some, lambda: f.loop(self.form.rows, row))

    def _sum_up(self, a: Value, b: Value, following: Value) -> list[Value]:
        """Where B and what is prefetched go on, after the quads of a tap."""
        f, arguments = self.f, self.arguments
        step = functools.partial(self._step, arguments.a_row)
        _, b, following = f.loop(self.whole, step, [a, b, following], step=ROWS)

        def rest() -> list[Value]:
            width = f.value(ROW_BYTES, I64)
            self._step(width, self.left, self.rest, b, following)
            return [offset(f, b, arguments.b_row * self.left)]

        (b,) = f.branch(self.left.compare("ne", 0), rest, lambda: [b])
        return [b, following]

    def _step(
        self, a_row: Value, _: Value, a: Value, b: Value, following: Value
    ) -> list[Value]:
        f, arguments = self.f, self.arguments
        b_row = arguments.b_row
        starts = [offset(f, a, a_row * (ROWS * n)) for n in range(len(self.heights))]
        is_signed = self.form.element == SIGNED
        for row, column in self.used:
            if not row:
                place = offset(f, b, ROW_BYTES * column)
                self.tiles.load(_B_TILES[column], place, b_row)
            if not column:
                self.tiles.load(_A_TILES[row], starts[row], a_row)
            sums = _sum_tile(row, column)
            self.tiles.multiply_bytes(
                sums, _A_TILES[row], _B_TILES[column], signed=is_signed
            )
        for number in range(ROWS):
            if self.form.alone:
                line = offset(f, b, b_row * (_AHEAD * ROWS + number))
                for column in range(self.form.vectors):
                    f.prefetch(offset(f, line, ROW_BYTES * column))
            else:
                f.prefetch(offset(f, following, arguments.next_step * number), 2)
        return [
            offset(f, a, ROW_BYTES),
            offset(f, b, b_row * ROWS),
            offset(f, following, arguments.next_step * ROWS),
        ]


def _sum_tile(row: int, column: int) -> int:
    return 2 * row + column
