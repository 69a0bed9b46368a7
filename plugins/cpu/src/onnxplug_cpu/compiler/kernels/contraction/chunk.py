"""What kernels of contractions have in common: their part of the work, and its end.

A chunk is some row tiles by some panels of columns of one matrix of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

from onnxplug_cpu.compiler.codegen.emit import PTR, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile, offset
from onnxplug_cpu.compiler.machine.isa import LANES


class ChunkWords(KernelWords):
    """Words of each kernel of contractions; strides are in bytes.

    - ``a`` and ``out`` with their strides over two batch axes, lines and rows; the
      elements of a tap of A and the columns of the result, of ``out_element`` bytes
      each, are consecutive; how many
      ``taps``, and where their ``offsets`` from A's row are, ``columns`` N, and
      ``batches1``, the size of the second batch axis;
    - ``lines``, each of ``tiles`` row tiles, the first ``tall_tiles`` of them of
      ``tile_rows`` rows, the others of one less; as many of them as are computed
      ``together``, and ``panels`` of columns, are divided into ``row_parts`` and
      ``column_parts``: a chunk is a part;
    - ``blocks`` of K: ``outer_blocks`` passes over the chunk, and ``inner_blocks``
      within each tile; they have ``block_taps`` taps, or a tap has ``tap_blocks`` of
      them, each of ``block_depth``;
    - ``epilogue``, 0 or the function that takes finished tiles, and its words.
    """

    a: Pointer
    a_batch0: Integer
    a_batch1: Integer
    a_line: Integer
    a_row: Integer
    taps: Integer
    offsets: Pointer
    out: Pointer
    out_batch0: Integer
    out_batch1: Integer
    out_line: Integer
    out_row: Integer
    out_element: Integer
    columns: Integer
    batches1: Integer
    lines: Integer
    tiles: Integer
    tall_tiles: Integer
    tile_rows: Integer
    together: Integer
    panels: Integer
    row_parts: Integer
    column_parts: Integer
    outer_blocks: Integer
    inner_blocks: Integer
    blocks: Integer
    block_taps: Integer
    tap_blocks: Integer
    block_depth: Integer
    epilogue: Pointer
    epilogue_words: Pointer


class TileCopy(FunctionArguments):
    """The arguments of ``copy_tile``, which copies *rows* of *nbytes*, a multiple of 4,
    between two strides in bytes."""

    source: Pointer
    source_row: Integer
    target: Pointer
    target_row: Integer
    rows: Integer
    nbytes: Integer


class Place(NamedTuple):
    """Which row tile: its line, and its number there."""

    line: Value
    number: Value


class RowTile(NamedTuple):
    """Where a tile is: its line, its first row there, and how many rows it has."""

    line: Value
    row: Value
    rows: Value
    is_tall: Value


class Chunk:
    """The part of a contraction that a call of its kernel computes.

    Attributes:
        words: the kernel's.
        function: the kernel's.
        matrix: the number of the chunk's matrix in the batch.
        batch: its two indices.
        first_tile, end_tile: of the matrix, line after line.
        first_panel, end_panel: of its columns.
    """

    def __init__(self, words: ChunkWords) -> None:
        f = self.function = words.function
        _define_copy_tile(f.module)
        self.words = words
        column_parts, row_parts = words.column_parts, words.row_parts
        rest, row_part = words.chunk // row_parts, words.chunk % row_parts
        self.matrix, column_part = rest // column_parts, rest % column_parts
        batches1 = words.batches1
        self.batch = self.matrix // batches1, self.matrix % batches1
        self.tiles, self.tile_rows = words.tiles, words.tile_rows
        self._tall_tiles = words.tall_tiles
        all_tiles, together = words.lines * self.tiles, words.together
        units = (all_tiles + (together - 1)) // together
        self.first_tile = units * row_part // row_parts * together
        end_tile = units * (row_part + 1) // row_parts * together
        self.end_tile = f.minimum(end_tile, all_tiles)
        panels = words.panels
        self.first_panel = panels * column_part // column_parts
        self.end_panel = panels * (column_part + 1) // column_parts
        self.columns = words.columns
        self._out = self.matrix_of("out")
        self._out_line, self._out_row = words.out_line, words.out_row
        self._out_element = words.out_element
        self._epilogue = words.epilogue
        self.has_epilogue = self._epilogue.compare("ne", f.zero(PTR))

    def matrix_of(self, word: str) -> Value:
        """Where the chunk's matrix of *word* begins."""
        f, k, (first, second) = self.function, self.words, self.batch
        place = offset(f, k.pointer(word), first * k.integer(f"{word}_batch0"))
        return offset(f, place, second * k.integer(f"{word}_batch1"))

    def place(self, index: Value) -> Place:
        """The place of the tile of this number, line after line."""
        return Place(index // self.tiles, index % self.tiles)

    def following(self, place: Place) -> Place:
        """The place of the next tile; dividing for it would take long."""
        f, number = self.function, place.number + 1
        ends = number.compare("eq", self.tiles)
        line = f.select(ends, place.line + 1, place.line)
        return Place(line, f.select(ends, f.value(0, number.type), number))

    def row_tile(self, place: Value | Place) -> RowTile:
        """The tile at a place, or of a number, line after line."""
        f = self.function
        line, number = place if isinstance(place, Place) else self.place(place)
        low = f.maximum(number - self._tall_tiles, f.value(0, number.type))
        is_tall = number < self._tall_tiles
        rows = f.select(is_tall, self.tile_rows, self.tile_rows - 1)
        return RowTile(line, number * self.tile_rows - low, rows, is_tall)

    def result(self, tile: RowTile, column: Value) -> Value:
        """Where a tile belongs in the result, or its first result."""
        at = tile.line * self._out_line + tile.row * self._out_row
        return offset(self.function, self._out, at + column * self._out_element)

    @property
    def result_row(self) -> Value:
        """Bytes from a row of the result to the next."""
        return self._out_row

    def finish(
        self,
        tile: RowTile,
        column: Value,
        width: Value,
        source: Value,
        source_columns: Value,
        element: Value | int,
    ) -> None:
        """Give a finished tile to the epilogue, or copy it to the result.

        Args:
            tile: which one.
            column: its first column.
            width: how many columns.
            source: its elements.
            source_columns: elements from a row of them to the next.
            element: bytes of one.
        """
        f = self.function

        def store() -> None:
            copied = TileCopy(
                source=source,
                source_row=source_columns * element,
                target=self.result(tile, column),
                target_row=self._out_row,
                rows=tile.rows,
                nbytes=width * element,
            )
            f.call_void("copy_tile", *copied)

        def call() -> None:
            finished = FinishedTile(
                words=self.words.epilogue_words,
                batch0=self.batch[0],
                batch1=self.batch[1],
                line=tile.line,
                row=tile.row,
                rows=tile.rows,
                column=column,
                columns=width,
                tile=source,
                tile_stride=source_columns,
            )
            f.call_pointer(self._epilogue, *finished)

        f.branch(self.has_epilogue, call, store)


def _define_copy_tile(module: Module) -> None:
    """Define ``copy_tile``, whose arguments are :class:`TileCopy`."""
    f: Function = module.function(
        "copy_tile", TileCopy.parameters(), internal=True, inline=False
    )
    source, source_row, target, target_row, rows, nbytes = f.parameters
    vector = Type("f32", LANES)
    words = nbytes >> 2

    def chunk(j: Value) -> None:
        mask = f.first_lanes(words - j, LANES)

        def row(i: Value) -> None:
            value = f.load_masked(
                f.at(offset(f, source, i * source_row), j, vector), mask, vector
            )
            place = f.at(offset(f, target, i * target_row), j, vector)
            f.store_masked(value, place, mask)

        f.loop(rows, row)

    f.loop(words, chunk, step=LANES)
    f.finish()
