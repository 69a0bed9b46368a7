"""The loops around the tiles of a contraction.

A chunk is a block of the result of one matrix of the batch: some row tiles by some
panels of columns.  Blocks of K are outermost, so that the block of A they need stays in
the second-level cache while the panels of B stream through it once; when sums of a tile
need more than one block, they wait in the result itself or in scratch memory.  K is all
taps, and the depth of each.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.contraction.pack import Panels, pack_panels
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import LANES, VECTOR_BYTES, Isa

BLOCK_WORDS = (
    "a",
    "a_batch0",
    "a_batch1",
    "a_line",
    "a_row",
    "b",
    "b_batch0",
    "b_batch1",
    "b_row",
    "b_tail_row",
    "b_depth",
    "b_tail_depth",
    "b_panel",
    "out",
    "out_batch0",
    "out_batch1",
    "out_line",
    "out_row",
    "columns",
    "taps",
    "offsets",
    "depth",
    "element",
    "batches1",
    "row_parts",
    "column_parts",
    "lines",
    "tiles",
    "tall_tiles",
    "tile_rows",
    "panels",
    "panel_bytes",
    "outer_blocks",
    "inner_blocks",
    "blocks",
    "block_taps",
    "tap_blocks",
    "block_depth",
    "by_rows",
    "prefetch",
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
    "epilogue",
    "epilogue_words",
)

MOST_TILE_BYTES = 32 * VECTOR_BYTES
"""Room for any tile: no processor has more registers."""


class BlockProduct(Generator):
    """Computes blocks of contractions; strides and sizes are in bytes.

    Words:

    - ``a``, ``b``, ``out`` and their strides over two batch axes, lines and rows; the
      elements of a tap of A and the columns of the result are consecutive; ``b_row`` is
      what tiles receive of B's strides, ``b_depth`` the distance of two elements along
      K, both with an own value for the last panel, and ``b_panel`` the distance of two
      panels;
    - ``columns`` N, ``taps``, where their ``offsets`` from A's row are, and ``depth``,
      the elements of a tap; bytes of an ``element``;
    - ``batches1``, the size of the second batch axis, and into how many ``row_parts``
      and ``column_parts`` a matrix is divided: a chunk is a part;
    - ``lines``, each of ``tiles`` row tiles, the first ``tall_tiles`` of them of
      ``tile_rows`` rows, the others of one less; ``panels`` of ``panel_bytes`` a row;
    - ``blocks`` of K: ``outer_blocks`` passes over the chunk, and ``inner_blocks``
      within each tile; they have ``block_taps`` taps, or a tap has ``tap_blocks`` of
      them, each of ``block_depth``;
    - ``by_rows``, not 0 when all panels of a row tile come before the next row tile;
    - ``prefetch``, the bytes of the next panel that a step of a tile asks for;
    - the four functions of a tile, of one row less, and those of the last panel;
    - ``partial``, scratch for results that wait (0 when only one tile waits), distances
      of workers, tiles and panels;
    - ``pack``, 0 when tiles can read B, or the function that packs a panel, with B's
      strides and the rows to pack at a time, and ``packed``, scratch for a chunk's
      panels, distance of workers;
    - ``epilogue``, 0 or the function that takes finished tiles, and its words.
    """

    words = BLOCK_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa)


def _write(module: Module, name: str, isa: Isa) -> None:
    copy_tile(module)
    k = KernelFunction(module, name, BLOCK_WORDS)
    f = k.function
    stack = f.stack(Type("i8"), MOST_TILE_BYTES)
    integer, pointer = k.integer, k.pointer

    column_parts, row_parts = integer("column_parts"), integer("row_parts")
    rest, row_part = k.chunk // row_parts, k.chunk % row_parts
    matrix, column_part = rest // column_parts, rest % column_parts
    batches1 = integer("batches1")
    batch = matrix // batches1, matrix % batches1

    def matrix_of(word: str) -> Value:
        place = offset(f, pointer(word), batch[0] * integer(f"{word}_batch0"))
        return offset(f, place, batch[1] * integer(f"{word}_batch1"))

    a, b, out = matrix_of("a"), matrix_of("b"), matrix_of("out")
    a_row, out_row = integer("a_row"), integer("out_row")
    a_line, out_line = integer("a_line"), integer("out_line")
    columns, element = integer("columns"), integer("element")
    taps, offsets, depth = integer("taps"), pointer("offsets"), integer("depth")
    panel_bytes, b_panel = integer("panel_bytes"), integer("b_panel")
    panel_columns = panel_bytes // element
    tiles, panels = integer("tiles"), integer("panels")
    all_tiles = integer("lines") * tiles
    first_tile = all_tiles * row_part // row_parts
    end_tile = all_tiles * (row_part + 1) // row_parts
    first_panel = panels * column_part // column_parts
    end_panel = panels * (column_part + 1) // column_parts
    pack, epilogue = pointer("pack"), pointer("epilogue")
    no_epilogue = epilogue.compare("eq", f.zero(PTR))

    def pack_first() -> list[Value]:
        target = offset(f, pointer("packed"), k.worker * integer("packed_distance"))
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
        offset(f, partial, k.worker * integer("partial_distance")),
    )
    outer, inner = integer("outer_blocks"), integer("inner_blocks")
    blocks, block_taps = integer("blocks"), integer("block_taps")
    tap_blocks, block_depth = integer("tap_blocks"), integer("block_depth")
    tile_rows, tall_tiles = integer("tile_rows"), integer("tall_tiles")

    by_rows = integer("by_rows").compare("ne", 0)
    my_tiles, my_panels = end_tile - first_tile, end_panel - first_panel

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
        panel, index = my_panel + first_panel, my_tile + first_tile
        column = panel * panel_columns
        width = f.minimum(columns - column, panel_columns)
        whole = width.compare("eq", panel_columns)
        b_row = f.select(whole, integer("b_row"), integer("b_tail_row"))
        b_depth = f.select(whole, integer("b_depth"), integer("b_tail_depth"))
        tile = f.select(whole, pointer("tile"), pointer("tile_tail"))
        tile_low = f.select(whole, pointer("tile_low"), pointer("tile_low_tail"))
        b_here = offset(f, b, panel * b_panel)
        direct = whole & no_epilogue
        finish = (direct ^ 1) & last
        waiting = offset(f, partial, my_panel * integer("partial_panel"))
        following = f.select(
            (panel + 1).compare("lt", end_panel), offset(f, b_here, b_panel), b_here
        )
        line, tile_of_line = index // tiles, index % tiles
        low = f.maximum(tile_of_line - tall_tiles, f.value(0, index.type))
        row = tile_of_line * tile_rows - low
        is_tall = tile_of_line < tall_tiles
        rows = f.select(is_tall, tile_rows, tile_rows - 1)
        function = f.select(is_tall, tile, tile_low)
        result = offset(f, out, line * out_line + row * out_row + column * element)
        target = f.select(
            direct,
            result,
            offset(f, waiting, my_tile * integer("partial_tile")),
        )
        target_row = f.select(direct, out_row, panel_bytes)
        soon = f.select(last, result, target)
        soon_row = f.select(last, out_row, target_row)
        a_here = offset(f, a, line * a_line + row * a_row)
        step = integer("prefetch")

        def over_blocks(inner_block: Value) -> None:
            block = outer_block * inner + inner_block
            first_tap = block // tap_blocks * block_taps
            count = f.minimum(taps - first_tap, block_taps)
            start = block % tap_blocks * block_depth
            length = f.minimum(depth - start, block_depth)
            above = (first_tap * depth + start) * b_depth
            ahead = above + my_tile * (count * length * step)
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

        def done() -> None:
            def store() -> None:
                f.call_void(
                    "copy_tile",
                    target,
                    panel_bytes,
                    result,
                    out_row,
                    rows,
                    width * element,
                )

            def call() -> None:
                f.call_pointer(
                    epilogue,
                    pointer("epilogue_words"),
                    *batch,
                    line,
                    row,
                    rows,
                    column,
                    width,
                    target,
                    panel_columns,
                )

            f.branch(no_epilogue, store, call)

        f.branch(finish, done)

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


def copy_tile(module: Module) -> None:
    """Define ``copy_tile``: rows of any number of 4-byte words between two strides."""
    parameters = [
        ("source", PTR),
        ("source_row", Type("i64")),
        ("target", PTR),
        ("target_row", Type("i64")),
        ("rows", Type("i64")),
        ("nbytes", Type("i64")),
    ]
    f: Function = module.function("copy_tile", parameters, internal=True, inline=False)
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
