"""Many rows times weights that are codes: these are made floats, a panel at a time, and
multiplied as floats are, while they are in a cache."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Codes, Form
from onnxplug_cpu.compiler.kernels.contraction.chunk import Chunk, ChunkWords, RowTile
from onnxplug_cpu.compiler.kernels.contraction.pack import PanelArguments
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments, offset
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa


class ManyWords(ChunkWords):
    """Words of :class:`ManyRows`; sizes are in bytes.

    - ``depth``, the elements of a row, and ``steps`` of a block;
    - ``panel_bytes`` of a row of a panel; the four functions of a tile, of one row
      less, and those of the last panel; and ``pack``, which turns columns to rows;
    - of each worker, ``sums`` with ``sums_distance``, for all tiles of a chunk, each of
      ``tile_bytes``, ``chunk_tiles`` of a panel; ``columns_made``, the columns of a
      panel as floats, ``column_bytes`` apart, and ``panel_made``, its rows, with
      ``made_distance``.
    """

    depth: Integer
    steps: Integer
    panel_bytes: Integer
    tile: Pointer
    tile_low: Pointer
    tile_tail: Pointer
    tile_low_tail: Pointer
    pack: Pointer
    sums: Pointer
    sums_distance: Integer
    tile_bytes: Integer
    chunk_tiles: Integer
    columns_made: Pointer
    column_bytes: Integer
    panel_made: Pointer
    made_distance: Integer


class ManyRows(Generator):
    """Computes chunks of the product; ``a`` is as :class:`~.rows.OrderRows` writes it.

    Attributes:
        form: of the weights.
    """

    form: Form

    words = (*ManyWords.names, *WEIGHT_WORDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Many(ManyWords(module, name, WEIGHT_WORDS), isa, self.form).write()


class _Many:
    """The loops over blocks of K, panels and row tiles; then over finished tiles."""

    def __init__(self, k: ManyWords, isa: Isa, form: Form) -> None:
        self.k, self.form, self.chunk = k, form, Chunk(k)
        f = self.f = k.function
        self.codes = Codes(k, isa, form)
        k.keep(("depth", "steps", "panel_bytes", "block_depth", "a_row"))
        k.keep(("tile_bytes", "chunk_tiles", "column_bytes"))
        self.columns = k.panel_bytes >> 2
        self.sums = offset(f, k.sums, k.worker * k.sums_distance)
        self.made = offset(f, k.columns_made, k.worker * k.made_distance)
        self.panel = offset(f, k.panel_made, k.worker * k.made_distance)
        self.a = self.chunk.matrix_of("a")

    def write(self) -> None:
        f, chunk = self.f, self.chunk
        f.loop(self.k.blocks, self._block)
        f.loop(chunk.end_panel, self._finish, start=chunk.first_panel)
        f.finish()

    def _block(self, number: Value) -> None:
        f, chunk = self.f, self.chunk
        start = number * self.k.block_depth
        length = f.minimum(self.k.depth - start, self.k.block_depth)

        def panel(index: Value) -> None:
            column = index * self.columns
            count = f.minimum(chunk.columns - column, self.columns)
            self._make_panel(column, count, start, length)

            def tile(at: Value) -> None:
                self._multiply(chunk.row_tile(at), at, index, (number, start, length))

            f.loop(chunk.end_tile, tile, start=chunk.first_tile)

        f.loop(chunk.end_panel, panel, start=chunk.first_panel)

    def _make_panel(
        self, column: Value, count: Value, start: Value, length: Value
    ) -> None:
        """The rows of a panel, from row *start* on."""
        f, k, form = self.f, self.k, self.form
        first = start // form.step
        steps = length // form.step
        begins = [first // k.steps, first % k.steps]

        def one_column(j: Value) -> None:
            begin = [
                self.codes.start(n, column + j) for n in ("codes", "scale", "zero")
            ]
            target = offset(f, self.made, j * k.column_bytes)

            def step(index: Value, block: Value, rest: Value) -> list[Value]:
                place = f.at(target, index * form.step, F32)
                self._make_step(begin, block, rest, place)
                is_last = (rest + 1).compare("eq", k.steps)
                none = f.value(0, I64)
                return [
                    f.select(is_last, block + 1, block),
                    f.select(is_last, none, rest + 1),
                ]

            f.loop(steps, step, begins)

        f.loop(count, one_column)
        width = (count * F32.nbytes + (VECTOR_BYTES - 1)) & -VECTOR_BYTES
        arguments = PanelArguments(
            source=self.made,
            row_stride=f.value(F32.nbytes, I64),
            column_stride=k.column_bytes,
            rows=length,
            columns=count,
            target=self.panel,
            width=width,
        )
        f.call_pointer(k.pack, *arguments)

    def _make_step(
        self, begin: list[Value], block: Value, rest: Value, target: Value
    ) -> None:
        """The codes of a step of a block as the numbers that they stand for."""
        f, words, form = self.f, self.codes.words, self.form
        codes, scale, zero = begin
        place = offset(f, codes, block * words["codes_block"] + rest * form.lanes)
        factor = self.codes.scale(offset(f, scale, block * words["scale_block"]))
        if form.zero:
            middle = self.codes.zero(zero, block)
        else:
            middle = f.convert(words["offset"], F32)
        vector = Type("f32", form.lanes)
        taken = f.splat(middle, form.lanes)
        for part, value in enumerate(self.codes.numbers(place)):
            made = (value - taken) * factor
            f.store(made, f.at(target, part * form.lanes, vector), align=4)

    def _sums_of(self, panel: Value, tile: Value) -> Value:
        """Where the sums of a tile wait."""
        k, chunk = self.k, self.chunk
        number = (panel - chunk.first_panel) * k.chunk_tiles + (tile - chunk.first_tile)
        return offset(self.f, self.sums, number * k.tile_bytes)

    def _multiply(
        self,
        tile: RowTile,
        number: Value,
        panel: Value,
        block: tuple[Value, Value, Value],
    ) -> None:
        f, k, chunk = self.f, self.k, self.chunk
        count = f.minimum(chunk.columns - panel * self.columns, self.columns)
        is_whole = count.compare("eq", self.columns)
        function = f.select(
            tile.is_tall,
            f.select(is_whole, k.tile, k.tile_tail),
            f.select(is_whole, k.tile_low, k.tile_low_tail),
        )
        width = (count * F32.nbytes + (VECTOR_BYTES - 1)) & -VECTOR_BYTES
        sums, (add, start, length) = self._sums_of(panel, number), block
        none, one = f.value(0, I64), f.value(1, I64)
        arguments = TileArguments(
            a=f.at(offset(f, self.a, tile.row * k.a_row), start, F32),
            a_row=k.a_row,
            b=self.panel,
            b_row=width,
            k=length,
            columns=count,
            c=sums,
            c_row=k.panel_bytes,
            add=add,
            result=sums,
            result_row=k.panel_bytes,
            next=self.panel,
            next_step=none,
            taps=one,
            offsets=k.offsets,
            panels=one,
            b_panel=none,
            kept=f.zero(PTR),
        )
        f.call_pointer(function, *arguments)

    def _finish(self, panel: Value) -> None:
        f, chunk = self.f, self.chunk
        column = panel * self.columns
        count = f.minimum(chunk.columns - column, self.columns)

        def tile(at: Value) -> None:
            sums = self._sums_of(panel, at)
            place = chunk.row_tile(at)
            chunk.finish(place, column, count, sums, self.columns, F32.nbytes)

        f.loop(chunk.end_tile, tile, start=chunk.first_tile)
