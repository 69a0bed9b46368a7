"""The loops around the tiles of a contraction by fused multiply-adds.

Blocks of K are outermost, so that the block of A they need stays in the second-level
cache while the panels of B stream through it once; when sums of a tile need more than
one block, they wait in the result itself or in scratch memory.  K is all taps, and the
depth of each.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.contraction.chunk import SHARED_WORDS, Chunk
from onnxplug_cpu.compiler.kernels.contraction.pack import Panels, pack_panels
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import VECTOR_BYTES, Isa

BLOCK_WORDS = (
    *SHARED_WORDS,
    "b",
    "b_batch0",
    "b_batch1",
    "b_row",
    "b_tail_row",
    "b_depth",
    "b_tail_depth",
    "b_panel",
    "depth",
    "element",
    "panel_bytes",
    "by_rows",
    "a_prefetch",
    "b_prefetch",
    "tile",
    "tile_low",
    "tile_tail",
    "tile_low_tail",
    "partial",
    "partial_distance",
    "partial_tile",
    "partial_panel",
    "pack",
    "pack_row",
    "pack_column",
    "pack_rows",
    "packed",
    "packed_distance",
)

MOST_TILE_BYTES = 32 * VECTOR_BYTES
"""Room for any tile: no processor has more registers."""


class BlockProduct(Generator):
    """Computes chunks of contractions; strides and sizes are in bytes.

    Words beside :data:`~.chunk.SHARED_WORDS`:

    - ``b`` and its strides over two batch axes; ``b_row`` is what tiles receive of B's
      strides, ``b_depth`` the distance of two elements along K, both with an own value
      for the last panel, and ``b_panel`` the distance of two panels;
    - ``depth``, the elements of a tap, the bytes of an ``element``, and the
      ``panel_bytes`` of a row of a panel;
    - ``by_rows``, not 0 when all panels of a row tile come before the next row tile;
    - ``b_prefetch``, the bytes of the next panel that a step of a tile asks for, and
      ``a_prefetch``, those of a later tile's A, for which the last panel asks;
    - the four functions of a tile, of one row less, and those of the last panel;
    - ``partial``, scratch for results that wait (0 when only one tile waits), distances
      of workers, tiles and panels;
    - ``pack``, 0 when tiles can read B, or the function that packs a panel, with B's
      strides and the rows to pack at a time, and ``packed``, scratch for a chunk's
      panels, distance of workers.
    """

    words = BLOCK_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name)


def _write(module: Module, name: str) -> None:
    chunk = Chunk(module, name, BLOCK_WORDS)
    f = chunk.function
    stack = f.stack(Type("i8"), MOST_TILE_BYTES)
    integer, pointer = chunk.integer, chunk.pointer
    a, b = chunk.matrix_of("a"), chunk.matrix_of("b")
    a_line, a_row, out_row = integer("a_line"), integer("a_row"), chunk.result_row
    columns, element = chunk.columns, integer("element")
    taps, offsets, depth = integer("taps"), pointer("offsets"), integer("depth")
    panel_bytes, b_panel = integer("panel_bytes"), integer("b_panel")
    panel_columns = panel_bytes // element
    first_tile, first_panel = chunk.first_tile, chunk.first_panel
    end_panel = chunk.end_panel
    pack = pointer("pack")

    def pack_first() -> list[Value]:
        target = offset(f, pointer("packed"), chunk.worker * integer("packed_distance"))
        target = offset(f, target, 0 - first_panel * b_panel)
        panels = Panels(
            pack,
            b,
            integer("pack_row"),
            integer("pack_column"),
            taps * depth,
            integer("pack_rows"),
            columns,
            target,
            panel_bytes,
            element,
        )
        pack_panels(f, panels, first_panel, end_panel)
        return [target]

    (b,) = f.branch(pack.compare("eq", f.zero(PTR)), lambda: [b], pack_first)

    partial = pointer("partial")
    partial = f.select(
        partial.compare("eq", f.zero(PTR)),
        stack,
        offset(f, partial, chunk.worker * integer("partial_distance")),
    )
    outer, inner = integer("outer_blocks"), integer("inner_blocks")
    blocks, block_taps = integer("blocks"), integer("block_taps")
    tap_blocks, block_depth = integer("tap_blocks"), integer("block_depth")

    by_rows = integer("by_rows").compare("ne", 0)
    one, all_tiles = f.value(1, I64), integer("lines") * chunk.tiles
    last_tap = f.load(f.at(offsets, taps - 1, I64), I64)
    my_tiles, my_panels = chunk.end_tile - first_tile, end_panel - first_panel

    def over_outer(outer_block: Value, i: Value) -> None:
        last = (outer_block + 1).compare("eq", outer)
        f.loop(
            f.select(by_rows, my_panels, my_tiles),
            lambda j: over_tiles(
                outer_block, last, f.select(by_rows, j, i), f.select(by_rows, i, j)
            ),
        )

    def over_tiles(
        outer_block: Value, last: Value, my_panel: Value, my_tile: Value
    ) -> None:
        panel = my_panel + first_panel
        column = panel * panel_columns
        width = f.minimum(columns - column, panel_columns)
        whole = width.compare("eq", panel_columns)
        b_row = f.select(whole, integer("b_row"), integer("b_tail_row"))
        b_depth = f.select(whole, integer("b_depth"), integer("b_tail_depth"))
        function = f.select(whole, pointer("tile"), pointer("tile_tail"))
        function_low = f.select(whole, pointer("tile_low"), pointer("tile_low_tail"))
        b_here = offset(f, b, panel * b_panel)
        direct = whole & (chunk.has_epilogue ^ 1)
        waiting = offset(f, partial, my_panel * integer("partial_panel"))
        index = my_tile + first_tile
        tile = chunk.row_tile(index)
        function = f.select(tile.is_tall, function, function_low)
        result = chunk.result(tile, column, element)
        target = f.select(
            direct,
            result,
            offset(f, waiting, my_tile * integer("partial_tile")),
        )
        target_row = f.select(direct, out_row, panel_bytes)
        soon = f.select(last, result, target)
        soon_row = f.select(last, out_row, target_row)
        a_here = offset(f, a, tile.line * a_line + tile.row * a_row)
        # no panel follows the last: it asks for the A of the tile that comes next, or
        # that is next for the first panel, as far as no tap before has read it
        later = chunk.row_tile(
            f.minimum(index + f.select(by_rows, one, my_tiles), all_tiles - 1)
        )
        ends = (panel + 1).compare("eq", end_panel)
        a_later = offset(f, a, later.line * a_line + later.row * a_row + last_tap)
        following = f.select(ends, a_later, offset(f, b_here, b_panel))
        step = f.select(ends, integer("a_prefetch"), integer("b_prefetch"))

        def over_blocks(inner_block: Value) -> None:
            block = outer_block * inner + inner_block
            first_tap = block // tap_blocks * block_taps
            count = f.minimum(taps - first_tap, block_taps)
            start = block % tap_blocks * block_depth
            length = f.minimum(depth - start, block_depth)
            done = first_tap * depth + start
            above = done * b_depth
            ahead = f.select(
                ends, done * step, above + my_tile * (count * length * step)
            )
            f.call_pointer(
                function,
                offset(f, a_here, start * element),
                a_row,
                offset(f, b_here, above),
                b_row,
                length,
                width,
                target,
                target_row,
                block,
                soon,
                soon_row,
                offset(f, following, ahead),
                step,
                count,
                f.at(offsets, first_tap, I64),
            )

        f.loop(f.minimum(blocks - outer_block * inner, inner), over_blocks)
        f.branch(
            (direct ^ 1) & last,
            lambda: chunk.finish(tile, column, width, target, panel_columns, element),
        )

    f.loop(
        outer,
        lambda block: (
            f.loop(
                f.select(by_rows, my_tiles, my_panels), lambda i: over_outer(block, i)
            )
            and None
        ),
    )
    f.finish()
