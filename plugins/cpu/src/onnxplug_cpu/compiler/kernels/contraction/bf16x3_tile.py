"""Pairs of tiles of a product of float32, from three bfloat16 terms of each factor.

Of the nine products of terms the six largest are summed; what the others add is below
the rounding of float32.  A *block* is two tiles of rows by two of columns: tiles 0–3
hold its sums, 4 and 5 a term of the rows of A, 6 and 7 a term of the columns of B.  In
the order of :data:`PRODUCTS`, two that follow each other share a term, so that 24
multiplications take 14 loads.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, U32, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    ROWS,
    TILE_BYTES,
    Tiles,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_terms import (
    BLOCK,
    FLAG_BYTES,
    PIXEL_BYTES,
    STEP,
    STEP_BYTES,
    TERM_BYTES,
    TERMS,
    load_sum,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.target.isa import LANES, Isa

PRODUCTS: Final = ((1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (1, 1))
"""Terms of A and of B, by number, in the order in which their products are added."""

SUMS_ROW: Final = 4 * BLOCK
"""Bytes of a row of a block of sums."""

TILE_SUMS: Final = ROWS * SUMS_ROW
"""Bytes of the sums of a tile of rows."""

SUMS_BYTES: Final = 2 * TILE_SUMS

_A_TILES, _B_TILES = (4, 5), (6, 7)

_STEPS_AHEAD = 4  # how far B is brought into the first cache

_PARAMETERS: Final = (
    ("state", PTR),
    ("first", PTR),
    ("second", PTR),
    ("row", I64),
    ("plane", I64),
    ("b", PTR),
    ("sums", PTR),
    ("steps", I64),
    ("taps", I64),
    ("offsets", PTR),
    ("next", PTR),
)
"""The arguments of a function that computes a block: the state of the tiles; where the
rows of the first and of the second tile begin in the first plane of A, the bytes from
row to row, and from plane to plane; the first step of B; where to write the sums; how
many steps of each tap, how many taps, and an array of i64, the bytes from the first row
to that of each tap; and what may be prefetched, as many lines a step as the kernel has.
"""

LINES: Final = (6, 12, 24, 48)
"""How many lines of what comes next a kernel can prefetch in each step."""


def configure(tiles: Tiles, tile_rows: Value) -> None:
    """Begin to use tiles of so many rows."""
    tiles.configure(dict.fromkeys((0, 1, 2, 3, *_A_TILES), tile_rows))


class BlockOfSums(Generator):
    """A function that computes a block; its arguments are those of this module.

    Attributes:
        rows: tiles of rows, 1 or 2; with 1 the second is neither read nor written.
        columns: tiles of columns, 1 or 2; with 1 the others are not computed, and
            written as they are.
        lines: of :data:`LINES`; or 0 for a block that is alone in its columns, which
            brings B into the first cache itself.
    """

    rows: int
    columns: int
    lines: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa, *self)


def _write(
    module: Module, name: str, isa: Isa, rows: int, columns: int, lines: int
) -> None:
    f = module.function(name, _PARAMETERS)
    state, first, second, row_bytes, plane, b, sums = f.parameters[:7]
    steps, taps, offsets, following = f.parameters[7:]
    tiles = tiles_of(f, isa, state)
    used = [(row, column) for row in range(rows) for column in range(columns)]
    for row, column in used:
        tiles.zero(_sum_tile(row, column))
    step_bytes = plane * TERMS

    def step(_: Value, b: Value, following: Value, *a: Value) -> list[Value]:
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

        def load_of_a(row: int, term: int) -> None:
            tile = _A_TILES[row]
            if terms.get(tile) != term:
                tiles.load(tile, offset(f, a[row], plane * (term - 1)), row_bytes)
                terms[tile] = term

        def load_of_b(column: int, term: int) -> None:
            tile = _B_TILES[column]
            if terms.get(tile) != term:
                at = (term - 1) * TERM_BYTES + column * TILE_BYTES
                tiles.load(tile, offset(f, b, at), ROW_BYTES)
                terms[tile] = term

        for left, right in PRODUCTS:
            for row, column in used:
                load_of_b(column, right)
                load_of_a(row, left)
                tiles.multiply(_sum_tile(row, column), _A_TILES[row], _B_TILES[column])
                # spread, as the processor has few loads under way at a time
                turn += 1
                for at in wanted[count * (turn - 1) // turns : count * turn // turns]:
                    f.prefetch(offset(f, base, at), level)
        return [
            offset(f, b, STEP_BYTES),
            offset(f, following, lines * 64),
            *(offset(f, place, step_bytes) for place in a),
        ]

    def tap(number: Value, b: Value, following: Value) -> list[Value]:
        distance = f.load(f.at(offsets, number, I64), I64)
        a = [offset(f, place, distance) for place in (first, second)[:rows]]
        return f.loop(steps, step, [b, following, *a])[:2]

    f.loop(taps, tap, [b, following])
    for row, column in used:
        place = offset(f, sums, row * TILE_SUMS + column * ROW_BYTES)
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
    ("taps", I64),
    ("offsets", PTR),
    ("depth", I64),
    ("b", PTR),
    ("sums", PTR),
    ("flags", PTR),
    ("flags_row", I64),
    ("term_offsets", PTR),
)


def define_flagged_rows(module: Module, isa: Isa) -> str:
    """Define the function that computes flagged rows of a tile anew; its name.

    It multiplies float32, by fused multiply-adds where there are any: rows of A as they
    are with B as the sum of its terms.  Its arguments are the first row's address and
    the bytes between rows; how many rows, how many taps, the bytes to each, and how
    many elements of each; the first step of B; the tile's sums; the first row's flag
    and the bytes to the next row's; and the bytes to each tap in planes.
    """
    f = module.function("flagged_rows", _FLAGGED, internal=True, inline=False)
    a, a_row, rows, taps, offsets, depth, b, sums = f.parameters[:8]
    flags, flags_row, term_offsets = f.parameters[8:]
    buffer = f.stack(Type("i8"), 4 * STEP)
    vector = F32.vector(LANES)
    zeros = [f.zero(vector)] * 4

    def row(number: Value) -> None:
        flag = offset(f, flags, number * flags_row)

        def one(tap: Value, any_flag: Value) -> list[Value]:
            distance = f.load(f.at(term_offsets, tap, I64), I64)
            place = offset(f, flag, distance // PIXEL_BYTES * FLAG_BYTES)
            return [any_flag | f.load(place, U32)]

        (any_flag,) = f.loop(taps, one, [f.value(0, U32)])
        f.branch(any_flag.compare("ne", 0), lambda: compute(number))

    def compute(number: Value) -> None:
        start = offset(f, a, number * a_row)

        def one(tap: Value, b: Value, *sums: Value) -> list[Value]:
            place = offset(f, start, f.load(f.at(offsets, tap, I64), I64))
            return over_steps(place, b, *sums)

        _, *totals = f.loop(taps, one, [b, *zeros])
        place = offset(f, sums, number * SUMS_ROW)
        f.store(totals[0] + totals[2], place)
        f.store(totals[1] + totals[3], offset(f, place, ROW_BYTES))

    def over_steps(start: Value, b: Value, *sums: Value) -> list[Value]:
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

        return f.loop(depth, step, [b, *sums], step=STEP)

    f.loop(rows, row)
    f.finish()
    return f.name
