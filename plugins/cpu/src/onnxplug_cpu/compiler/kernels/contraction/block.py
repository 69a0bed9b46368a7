"""The loops around the tiles of a contraction by fused multiply-adds.

Blocks of K are outermost, so that the block of A they need stays in the second-level
cache while the panels of B stream through it once; when sums of a tile need more than
one block, they wait in the result itself or in scratch memory.  K is all taps, and the
depth of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.contraction.chunk import SHARED_WORDS, Chunk, Place
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
    "strip",
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

STRIP_BYTES = 128 * VECTOR_BYTES
"""Room for the tiles that wait for the epilogue together; no processor has registers
for as many bytes in one."""


class BlockProduct(Generator):
    """Computes chunks of contractions; strides and sizes are in bytes.

    Words beside :data:`~.chunk.SHARED_WORDS`:

    - ``b`` and its strides over two batch axes; ``b_row`` is what tiles receive of B's
      strides, ``b_depth`` the distance of two elements along K, both with an own value
      for the last panel, and ``b_panel`` the distance of two panels;
    - ``depth``, the elements of a tap, the bytes of an ``element``, and the
      ``panel_bytes`` of a row of a panel;
    - ``by_rows``, not 0 when all panels of a row tile come before the next row tile;
    - ``strip``, how many whole panels are computed at once, for calls to be few; 1 if
      not by rows or if results wait for another pass;
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


class _Pass(NamedTuple):
    """Over a chunk, for some blocks of K.

    Attributes:
        first_block: the number of the first one.
        blocks: how many.
        first_tap, start: where the first one begins: in which tap, and where there.
        is_last: whether no pass follows.
    """

    first_block: Value
    blocks: Value
    first_tap: Value
    start: Value
    is_last: Value


def _write(module: Module, name: str) -> None:
    chunk = Chunk(module, name, BLOCK_WORDS)
    f = chunk.function
    stack = f.stack(Type("i8"), STRIP_BYTES)
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
    last_tap = f.load(f.at(offsets, taps - 1, I64), I64)
    my_tiles, strip = chunk.end_tile - first_tile, integer("strip")
    strip_columns = strip * panel_columns
    whole_panels = f.minimum(end_panel, columns // panel_columns) - first_panel
    # a last panel that is not whole is a strip of its own
    my_strips = (whole_panels + (strip - 1)) // strip
    my_strips = my_strips + (end_panel - first_panel - whole_panels)
    begin, beyond = chunk.place(first_tile), chunk.place(chunk.end_tile)

    def over_outer(outer_block: Value) -> None:
        first_block = outer_block * inner
        pass_ = _Pass(
            first_block,
            f.minimum(blocks - first_block, inner),
            first_block // tap_blocks * block_taps,
            first_block % tap_blocks * block_depth,
            (outer_block + 1).compare("eq", outer),
        )

        def major(i: Value, *carried: Value) -> Sequence[Value]:
            here = Place(*carried)
            next_row = chunk.following(here)

            def minor(j: Value, *carried: Value) -> Sequence[Value]:
                here, later = Place(*carried[:2]), Place(*carried[2:])
                my_strip, my_tile = f.select(by_rows, j, i), f.select(by_rows, i, j)
                over_tiles(pass_, my_strip, my_tile, here, later)
                return [
                    *chosen(here, chunk.following(here)),
                    *chosen(later, chunk.following(later)),
                ]

            f.loop(
                f.select(by_rows, my_strips, my_tiles),
                minor,
                [*here, *chosen(next_row, beyond)],
            )
            return chosen(next_row, here)

        f.loop(f.select(by_rows, my_tiles, my_strips), major, begin)

    def chosen(if_by_rows: Place, otherwise: Place) -> list[Value]:
        pairs = zip(if_by_rows, otherwise, strict=True)
        return [f.select(by_rows, *pair) for pair in pairs]

    def over_tiles(
        pass_: _Pass, my_strip: Value, my_tile: Value, place: Place, next_place: Place
    ) -> None:
        my_panel = f.minimum(my_strip * strip, whole_panels)
        whole = my_panel < whole_panels
        panels = f.minimum(whole_panels - my_panel, strip)
        panels = f.select(whole, panels, 1)
        panel = my_panel + first_panel
        column = panel * panel_columns
        width = f.minimum(columns - column, panels * panel_columns)
        b_row = f.select(whole, integer("b_row"), integer("b_tail_row"))
        b_depth = f.select(whole, integer("b_depth"), integer("b_tail_depth"))
        function = f.select(whole, pointer("tile"), pointer("tile_tail"))
        function_low = f.select(whole, pointer("tile_low"), pointer("tile_low_tail"))
        b_here = offset(f, b, panel * b_panel)
        direct = whole & (chunk.has_epilogue ^ 1)
        waiting = offset(f, partial, my_panel * integer("partial_panel"))
        tile, last = chunk.row_tile(place), pass_.is_last
        function = f.select(tile.is_tall, function, function_low)
        result = chunk.result(tile, column, element)
        target = f.select(
            direct,
            result,
            offset(f, waiting, my_tile * integer("partial_tile")),
        )
        target_row = f.select(direct, out_row, strip * panel_bytes)
        soon = f.select(last, result, target)
        soon_row = f.select(last, out_row, target_row)
        a_here = offset(f, a, tile.line * a_line + tile.row * a_row)
        # no panel follows the last: it asks for the A of the tile that comes next, or
        # that is next for the first panel, as far as no tap before has read it
        later = chunk.row_tile(next_place)
        ends = (panel + panels).compare("eq", end_panel)
        a_later = offset(f, a, later.line * a_line + later.row * a_row + last_tap)
        following = f.select(ends, a_later, offset(f, b_here, panels * b_panel))
        step = f.select(ends, integer("a_prefetch"), integer("b_prefetch"))

        def over_blocks(index: Value, first_tap: Value, start: Value) -> list[Value]:
            count = f.minimum(taps - first_tap, block_taps)
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
                pass_.first_block + index,
                soon,
                soon_row,
                offset(f, following, ahead),
                step,
                count,
                f.at(offsets, first_tap, I64),
                panels,
                b_panel,
            )
            start = start + block_depth
            whole = start.compare("ge", depth)
            return [
                f.select(whole, first_tap + block_taps, first_tap),
                f.select(whole, f.value(0, I64), start),
            ]

        f.loop(pass_.blocks, over_blocks, [pass_.first_tap, pass_.start])
        f.branch(
            (direct ^ 1) & last,
            lambda: chunk.finish(tile, column, width, target, strip_columns, element),
        )

    f.loop(outer, over_outer)
    f.finish()
