"""Many rows times weights that are codes: these are made floats, a panel at a time, and
multiplied as floats are, while they are in a cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Integer, Pointer
from onnxplug_cpu.compiler.kernels.coded.panels import Panel
from onnxplug_cpu.compiler.kernels.coded.weights import WEIGHT_WORDS, Codes, Form
from onnxplug_cpu.compiler.kernels.contraction.chunk import Chunk, ChunkWords, RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments, offset
from onnxplug_cpu.compiler.machine.isa import Isa


class ManyWords(ChunkWords):
    """Words of :class:`ManyRows`; sizes are in bytes.

    - ``depth``, the elements of a row, and ``steps`` of a block;
    - ``panel_bytes`` of a row of a panel; the four functions of a tile, of one row
      less, and those of the last panel;
    - of each worker, ``sums`` with ``sums_distance``, for all tiles of a chunk, each of
      ``tile_bytes``, ``chunk_tiles`` of a panel; and ``panel_made``, the rows of a
      panel, with ``made_distance``.
    """

    depth: Integer
    steps: Integer
    panel_bytes: Integer
    tile: Pointer
    tile_low: Pointer
    tile_tail: Pointer
    tile_low_tail: Pointer
    sums: Pointer
    sums_distance: Integer
    tile_bytes: Integer
    chunk_tiles: Integer
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
        _FloatMany(ManyWords(module, name, WEIGHT_WORDS), isa, self.form).write()


class Block(NamedTuple):
    """Part of K: its number, where it begins, and how long it is."""

    number: Value
    start: Value
    length: Value


class Many(ABC):
    """The loops over blocks of K, panels and row tiles; then over finished tiles."""

    def __init__(self, k: ManyWords, isa: Isa, form: Form) -> None:
        self.k, self.isa, self.form, self.chunk = k, isa, form, Chunk(k)
        f = self.f = k.function
        self.codes = Codes(k, isa, form)
        k.keep(("depth", "steps", "panel_bytes", "block_depth", "a_row"))
        k.keep(("tile_bytes", "chunk_tiles"))
        self.columns = k.panel_bytes >> 2
        self.sums = offset(f, k.sums, k.worker * k.sums_distance)
        self.panel = offset(f, k.panel_made, k.worker * k.made_distance)
        self.a = self.chunk.matrix_of("a")

    @abstractmethod
    def make_panel(self, panel: Panel, block: Block) -> None:
        """Write the rows of a block."""

    @abstractmethod
    def multiply(self, tile: RowTile, panel: Panel, block: Block, sums: Value) -> None:
        """Multiply the rows of a tile with those of a panel, add what is in *sums* but
        for the first block, and write it there."""

    def write(self) -> None:
        """Write the whole kernel."""
        f, chunk = self.f, self.chunk
        f.loop(self.k.blocks, self._block)
        f.loop(chunk.end_panel, self._finish, start=chunk.first_panel)
        f.finish()

    def _block(self, number: Value) -> None:
        f, k, chunk = self.f, self.k, self.chunk
        start = number * k.block_depth
        block = Block(number, start, f.minimum(k.depth - start, k.block_depth))

        def panel(index: Value) -> None:
            column = index * self.columns
            count = f.minimum(chunk.columns - column, self.columns)
            made = Panel(k, self.isa, self.codes, column, count, self.panel)
            self.make_panel(made, block)

            def tile(at: Value) -> None:
                sums = self._sums_of(index, at)
                self.multiply(chunk.row_tile(at), made, block, sums)

            f.loop(chunk.end_tile, tile, start=chunk.first_tile)

        f.loop(chunk.end_panel, panel, start=chunk.first_panel)

    def _sums_of(self, panel: Value, tile: Value) -> Value:
        """Where the sums of a tile wait."""
        k, chunk = self.k, self.chunk
        number = (panel - chunk.first_panel) * k.chunk_tiles + (tile - chunk.first_tile)
        return offset(self.f, self.sums, number * k.tile_bytes)

    def function_of(self, tile: RowTile, panel: Panel) -> Value:
        """What multiplies a tile."""
        f, k = self.f, self.k
        is_whole = panel.count.compare("eq", self.columns)
        return f.select(
            tile.is_tall,
            f.select(is_whole, k.tile, k.tile_tail),
            f.select(is_whole, k.tile_low, k.tile_low_tail),
        )

    def _finish(self, panel: Value) -> None:
        f, chunk = self.f, self.chunk
        column = panel * self.columns
        count = f.minimum(chunk.columns - column, self.columns)

        def tile(at: Value) -> None:
            sums = self._sums_of(panel, at)
            place = chunk.row_tile(at)
            chunk.finish(place, column, count, sums, self.columns, F32.nbytes)

        f.loop(chunk.end_tile, tile, start=chunk.first_tile)


class _FloatMany(Many):
    """With panels of floats."""

    def make_panel(self, panel: Panel, block: Block) -> None:
        step = self.form.step
        panel.make(block.start // step, block.length // step, self.k.steps)

    def multiply(self, tile: RowTile, panel: Panel, block: Block, sums: Value) -> None:
        f, k = self.f, self.k
        none, one = f.value(0, I64), f.value(1, I64)
        arguments = TileArguments(
            a=f.at(offset(f, self.a, tile.row * k.a_row), block.start, F32),
            a_row=k.a_row,
            b=panel.target,
            b_row=panel.width,
            k=block.length,
            columns=panel.count,
            c=sums,
            c_row=k.panel_bytes,
            add=block.number,
            result=sums,
            result_row=k.panel_bytes,
            next=panel.target,
            next_step=none,
            taps=one,
            offsets=k.offsets,
            panels=one,
            b_panel=none,
            kept=f.zero(PTR),
        )
        f.call_pointer(self.function_of(tile, panel), *arguments)
