"""The loops around the blocks of a contraction that is computed from bfloat16 terms.

As much of K as the second-level cache holds of the terms of A comes first; then the
panels of B stream through, each for all row tiles, two at a time.  Sums begin anew
every few hundred elements of K and are added as float32, because the sums of tiles
round worse the longer they are.
"""

from __future__ import annotations

from collections.abc import Callable

from onnxplug_cpu.compiler.codegen.emit import (
    I64,
    PTR,
    U32,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.tile_registers import state_bytes, tiles_of
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_terms import (
    BLOCK,
    FLAG_BYTES,
    PIXEL_BYTES,
    STEP,
    STEP_BYTES,
    TERMS,
    define_split_pixels,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_tile import (
    SUMS_BYTES,
    SUMS_ROW,
    TILE_SUMS,
    configure,
    define_add_sums,
    define_flagged_rows,
)
from onnxplug_cpu.compiler.kernels.contraction.chunk import SHARED_WORDS, Chunk, RowTile
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import LANES, Isa

WORDS = (
    *SHARED_WORDS,
    "b",
    "b_batch0",
    "b_batch1",
    "b_panel",
    "depth",
    "pixel",
    "pixel_line",
    "pixel_row",
    "last_pixel",
    "pitch",
    "line_rows",
    "term_offsets",
    "splits",
    "terms",
    "terms_distance",
    "terms_matrix",
    "plane",
    "flags",
    "flags_distance",
    "flags_matrix",
    "sums",
    "sums_tail",
    "sums_low",
    "sums_low_tail",
    "prefetch",
    "partial",
    "partial_distance",
    "partial_panel",
)


class TermsProduct(Generator):
    """Computes chunks of contractions; strides are in bytes.

    Words beside :data:`~.chunk.SHARED_WORDS`, whose tiles are computed two
    ``together``, and whose ``block_depth`` is in steps:

    - ``b``, packed, with its strides over two batch axes and the distance of panels;
      ``depth``, the elements of a tap;
    - the bytes from a ``pixel`` of A to the next, and in pixels the distances of lines
      and of rows, and the last tap's; ``term_offsets`` of the taps, in a plane;
    - ``pitch``, from how many rows on those of tiles belong to the next line of the
      result, of which only the first ``line_rows`` are wanted;
    - ``terms``, those of A, with the bytes of a matrix and of a ``plane``, and
      ``flags``; where ``splits`` is not 0, each chunk makes them for its pixels, and
      they are scratch with the distances of workers; otherwise they are there, for all
      pixels and all of K;
    - ``sums``, the function of a block, ``sums_tail``, that of the last panel, those of
      a single tile of rows, and the bytes of the next panel that one block
      ``prefetch``\\ es in a step;
    - ``partial``, scratch for sums that wait (0 when none has to), distances of workers
      and of panels.
    """

    words = WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa)


def _write(module: Module, name: str, isa: Isa) -> None:
    split_pixels, add_sums = define_split_pixels(module), define_add_sums(module)
    flagged_rows = define_flagged_rows(module, isa)
    chunk = Chunk(module, name, WORDS)
    f = chunk.function
    integer, pointer = chunk.integer, chunk.pointer
    byte = Type("i8")
    state = f.stack(byte, state_bytes(isa))
    stack_sums, spare = f.stack(byte, SUMS_BYTES), f.stack(byte, SUMS_BYTES)
    tiles = tiles_of(f, isa, state)
    zero = f.value(0, I64)

    a, b = chunk.matrix_of("a"), chunk.matrix_of("b")
    a_line, a_row, b_panel = integer("a_line"), integer("a_row"), integer("b_panel")
    columns, tile_rows = chunk.columns, chunk.tile_rows
    taps, depth = integer("taps"), integer("depth")
    offsets, term_offsets = pointer("offsets"), pointer("term_offsets")
    first_panel, end_panel = chunk.first_panel, chunk.end_panel
    first_tile, end_tile = chunk.first_tile, chunk.end_tile
    pairs = (end_tile - first_tile + 1) // 2

    pixel, pixel_row = integer("pixel"), integer("pixel_row")
    pixel_line, plane = integer("pixel_line"), integer("plane")
    pitch, line_rows = integer("pitch"), integer("line_rows")

    def pixel_of(tile: RowTile) -> Value:
        return tile.line * pixel_line + tile.row * pixel_row

    end = chunk.row_tile(end_tile - 1)
    first_pixel = pixel_of(chunk.row_tile(first_tile))
    end_pixel = pixel_of(end) + (end.rows - 1) * pixel_row + integer("last_pixel") + 1
    pixels = end_pixel - first_pixel
    splits = integer("splits").compare("ne", 0)
    # those of all pixels have also those before this chunk's
    before = f.select(splits, zero, first_pixel)
    terms = offset(f, pointer("terms"), chunk.worker * integer("terms_distance"))
    terms = offset(f, terms, chunk.matrix * integer("terms_matrix"))
    terms = offset(f, terms, before * PIXEL_BYTES)
    flags = offset(f, pointer("flags"), chunk.worker * integer("flags_distance"))
    flags = offset(f, flags, chunk.matrix * integer("flags_matrix"))
    flags = offset(f, flags, before * FLAG_BYTES)

    outer, inner = integer("outer_blocks"), integer("inner_blocks")
    blocks, block_taps = integer("blocks"), integer("block_taps")
    tap_blocks, block_steps = integer("tap_blocks"), integer("block_depth")
    tap_steps = (depth + (STEP - 1)) // STEP
    partial = pointer("partial")
    waits = partial.compare("ne", f.zero(PTR))
    partial = offset(f, partial, chunk.worker * integer("partial_distance"))

    def over_outer(outer_block: Value) -> None:
        first = outer_block * inner
        count = f.minimum(blocks - first, inner)
        # of a tap, if there are several passes; they have parts of one tap each
        first_step = f.select(outer.compare("gt", 1), first * block_steps, zero)
        start = first_step * STEP
        length = depth - start
        part = f.minimum(length, count * block_steps * STEP)
        length = f.select(outer.compare("gt", 1), part, length)

        def split() -> None:
            f.call_void(
                split_pixels,
                offset(f, a, first_pixel * pixel + start * 4),
                pixel,
                pixels,
                length,
                terms,
                plane,
                flags,
            )

        f.branch(splits, split)
        # steps before this part of K among the terms
        skipped = f.select(splits, first_step, zero)
        flagged = _any_flag(f, flags, pixels)
        last = (outer_block + 1).compare("eq", outer)
        f.loop(
            end_panel,
            lambda panel: (
                f.loop(
                    pairs,
                    lambda pair: over_pair(
                        panel, pair, first, count, skipped, flagged, last
                    ),
                )
                and None
            ),
            start=first_panel,
        )

    def over_pair(
        panel: Value,
        pair: Value,
        first: Value,
        count: Value,
        skipped: Value,
        flagged: Value,
        last: Value,
    ) -> None:
        column = panel * BLOCK
        width = f.minimum(columns - column, BLOCK)
        narrow = width <= BLOCK // 2
        number = first_tile + pair * 2
        is_pair = number + 1 < end_tile
        function = f.select(
            is_pair,
            f.select(narrow, pointer("sums_tail"), pointer("sums")),
            f.select(narrow, pointer("sums_low_tail"), pointer("sums_low")),
        )
        pair_of_tiles = [
            chunk.row_tile(number),
            chunk.row_tile(f.select(is_pair, number + 1, number)),
        ]
        places = [pixel_of(tile) - first_pixel for tile in pair_of_tiles]
        waiting = offset(f, partial, (panel - first_panel) * integer("partial_panel"))
        waiting = offset(f, waiting, pair * SUMS_BYTES)
        sums = f.select(waits, waiting, stack_sums)
        b_here = offset(f, b, panel * b_panel)
        following = f.select(
            (panel + 1).compare("lt", end_panel), offset(f, b_here, b_panel), b_here
        )

        def each(body: Callable[[RowTile, Value, Value], None]) -> None:
            """*body* with each tile, its first pixel and where its sums are."""
            body(pair_of_tiles[0], places[0], zero)
            second = f.value(TILE_SUMS, I64)
            f.branch(is_pair, lambda: body(pair_of_tiles[1], places[1], second))

        def over_inner(index: Value) -> None:
            block = first + index
            first_tap = block // tap_blocks * block_taps
            count = f.minimum(taps - first_tap, block_taps)
            start = block % tap_blocks * block_steps
            length = f.minimum(depth - start * STEP, block_steps * STEP)
            steps = (length + (STEP - 1)) // STEP
            above = (first_tap * tap_steps + start) * STEP_BYTES
            b_start = offset(f, b_here, above)
            is_first = block.compare("eq", 0)
            target = f.select(is_first, sums, spare)
            my_terms = offset(f, terms, (start - skipped) * (plane * TERMS))
            my_offsets = f.at(term_offsets, first_tap, I64)
            f.call_pointer(
                function,
                state,
                *(offset(f, my_terms, place * PIXEL_BYTES) for place in places),
                pixel_row * PIXEL_BYTES,
                plane,
                b_start,
                target,
                steps,
                count,
                my_offsets,
                offset(
                    f, following, above + pair * (count * steps * integer("prefetch"))
                ),
            )

            def compute_flagged(tile: RowTile, place: Value, at: Value) -> None:
                row = tile.line * a_line + tile.row * a_row
                f.call_void(
                    flagged_rows,
                    offset(f, a, row + start * (STEP * 4)),
                    a_row,
                    tile.rows,
                    count,
                    f.at(offsets, first_tap, I64),
                    length,
                    b_start,
                    offset(f, target, at),
                    offset(f, flags, place * FLAG_BYTES),
                    pixel_row * FLAG_BYTES,
                    my_offsets,
                )

            def add(tile: RowTile, _: Value, at: Value) -> None:
                f.call_void(
                    add_sums, offset(f, sums, at), offset(f, spare, at), tile.rows
                )

            f.branch(flagged, lambda: each(compute_flagged))
            f.branch(is_first, lambda: None, lambda: each(add))

        f.loop(count, over_inner)

        def finish(tile: RowTile, _: Value, at: Value) -> None:
            end = tile.row + tile.rows
            place = offset(f, sums, at)

            def one_line(line: Value) -> None:
                start = line * pitch
                first = f.maximum(start, tile.row)
                rows = f.minimum(start + line_rows, end) - first
                part = tile._replace(
                    line=tile.line + line, row=first - start, rows=rows
                )
                source = offset(f, place, (first - tile.row) * SUMS_ROW)
                f.branch(
                    rows.compare("gt", 0),
                    lambda: chunk.finish(
                        part, column, width, source, f.value(BLOCK, I64), 4
                    ),
                )

            f.loop((end - 1) // pitch + 1, one_line, start=tile.row // pitch)

        f.branch(last, lambda: each(finish))

    configure(tiles, tile_rows)
    f.loop(outer, over_outer)
    tiles.release()
    f.finish()


def _any_flag(f: Function, flags: Value, pixels: Value) -> Value:
    """Whether a flag of so many is set."""
    bits = U32.vector(LANES)

    def some(first: Value, seen: Value) -> list[Value]:
        mask = f.first_lanes(pixels - first, LANES)
        return [seen | f.load_masked(f.at(flags, first, U32), mask, bits)]

    (seen,) = f.loop(pixels, some, [f.zero(bits)], step=LANES)
    return f.reduce("or", seen).compare("ne", 0)
