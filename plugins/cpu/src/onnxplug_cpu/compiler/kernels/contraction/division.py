"""How a contraction is divided: tiles and panels into chunks, K into sums."""

from __future__ import annotations

from typing import NamedTuple

from onnxplug_compiler.ir.traced import either, larger, smaller


class Division(NamedTuple):
    """How one matrix of the result is divided.

    Attributes:
        lines: of rows.
        tiles: row tiles of a line.
        tile_rows: rows of the first ones.
        tall_tiles: how many have *tile_rows* rows; the others have one less.
        together: how many tiles are computed together; a chunk has whole such groups,
            but for the last one.
        panels: of columns.
        row_parts, column_parts: parts of tiles and panels; a chunk is one of each.
    """

    lines: int
    tiles: int
    tile_rows: int
    tall_tiles: int
    together: int
    panels: int
    row_parts: int
    column_parts: int

    @property
    def all_tiles(self) -> int:
        """Tiles of all lines."""
        return self.lines * self.tiles

    @property
    def chunk_groups(self) -> int:
        """The most groups of tiles of a chunk."""
        return -(-self.all_tiles // (self.together * self.row_parts))

    @property
    def chunk_tiles(self) -> int:
        """The most tiles of a chunk."""
        return self.together * self.chunk_groups

    @property
    def chunk_panels(self) -> int:
        """The most panels of a chunk."""
        return -(-self.panels // self.column_parts)


def divide(
    lines: int,
    rows: int,
    panels: int,
    *,
    most_rows: int,
    together: int,
    row_parts: int,
    column_parts: int,
    chunks: int,
    rows_first: int = False,
) -> Division:
    """The division of a matrix of so many lines, rows of each, and panels.

    Args:
        lines, rows, panels: of the matrix.
        most_rows: of a tile; rows are spread evenly over as many as are needed.
        together: how many tiles are computed together.
        row_parts, column_parts: what caches want at least.
        chunks: how many are wanted at least.
        rows_first: whether rows are divided for that before columns are.
    """
    tiles = -(-rows // most_rows)
    tile_rows = -(-rows // tiles)
    groups = -(-lines * tiles // together)
    row_parts = smaller(row_parts, groups)
    wanted = -(-chunks // larger(1, column_parts))
    more = smaller(groups, larger(row_parts, wanted))
    row_parts = either(0, rows_first, more, row_parts)
    # otherwise of columns: what one thread reads of B no other has to
    wanted = larger(larger(1, column_parts), -(-chunks // row_parts))
    column_parts = smaller(panels, wanted)
    row_parts = smaller(groups, larger(row_parts, -(-chunks // column_parts)))
    tall_tiles = rows - tiles * (tile_rows - 1)
    return Division(
        lines,
        tiles,
        tile_rows,
        tall_tiles,
        together,
        panels,
        row_parts,
        column_parts,
    )


class Blocks(NamedTuple):
    """How K is divided into sums that begin anew, as :mod:`~.chunk` calls it."""

    outer_blocks: int
    inner_blocks: int
    blocks: int
    block_taps: int
    tap_blocks: int
    block_depth: int


def divide_depth(taps: int, depth: int, *, most: int, passes: int = 1) -> Blocks:
    """Blocks of at most *most* of K, each of whole taps or within one.

    Args:
        taps: how many.
        depth: of each.
        most: of K that is summed in one chain.
        passes: over a chunk, at most; more than one only of a single tap.
    """
    each_pass = larger(1, -(-depth // (passes * most)))
    block_depth = larger(1, -(-depth // (passes * each_pass)))
    tap_blocks = larger(1, -(-depth // block_depth))
    most_taps = larger(1, most // larger(1, depth))
    block_taps = -(-taps // -(-taps // most_taps))
    blocks = -(-taps // block_taps) * tap_blocks
    inner = -(-blocks // passes)
    return Blocks(
        -(-blocks // inner), inner, blocks, block_taps, tap_blocks, block_depth
    )
