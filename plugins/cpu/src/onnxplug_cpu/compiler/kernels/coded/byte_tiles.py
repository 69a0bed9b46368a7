"""Products of bytes by tile registers.

A *tile* is up to sixteen rows of a line, or two such next to each other, by a panel of
32 columns: registers 0–3 hold its sums, 4 and 5 the rows of A, 6 and 7 the columns of
B.  Both factors are read where they are.  All tiles have equally many rows, so that
registers are configured once for a chunk: one that has a row less begins a row earlier,
and what it computes again is not used.  Likewise all steps of a tap have equally many
quads: the last one ends where the tap does, and the rows of B that a step before has
had are zero there.

Sums of some panels are written to memory, and given to the epilogue while they are in
the first cache.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I8, I64, Function, Module, Value
from onnxplug_cpu.compiler.codegen.integer_products import SIGNED
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    ROWS,
    Tiles,
    state_bytes,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.contraction.chunk import Chunk, ChunkWords, RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

VECTORS: Final = 2
"""Of sixteen columns, in a panel."""

TOGETHER: Final = 2
"""Tiles of rows that are computed at once."""

STRIP_PANELS: Final = 2
"""The most panels whose sums are given to the epilogue together: what that writes of a
row fills a cache line, and of more a processor sees too late that it can multiply what
comes next."""

QUAD_BYTES: Final = 4

_LINE: Final = 64
"""Bytes that caches have together."""

_A_TILES, _B_TILES = (4, 5), (6, 7)


class ByteTileWords(ChunkWords):
    """Words of :class:`ByteTiles`; strides and sizes are in bytes.  Tiles are of
    ``tile_rows``, and computed together by two.

    - ``b`` with its strides over two batch axes, and the distance ``b_panel`` of two
      panels; a row of it has 128 bytes, of a last one of sixteen columns or fewer 64;
    - ``quads`` of a step, ``steps`` of a tap, and ``last``, where the last of them
      begins there;
    - ``by_rows``, not 0 when all panels of some rows come before the next rows;
    - ``strip``, how many panels are computed at once;
    - ``ahead``, how many cache lines of the next strip a step asks for.
    """

    b: Pointer
    b_batch0: Integer
    b_batch1: Integer
    b_panel: Integer
    quads: Integer
    steps: Integer
    last: Integer
    by_rows: Integer
    strip: Integer
    ahead: Integer


class ByteTiles(Generator):
    """Computes chunks of products of bytes.

    Attributes:
        element: of the bytes of A: ``u8`` or ``i8``.
    """

    element: str

    words = ByteTileWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Product(ByteTileWords(module, name), isa, self.element).write()


class _PanelArguments(FunctionArguments):
    """The arguments of a function that computes a tile, or two, by a panel: where the
    rows of A begin, and where sums belong, ``c_row`` apart; ``ahead`` and how many
    ``lines`` of it each step asks for; the rest is as in the words.
    """

    a: Pointer
    a_second: Pointer
    a_row: Integer
    b: Pointer
    b_row: Integer
    c: Pointer
    c_second: Pointer
    c_row: Integer
    taps: Integer
    offsets: Pointer
    quads: Integer
    steps: Integer
    last: Integer
    ahead: Pointer
    lines: Integer
    state: Pointer


class _Panel:
    """Such a function: loops over taps, and steps of each."""

    def __init__(
        self, module: Module, isa: Isa, element: str, height: int, vectors: int
    ) -> None:
        self.name = f"panel_{height}x{vectors}"
        self.f = f = module.function(
            self.name, _PanelArguments.parameters(), internal=True, inline=False
        )
        self.height, self.vectors = height, vectors
        self.is_signed = element == SIGNED
        self.arguments = arguments = _PanelArguments(*f.parameters)
        self.tiles = tiles_of(f, isa, arguments.state)
        self.step_bytes = arguments.quads * arguments.b_row

    def write(self) -> None:
        f, arguments = self.f, self.arguments
        places = [arguments.c, arguments.c_second][: self.height]
        for row in range(self.height):
            for column in range(self.vectors):
                self.tiles.zero(_sum_tile(row, column))
        f.loop(arguments.taps, self._tap, [arguments.b, arguments.ahead], nonempty=True)
        for row, place in enumerate(places):
            for column in range(self.vectors):
                target = offset(f, place, ROW_BYTES * column)
                self.tiles.store(_sum_tile(row, column), target, arguments.c_row)
        f.finish()

    def _tap(self, number: Value, b: Value, ahead: Value) -> list[Value]:
        f, arguments = self.f, self.arguments
        distance = f.load(f.at(arguments.offsets, number, I64), I64)
        rows = [arguments.a, arguments.a_second][: self.height]
        starts = [offset(f, place, distance) for place in rows]

        def step(index: Value, b: Value, ahead: Value) -> list[Value]:
            at = f.minimum(index * ROW_BYTES, arguments.last)
            self._step([offset(f, start, at) for start in starts], b)
            f.loop(
                arguments.lines,
                lambda line: f.prefetch(offset(f, ahead, line * _LINE), 2),
            )
            ahead = offset(f, ahead, arguments.lines * _LINE)
            return [offset(f, b, self.step_bytes), ahead]

        return f.loop(arguments.steps, step, [b, ahead], nonempty=True)

    def _step(self, rows: list[Value], b: Value) -> None:
        f, arguments, tiles = self.f, self.arguments, self.tiles
        for column in range(self.vectors):
            place = offset(f, b, ROW_BYTES * column)
            tiles.load(_B_TILES[column], place, arguments.b_row)
            for row, start in enumerate(rows):
                if not column:
                    tiles.load(_A_TILES[row], start, arguments.a_row)
                factors = _A_TILES[row], _B_TILES[column]
                sums = _sum_tile(row, column)
                tiles.multiply_bytes(sums, *factors, signed=self.is_signed)


class _Product:
    """The loops over rows and strips of panels; a turn is a *cell*."""

    def __init__(self, words: ByteTileWords, isa: Isa, element: str) -> None:
        self.words = words
        self.f = f = words.function
        self.state = f.stack(I8, state_bytes(isa))
        self.sums = f.stack(I8, TOGETHER * ROWS * STRIP_PANELS * VECTORS * ROW_BYTES)
        self.chunk = chunk = Chunk(words)
        words.keep(("a_line", "a_row", "b_panel", "strip", "last", "tile_rows"))
        self.tiles = tiles_of(f, isa, self.state)
        self.a, self.b = chunk.matrix_of("a"), chunk.matrix_of("b")
        self.row_bytes = words.strip * (VECTORS * ROW_BYTES)
        self.panels = {
            (height, vectors): _Panel(f.module, isa, element, height, vectors)
            for height in (1, TOGETHER)
            for vectors in (1, VECTORS)
        }
        for panel in self.panels.values():
            panel.write()

    def write(self) -> None:
        f, words, chunk = self.f, self.words, self.chunk
        _configure(f, words, self.tiles)
        cells = (chunk.end_tile - chunk.first_tile + (TOGETHER - 1)) // TOGETHER
        strips = (chunk.end_panel - chunk.first_panel + (words.strip - 1)) // (
            words.strip
        )
        by_rows = words.by_rows.compare("ne", 0)

        def major(i: Value) -> None:
            def minor(j: Value) -> None:
                rows, strip = f.select(by_rows, i, j), f.select(by_rows, j, i)
                is_last = (strip + 1).compare("eq", strips)
                lines = f.select(is_last, f.value(0, I64), words.ahead)
                self._cell(rows, strip, lines)

            f.loop(f.select(by_rows, strips, cells), minor)

        f.loop(f.select(by_rows, cells, strips), major)
        self.tiles.release()
        f.finish()

    def _cell(self, rows: Value, strip: Value, lines: Value) -> None:
        """Two tiles, or a last one, by a strip; each step asks for so many *lines* of
        the next strip."""
        f, words, chunk = self.f, self.words, self.chunk
        number = chunk.first_tile + rows * TOGETHER
        are_two = (number + 1) < chunk.end_tile
        first = chunk.row_tile(number)
        second = chunk.row_tile(f.select(are_two, number + 1, number))
        joined = are_two & first.line.compare("eq", second.line)
        height = words.tile_rows
        apart = f.select(joined, second.rows, height)
        begin = chunk.first_panel + strip * words.strip
        end = f.minimum(begin + words.strip, chunk.end_panel)
        of_strip = words.steps * words.taps * words.strip * lines
        ahead = offset(f, self.b, (begin + words.strip) * words.b_panel)
        arguments = _PanelArguments(
            a=self._rows_of_a(first),
            a_second=self._rows_of_a(second),
            a_row=words.a_row,
            b=offset(f, self.b, begin * words.b_panel),
            b_row=f.value(VECTORS * ROW_BYTES, I64),
            c=self.sums,
            c_second=offset(f, self.sums, apart * self.row_bytes),
            c_row=self.row_bytes,
            taps=words.taps,
            offsets=words.offsets,
            quads=words.quads,
            steps=words.steps,
            last=words.last,
            ahead=offset(f, ahead, rows * of_strip * _LINE),
            lines=lines,
            state=self.state,
        )
        self._panels(arguments, begin, end, are_two)
        column = begin * (VECTORS * LANES)
        width = f.minimum(chunk.columns - column, (end - begin) * (VECTORS * LANES))
        more = f.select(joined, second.rows, f.value(0, I64))
        both = first._replace(rows=first.rows + more)
        self._finish(both, height - first.rows, column, width)
        alone = are_two & (joined ^ 1)
        below = height + height - second.rows
        f.branch(alone, lambda: self._finish(second, below, column, width))

    def _rows_of_a(self, tile: RowTile) -> Value:
        """Where the rows of a tile begin, and one more before them if it is low."""
        words = self.words
        row = tile.row + tile.rows - words.tile_rows
        return offset(self.f, self.a, tile.line * words.a_line + row * words.a_row)

    def _panels(
        self, arguments: _PanelArguments, begin: Value, end: Value, are_two: Value
    ) -> None:
        """Sums of all panels of a strip, side by side."""
        f, words, chunk = self.f, self.words, self.chunk
        width = VECTORS * ROW_BYTES
        of_panel = words.steps * words.taps * arguments.lines * _LINE

        def panel(number: Value, b: Value, c: Value, ahead: Value) -> list[Value]:
            left = chunk.columns - number * (VECTORS * LANES)
            is_narrow = left.compare("le", LANES)
            row = f.select(is_narrow, f.value(ROW_BYTES, I64), arguments.b_row)
            distance = f.address(arguments.c_second) - f.address(arguments.c)
            given = arguments._replace(
                b=b, b_row=row, c=c, c_second=offset(f, c, distance), ahead=ahead
            )

            def call(height: int) -> None:
                names = (self.panels[height, n].name for n in (1, VECTORS))
                narrow, wide = names
                f.branch(
                    is_narrow,
                    lambda: f.call_void(narrow, *given),
                    lambda: f.call_void(wide, *given),
                )

            f.branch(are_two, lambda: call(TOGETHER), lambda: call(1))
            return [
                offset(f, b, words.b_panel),
                offset(f, c, width),
                offset(f, ahead, of_panel),
            ]

        begins = [arguments.b, arguments.c, arguments.ahead]
        f.loop(end, panel, begins, start=begin, nonempty=True)

    def _finish(self, tile: RowTile, row: Value, column: Value, width: Value) -> None:
        """Give sums from a row on to the epilogue."""
        f = self.f
        source = offset(f, self.sums, row * self.row_bytes)
        columns = self.words.strip * (VECTORS * LANES)
        self.chunk.finish(tile, column, width, source, columns, QUAD_BYTES)


def _configure(f: Function, words: ByteTileWords, tiles: Tiles) -> None:
    """Begin to use the registers."""
    height, quads = words.tile_rows, words.quads
    of_a = dict.fromkeys(_A_TILES, quads * QUAD_BYTES)
    rows = dict.fromkeys((*range(TOGETHER * VECTORS), *_A_TILES), height)
    tiles.configure(rows | dict.fromkeys(_B_TILES, quads), of_a)


def _sum_tile(row: int, column: int) -> int:
    return VECTORS * row + column
