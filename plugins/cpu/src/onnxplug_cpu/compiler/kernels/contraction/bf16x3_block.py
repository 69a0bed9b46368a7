"""The loops around the blocks of a product that is computed from bfloat16 terms.

A chunk is some blocks of rows by some panels of columns of one matrix.  As much of K as
the second-level cache holds of the terms of A comes first; then the panels of B stream
through, each for all blocks of rows.  Sums begin anew every few hundred elements of K
and are added as float32, because the sums of tiles round worse the longer they are.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, U32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.tile_registers import state_bytes, tiles_of
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_terms import (
    ANY_FLAG,
    BLOCK,
    FLAGS_BYTES,
    STEP,
    STEP_BYTES,
    define_split_rows,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_tile import (
    SUMS_BYTES,
    SUMS_ROW,
    configure,
    define_add_sums,
    define_flagged_rows,
)
from onnxplug_cpu.compiler.kernels.contraction.block import copy_tile
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import Isa

WORDS = (
    "a",
    "a_batch0",
    "a_batch1",
    "a_row",
    "b",
    "b_batch0",
    "b_batch1",
    "b_panel",
    "out",
    "out_batch0",
    "out_batch1",
    "out_row",
    "rows",
    "columns",
    "depth",
    "batches1",
    "row_parts",
    "column_parts",
    "row_blocks",
    "tile_rows",
    "panels",
    "depth_blocks",
    "inner_blocks",
    "block_steps",
    "splits",
    "terms",
    "terms_distance",
    "terms_block",
    "flags",
    "flags_distance",
    "sums",
    "sums_tail",
    "prefetch",
    "partial",
    "partial_distance",
    "partial_panel",
    "epilogue",
    "epilogue_words",
)


class TermsProduct(Generator):
    """Computes chunks of products of matrices; strides are in bytes.

    Words:

    - ``a`` and ``out`` with their strides over two batch axes and rows; their columns
      are consecutive; ``b``, packed, with its strides and the distance of panels;
    - ``rows`` M, ``columns`` N and ``depth`` K of a matrix, and ``batches1``, the size
      of the second batch axis;
    - into how many ``row_parts`` and ``column_parts`` the ``row_blocks``, each of twice
      ``tile_rows``, and the ``panels`` are divided: a chunk is a part;
    - ``depth_blocks`` of ``block_steps`` steps, ``inner_blocks`` of which are done
      before the next panel;
    - ``terms``, those of A, with the distance of blocks of rows, and ``flags``; where
      ``splits`` is not 0, each chunk makes them for its rows, and they are scratch with
      the distances of workers; otherwise they are there, for all rows and all of K;
    - ``sums``, the function of a block, ``sums_tail``, that of the last panel, and the
      bytes of the next panel that one block ``prefetch``\\ es in a step;
    - ``partial``, scratch for sums that wait (0 when none has to), distances of workers
      and of panels;
    - ``epilogue``, 0 or the function that takes finished blocks, and its words.
    """

    words = WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa)


def _write(module: Module, name: str, isa: Isa) -> None:
    copy_tile(module)
    split_rows, add_sums = define_split_rows(module), define_add_sums(module)
    flagged_rows = define_flagged_rows(module, isa)
    k = KernelFunction(module, name, WORDS)
    f = k.function
    integer, pointer = k.integer, k.pointer
    byte = Type("i8")
    state = f.stack(byte, state_bytes(isa))
    stack_sums, spare = f.stack(byte, SUMS_BYTES), f.stack(byte, SUMS_BYTES)
    tiles = tiles_of(f, isa, state)

    column_parts, row_parts = integer("column_parts"), integer("row_parts")
    rest, row_part = k.chunk // row_parts, k.chunk % row_parts
    matrix, column_part = rest // column_parts, rest % column_parts
    batches1 = integer("batches1")
    batch = matrix // batches1, matrix % batches1

    def matrix_of(word: str) -> Value:
        place = offset(f, pointer(word), batch[0] * integer(f"{word}_batch0"))
        return offset(f, place, batch[1] * integer(f"{word}_batch1"))

    a, b, out = matrix_of("a"), matrix_of("b"), matrix_of("out")
    a_row, out_row, b_panel = integer("a_row"), integer("out_row"), integer("b_panel")
    rows, columns, depth = integer("rows"), integer("columns"), integer("depth")
    row_blocks, panels = integer("row_blocks"), integer("panels")
    first_block = row_blocks * row_part // row_parts
    my_blocks = row_blocks * (row_part + 1) // row_parts - first_block
    first_panel = panels * column_part // column_parts
    end_panel = panels * (column_part + 1) // column_parts
    tile_rows = integer("tile_rows")
    block_rows = tile_rows * 2
    second = tile_rows * SUMS_ROW

    splits = integer("splits").compare("ne", 0)
    terms_block = integer("terms_block")
    # of this chunk's first block, which other chunks' blocks come before, or none
    before = f.select(splits, f.value(0, I64), matrix * row_blocks + first_block)
    terms = offset(f, pointer("terms"), k.worker * integer("terms_distance"))
    terms = offset(f, terms, before * terms_block)
    flags = offset(f, pointer("flags"), k.worker * integer("flags_distance"))
    flags = offset(f, flags, before * FLAGS_BYTES)

    depth_blocks, inner = integer("depth_blocks"), integer("inner_blocks")
    block_steps = integer("block_steps")
    partial = pointer("partial")
    waits = partial.compare("ne", f.zero(PTR))
    partial = offset(f, partial, k.worker * integer("partial_distance"))
    epilogue = pointer("epilogue")
    no_epilogue = epilogue.compare("eq", f.zero(PTR))

    def height(block: Value) -> Value:
        """Rows of a block of this chunk."""
        return f.minimum(rows - (block + first_block) * block_rows, block_rows)

    def row_of_a(block: Value, start: Value) -> Value:
        row = (block + first_block) * block_rows
        return offset(f, a, row * a_row + start * 4)

    def over_depth(outer: Value) -> None:
        first = outer * inner
        count = f.minimum(depth_blocks - first, inner)
        first_step = first * block_steps
        start = first_step * STEP
        length = f.minimum(depth - start, count * block_steps * STEP)

        def split_block(block: Value) -> None:
            f.call_void(
                split_rows,
                row_of_a(block, start),
                a_row,
                height(block),
                length,
                offset(f, terms, block * terms_block),
                tile_rows,
                offset(f, flags, block * FLAGS_BYTES),
            )

        f.branch(splits, lambda: f.loop(my_blocks, split_block) and None)
        # steps before this part of K among the terms
        skipped = f.select(splits, first_step, f.value(0, I64))
        last = (first + count).compare("eq", depth_blocks)
        f.loop(
            end_panel,
            lambda panel: (
                f.loop(
                    my_blocks,
                    lambda block: over_sums(panel, block, first, count, skipped, last),
                )
                and None
            ),
            start=first_panel,
        )

    def over_sums(
        panel: Value,
        block: Value,
        first: Value,
        count: Value,
        skipped: Value,
        last: Value,
    ) -> None:
        column = panel * BLOCK
        width = f.minimum(columns - column, BLOCK)
        narrow = width <= BLOCK // 2
        function = f.select(narrow, pointer("sums_tail"), pointer("sums"))
        high = height(block)
        place = offset(f, partial, (panel - first_panel) * integer("partial_panel"))
        place = offset(f, place, block * SUMS_BYTES)
        sums = f.select(waits, place, stack_sums)
        my_terms = offset(f, terms, block * terms_block)
        my_flags = offset(f, flags, block * FLAGS_BYTES)
        flagged = f.load(offset(f, my_flags, ANY_FLAG), U32).compare("ne", 0)
        b_here = offset(f, b, panel * b_panel)
        following = f.select(
            (panel + 1).compare("lt", end_panel), offset(f, b_here, b_panel), b_here
        )

        def over_inner(index: Value) -> None:
            start = (first + index) * block_steps
            length = f.minimum(depth - start * STEP, block_steps * STEP)
            steps = (length + (STEP - 1)) // STEP
            b_start = offset(f, b_here, start * STEP_BYTES)
            is_first = (first + index).compare("eq", 0)
            target = f.select(is_first, sums, spare)
            ahead = start * STEP_BYTES + block * (steps * integer("prefetch"))
            f.call_pointer(
                function,
                state,
                offset(f, my_terms, (start - skipped) * STEP_BYTES),
                b_start,
                target,
                second,
                steps,
                offset(f, following, ahead),
            )

            def compute_flagged() -> None:
                f.call_void(
                    flagged_rows,
                    row_of_a(block, start * STEP),
                    a_row,
                    high,
                    length,
                    b_start,
                    target,
                    my_flags,
                )

            f.branch(flagged, compute_flagged)
            f.branch(
                is_first, lambda: None, lambda: f.call_void(add_sums, sums, spare, high)
            )

        f.loop(count, over_inner)
        f.branch(last, lambda: finish(block, column, width, high, sums))

    def finish(
        block: Value, column: Value, width: Value, high: Value, sums: Value
    ) -> None:
        row = (block + first_block) * block_rows

        def store() -> None:
            f.call_void(
                "copy_tile",
                sums,
                f.value(SUMS_ROW, I64),
                offset(f, offset(f, out, row * out_row), column * 4),
                out_row,
                high,
                width * 4,
            )

        def call() -> None:
            f.call_pointer(
                epilogue,
                pointer("epilogue_words"),
                *batch,
                f.value(0, I64),
                row,
                high,
                column,
                width,
                sums,
                f.value(BLOCK, I64),
            )

        f.branch(no_epilogue, store, call)

    configure(tiles, tile_rows)
    f.loop((depth_blocks + (inner - 1)) // inner, over_depth)
    tiles.release()
    f.finish()
