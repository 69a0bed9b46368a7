"""Blocks of 32 × 32 of a product of float32, from three bfloat16 terms of each factor.

Of the nine products of terms the six largest are summed; what the others add is below
the rounding of float32.  Tiles 0–3 hold the sums of a block, 4 and 5 a term of the rows
0–15 and 16–31 of A, 6 and 7 a term of the columns of B.  In the order of
:data:`PRODUCTS`, two that follow each other share a term, so that 24 multiplications
take 14 loads.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, U32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    TILE_BYTES,
    Tiles,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_terms import (
    BLOCK,
    PLANE_BYTES,
    STEP,
    STEP_BYTES,
    load_sum,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.target.isa import LANES, Isa

PRODUCTS: Final = ((1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (1, 1))
"""Terms of A and of B, by number, in the order in which their products are added."""

SUMS_ROW: Final = 4 * BLOCK
"""Bytes of a row of a block of sums."""

SUMS_BYTES: Final = BLOCK * SUMS_ROW

_A_TILES, _B_TILES = (4, 5), (6, 7)

_STEPS_AHEAD = 4  # how far B is brought into the first cache

_PARAMETERS: Final = (
    ("state", PTR),
    ("a", PTR),
    ("b", PTR),
    ("sums", PTR),
    ("second", I64),
    ("steps", I64),
    ("next", PTR),
)
"""The arguments of a function that computes a block: the state of the tiles; the first
step of A and of B; where to write the sums, and the bytes to the second tile's rows;
how many steps; and what may be prefetched, as many lines a step as the kernel has."""

LINES: Final = (6, 12, 24, 48)
"""How many lines of what comes next a kernel can prefetch in each step."""


def configure(tiles: Tiles, tile_rows: Value) -> None:
    """Begin to use tiles, for blocks of twice *tile_rows* rows."""
    tiles.configure(dict.fromkeys((0, 1, 2, 3, *_A_TILES), tile_rows))


class BlockOfSums(Generator):
    """A function that computes a block; its arguments are those of this module.

    Attributes:
        columns: tiles of columns, 1 or 2; with 1 the others are not computed, and
            written as they are.
        lines: of :data:`LINES`; or 0 for a block that is alone in its columns, which
            brings B into the first cache itself.
    """

    columns: int
    lines: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa, *self)


def _write(module: Module, name: str, isa: Isa, columns: int, lines: int) -> None:
    f = module.function(name, _PARAMETERS)
    state, a, b, sums, second, steps, following = f.parameters
    tiles = tiles_of(f, isa, state)
    used = [(row, column) for row in range(2) for column in range(columns)]
    for row, column in used:
        tiles.zero(_sum_tile(row, column))

    def step(_: Value, a: Value, b: Value, following: Value) -> list[Value]:
        # what comes next to the second cache, or what is near to the first
        level, base, wanted = 2, following, [64 * line for line in range(lines)]
        if not lines:
            level, base = 1, offset(f, b, _STEPS_AHEAD * STEP_BYTES)
            whole = range(0, STEP_BYTES, 64)
            wanted = [at for at in whole if at // TILE_BYTES % 2 < columns]
        count = len(wanted)
        turns = len(PRODUCTS) * len(used)
        turn = 0
        terms: dict[int, int] = {}

        def load(tile: int, place: Value, term: int, half: int) -> None:
            if terms.get(tile) != term:
                at = (term - 1) * PLANE_BYTES + half * TILE_BYTES
                tiles.load(tile, offset(f, place, at), ROW_BYTES)
                terms[tile] = term

        for left, right in PRODUCTS:
            for row, column in used:
                tile_of_a, tile_of_b = _A_TILES[row], _B_TILES[column]
                load(tile_of_b, b, right, column)
                load(tile_of_a, a, left, row)
                tiles.multiply(_sum_tile(row, column), tile_of_a, tile_of_b)
                # spread, as the processor has few loads under way at a time
                turn += 1
                for at in wanted[count * (turn - 1) // turns : count * turn // turns]:
                    f.prefetch(offset(f, base, at), level)
        return [
            offset(f, a, STEP_BYTES),
            offset(f, b, STEP_BYTES),
            offset(f, following, lines * 64),
        ]

    f.loop(steps, step, [a, b, following])
    for row, column in used:
        place = offset(f, sums, column * ROW_BYTES)
        if row:
            place = offset(f, place, second)
        tiles.store(_sum_tile(row, column), place, SUMS_ROW)
    f.finish()


def _sum_tile(row: int, column: int) -> int:
    return 2 * row + column


def define_add_sums(module: Module) -> str:
    """Define the function ``(sums, more, rows)`` that adds rows of blocks; its name."""
    parameters = [("sums", PTR), ("more", PTR), ("rows", I64)]
    f = module.function("add_sums", parameters, internal=True, inline=False)
    sums, more, rows = f.parameters
    vector = F32.vector(LANES)

    def add(line: Value) -> None:
        place = f.at(sums, line * LANES, F32)
        addend = f.load(f.at(more, line * LANES, F32), vector)
        f.store(f.load(place, vector) + addend, place)

    f.loop(rows * (BLOCK // LANES), add)
    f.finish()
    return f.name


_FLAGGED = (
    ("a", PTR),
    ("a_row", I64),
    ("rows", I64),
    ("depth", I64),
    ("b", PTR),
    ("sums", PTR),
    ("flags", PTR),
)


def define_flagged_rows(module: Module, isa: Isa) -> str:
    """Define the function that computes flagged rows of a block anew; its name.

    It multiplies float32, by fused multiply-adds where there are any: rows of A as they
    are with B as the sum of its terms.  Its arguments are the first row's address and
    the bytes between rows, how many rows, how many elements of each, the first step of
    B, the block of sums, and the rows' flags.
    """
    f = module.function("flagged_rows", _FLAGGED, internal=True, inline=False)
    a, a_row, rows, depth, b, sums, flags = f.parameters
    buffer = f.stack(Type("i8"), 4 * STEP)
    vector = F32.vector(LANES)
    zeros = [f.zero(vector)] * 4

    def row(number: Value) -> None:
        flag = f.load(f.at(flags, number, U32), U32)
        f.branch(flag.compare("ne", 0), lambda: compute(number))

    def compute(number: Value) -> None:
        start = offset(f, a, number * a_row)

        def step(k: Value, b: Value, *sums: Value) -> list[Value]:
            for half in range(2):
                first = k + half * LANES
                mask = f.first_lanes(depth - first, LANES)
                values = f.load_masked(f.at(start, first, F32), mask, vector)
                f.store(values, f.at(buffer, half * LANES, F32))

            def pair(p: Value, *sums: Value) -> list[Value]:
                factors = [
                    f.load_splat(f.at(f.at(buffer, p, F32), LANES * half, F32), vector)
                    for half in range(2)
                ]
                place = offset(f, b, p * ROW_BYTES)
                result = list(sums)
                for column in range(2):
                    weights = load_sum(f, offset(f, place, column * TILE_BYTES))
                    for half in range(2):
                        at = 2 * half + column
                        result[at] = multiply_add(
                            f, isa, factors[half], weights[half], result[at]
                        )
                return result

            return [offset(f, b, STEP_BYTES), *f.loop(LANES, pair, sums)]

        _, *totals = f.loop(depth, step, [b, *zeros], step=STEP)
        place = offset(f, sums, number * SUMS_ROW)
        f.store(totals[0] + totals[2], place)
        f.store(totals[1] + totals[3], offset(f, place, ROW_BYTES))

    f.loop(rows, row)
    f.finish()
    return f.name
