"""Pairs of tiles of a product of float32, from bfloat16 terms of each factor.

Of the nine products of three terms the six largest are summed; what the others add is
below the rounding of float32.  Factors of fewer terms need fewer of the six; of two
terms each, the three largest, as the fourth adds less than what two terms leave out.

A *block* is two tiles of rows by two of columns: tiles 0–3 hold its sums, 4 and 5 a
term of the rows of A, 6 and 7 a term of the columns of B.  In the order of
:data:`PRODUCTS`, two that follow each other share a term, so that 24 multiplications
take 14 loads.
"""

from __future__ import annotations

import functools
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I64,
    U32,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.tile_registers import (
    ROW_BYTES,
    ROWS,
    TILE_BYTES,
    Tiles,
    tiles_of,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    BLOCK,
    FLAG_BYTES,
    PIXEL_BYTES,
    STEP,
    TERM_BYTES,
    TERMS,
    load_sum,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

PRODUCTS: Final = ((1, 3), (1, 2), (2, 2), (2, 1), (3, 1), (1, 1))
"""Terms of A and of B, by number, in the order in which their products are added: two
that follow each other share a term, and the largest product is last."""

_OF_TWO: Final = ((1, 2), (1, 1), (2, 1))
"""The same of two terms each, whose sums are not so exact that the order mattered."""


def products_of(left: int, right: int) -> list[tuple[int, int]]:
    """Those of factors that have so many terms."""
    order = _OF_TWO if max(left, right) == 2 else PRODUCTS
    return [each for each in order if each[0] <= left and each[1] <= right]


SUMS_ROW: Final = 4 * BLOCK
"""Bytes of a row of a block of sums."""

TILE_SUMS: Final = ROWS * SUMS_ROW
"""Bytes of the sums of a tile of rows."""

SUMS_BYTES: Final = 2 * TILE_SUMS

_A_TILES, _B_TILES = (4, 5), (6, 7)

STEPS_AHEAD: Final = 4
"""How far ahead B is brought into the first cache."""


class BlockArguments(FunctionArguments):
    """The arguments of a function that computes a block.

    ``state`` of the tiles; where the rows of the ``first`` and of the ``second`` tile
    begin in the first plane of A, the bytes from ``row`` to row, and from ``plane`` to
    plane; the first step of ``b``; where to write the ``sums``, and, if ``adds`` is not
    0, from which of them to go on; how many ``steps`` of
    each tap, how many ``taps``, and ``offsets``, an array of i64, the bytes from the
    first row to that of each tap; and what may be prefetched, as many lines a step as
    the kernel has.
    """

    state: Pointer
    first: Pointer
    second: Pointer
    row: Integer
    plane: Integer
    b: Pointer
    sums: Pointer
    adds: Integer
    steps: Integer
    taps: Integer
    offsets: Pointer
    next: Pointer


LINES: Final = (4, 8, 12, 16, 24, 48)
"""How many lines of what comes next a kernel can prefetch in each step."""


def configure(tiles: Tiles, tile_rows: Value) -> None:
    """Begin to use tiles of so many rows."""
    tiles.configure(dict.fromkeys((0, 1, 2, 3, *_A_TILES), tile_rows))


class BlockOfSums(Generator):
    """A function that computes a block; :class:`BlockArguments` are its arguments.

    Attributes:
        rows: tiles of rows, 1 or 2; with 1 the second is neither read nor written.
        columns: tiles of columns, 1 or 2; with 1 the others are not computed, and
            written as they are.
        lines: of :data:`LINES`; or 0 for a block that is alone in its columns, which
            brings B into the first cache itself.
        left, right: terms of an element of A and of B.
    """

    rows: int
    columns: int
    lines: int
    left: int = TERMS
    right: int = TERMS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Block(module, name, isa, self).write()


class _Block:
    """The loops over taps and steps; they carry where B, what comes next and the rows
    of A are."""

    def __init__(self, module: Module, name: str, isa: Isa, form: BlockOfSums) -> None:
        self.f = f = module.function(name, BlockArguments.parameters())
        self.form = form
        self.arguments = BlockArguments(*f.parameters)
        self.tiles = tiles_of(f, isa, self.arguments.state)
        rows, columns = range(form.rows), range(form.columns)
        self.used = [(row, column) for row in rows for column in columns]

    def write(self) -> None:
        f, arguments = self.f, self.arguments
        f.branch(arguments.adds.compare("eq", 0), self._begin, self._go_on)
        self.step_bytes = arguments.plane * self.form.left
        f.loop(arguments.taps, self._tap, [arguments.b, arguments.next])
        for row, column in self.used:
            place = self._sums(row, column)
            self.tiles.store(_sum_tile(row, column), place, SUMS_ROW)
        f.finish()

    def _begin(self) -> None:
        for row, column in self.used:
            self.tiles.zero(_sum_tile(row, column))

    def _go_on(self) -> None:
        for row, column in self.used:
            self.tiles.load(_sum_tile(row, column), self._sums(row, column), SUMS_ROW)

    def _sums(self, row: int, column: int) -> Value:
        at = row * TILE_SUMS + column * ROW_BYTES
        return offset(self.f, self.arguments.sums, at)

    def _tap(self, number: Value, b: Value, following: Value) -> list[Value]:
        f, arguments = self.f, self.arguments
        distance = f.load(f.at(arguments.offsets, number, I64), I64)
        begins = (arguments.first, arguments.second)[: self.form.rows]
        a = [offset(f, place, distance) for place in begins]
        return f.loop(arguments.steps, self._step, [b, following, *a])[:2]

    def _step(self, _: Value, b: Value, following: Value, *a: Value) -> list[Value]:
        f, form = self.f, self.form
        nbytes = form.right * TERM_BYTES
        # what comes next to the second cache, or what is near to the first
        level, base, wanted = 2, following, [64 * line for line in range(form.lines)]
        if not form.lines:
            level, base = 1, offset(f, b, STEPS_AHEAD * nbytes)
            whole = range(0, nbytes, 64)
            wanted = [at for at in whole if at // TILE_BYTES % 2 < form.columns]
        products = products_of(form.left, form.right)
        turns = [(*terms, *place) for terms in products for place in self.used]
        loaded: dict[int, int] = {}
        for turn, (left, right, row, column) in enumerate(turns):
            self._load_term(loaded, _B_TILES[column], right, b, column)
            self._load_term(loaded, _A_TILES[row], left, a[row])
            sums = _sum_tile(row, column)
            self.tiles.multiply(sums, _A_TILES[row], _B_TILES[column])
            # spread, as the processor has few loads under way at a time
            begin, end = (len(wanted) * n // len(turns) for n in (turn, turn + 1))
            for at in wanted[begin:end]:
                f.prefetch(offset(f, base, at), level)
        return [
            offset(f, b, nbytes),
            offset(f, following, form.lines * 64),
            *(offset(f, place, self.step_bytes) for place in a),
        ]

    def _load_term(
        self,
        loaded: dict[int, int],
        tile: int,
        term: int,
        place: Value,
        column: int | None = None,
    ) -> None:
        """Load a term of rows of A, or of a *column* of B, unless the tile has it."""
        f, arguments = self.f, self.arguments
        if loaded.get(tile) == term:
            return
        loaded[tile] = term
        if column is None:
            place = offset(f, place, arguments.plane * (term - 1))
            self.tiles.load(tile, place, arguments.row)
        else:
            at = (term - 1) * TERM_BYTES + column * TILE_BYTES
            self.tiles.load(tile, offset(f, place, at), ROW_BYTES)


def _sum_tile(row: int, column: int) -> int:
    return 2 * row + column


class SumsArguments(FunctionArguments):
    """The arguments of the function that adds *rows* of blocks, *more*, to *sums*."""

    sums: Pointer
    more: Pointer
    rows: Integer


def define_add_sums(module: Module) -> str:
    """Define the function that adds rows of blocks; its name."""
    f = module.function(
        "add_sums", SumsArguments.parameters(), internal=True, inline=False
    )
    sums, more, rows = f.parameters
    vector = F32.vector(LANES)

    def add(line: Value) -> None:
        place = f.at(sums, line * LANES, F32)
        addend = f.load(f.at(more, line * LANES, F32), vector)
        f.store(f.load(place, vector) + addend, place)

    f.loop(rows * (BLOCK // LANES), add)
    f.finish()
    return f.name


class FlaggedArguments(FunctionArguments):
    """The arguments of the function that adds what is flagged.

    The first row's address and the bytes between rows; how many ``rows``, how many
    ``taps``, the bytes to each, and how many elements of each; the first step of ``b``;
    the tile's ``sums``; the first row's flag and the bytes to the next row's; and the
    bytes to each tap in planes.
    """

    a: Pointer
    a_row: Integer
    rows: Integer
    taps: Integer
    offsets: Pointer
    depth: Integer
    b: Pointer
    sums: Pointer
    flags: Pointer
    flags_row: Integer
    term_offsets: Pointer


def define_flagged_rows(module: Module, isa: Isa, terms: int) -> str:
    """Define the function that adds the products of flagged pixels to the sums of a
    tile, in which they are 0; its name.

    Args:
        terms: of an element of B.

    It multiplies float32, by fused multiply-adds where there are any: pixels of A as
    they are with B as the sum of its terms.
    """
    f = module.function(
        "flagged_rows", FlaggedArguments.parameters(), internal=True, inline=False
    )
    _FlaggedRows(f, isa, FlaggedArguments(*f.parameters), terms).write()
    return f.name


_VECTOR: Final = F32.vector(LANES)


class _FlaggedRows:
    """The loops over rows, taps and steps.

    The last carry where B is, and four sums: of the low and the high halves of a step,
    for the columns of two vectors.
    """

    def __init__(
        self, f: Function, isa: Isa, arguments: FlaggedArguments, terms: int
    ) -> None:
        self.f, self.isa, self.arguments, self.terms = f, isa, arguments, terms
        self.buffer = f.stack(Type("i8"), 4 * STEP)
        steps = (arguments.depth + (STEP - 1)) // STEP
        self.tap_bytes = steps * (terms * TERM_BYTES)

    def write(self) -> None:
        self.f.loop(self.arguments.rows, self._row)
        self.f.finish()

    def _row(self, number: Value) -> None:
        f, arguments = self.f, self.arguments
        flags = offset(f, arguments.flags, number * arguments.flags_row)
        row = offset(f, arguments.a, number * arguments.a_row)
        sums = offset(f, arguments.sums, number * SUMS_ROW)

        def one(tap: Value) -> None:
            distance = f.load(f.at(arguments.term_offsets, tap, I64), I64)
            place = offset(f, flags, distance // PIXEL_BYTES * FLAG_BYTES)
            is_flagged = f.load(place, U32).compare("ne", 0)
            f.branch(is_flagged, lambda: self._tap(row, sums, tap))

        f.loop(arguments.taps, one)

    def _tap(self, row: Value, sums: Value, tap: Value) -> None:
        """Add the products of one pixel."""
        f, arguments = self.f, self.arguments
        distance = f.load(f.at(arguments.offsets, tap, I64), I64)
        step = functools.partial(self._step, offset(f, row, distance))
        begin = [offset(f, arguments.b, tap * self.tap_bytes), *[f.zero(_VECTOR)] * 4]
        _, *totals = f.loop(arguments.depth, step, begin, step=STEP)
        for column in range(2):
            place = offset(f, sums, column * ROW_BYTES)
            total = totals[column] + totals[2 + column]
            f.store(f.load(place, _VECTOR) + total, place)

    def _step(self, start: Value, k: Value, b: Value, *sums: Value) -> list[Value]:
        f = self.f
        for half in range(2):
            first = k + half * LANES
            mask = f.first_lanes(self.arguments.depth - first, LANES)
            values = f.load_masked(f.at(start, first, F32), mask, _VECTOR)
            f.store(values, f.at(self.buffer, half * LANES, F32))
        pair = functools.partial(self._pair, b)
        following = offset(f, b, self.terms * TERM_BYTES)
        return [following, *f.loop(LANES, pair, sums)]

    def _pair(self, b: Value, p: Value, *sums: Value) -> list[Value]:
        f = self.f
        factors = [
            f.load_splat(f.at(f.at(self.buffer, p, F32), LANES * half, F32), _VECTOR)
            for half in range(2)
        ]
        place = offset(f, b, p * ROW_BYTES)
        result = list(sums)
        for column in range(2):
            weights = load_sum(f, offset(f, place, column * TILE_BYTES), self.terms)
            for half in range(2):
                at = 2 * half + column
                result[at] = multiply_add(
                    f, self.isa, factors[half], weights[half], result[at]
                )
        return result
