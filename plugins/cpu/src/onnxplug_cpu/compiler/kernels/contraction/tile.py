"""The innermost loop of matrix multiplication: one tile of the result in registers.

A tile of *rows* by *vectors* registers' worth of columns is summed over a block of K:
each step broadcasts one element of every row of A and multiplies it with the vectors of
one row of B (Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication,
2008).  Sizes of registers are in the code; K and all strides are arguments, so that one
function serves every shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.target.isa import VECTOR_BYTES, Isa

_BYTE = Type("i8")

_GROUP = 7
"""Rows that share a pointer: an x86 address reaches the others by 1, 3 and 5 strides,
which are in registers, and twice and four times as many."""

_AHEAD_ALONE, _AHEAD = 4096, 2048
"""How far ahead, in bytes of a panel, B is brought into the first cache: when a tile
is the whole height of a matrix, and when others have brought it nearer."""


_TURN = 40
"""About how many multiplications of registers a turn of the loop should have: with 12,
as the tiles of AVX2 have for a step, turning costs Zen 3 a tenth of the time."""


class TileShape(NamedTuple):
    """What fits in the registers.

    Attributes:
        rows: the most rows of a tile.
        vectors: vectors of 64 bytes in a row of it.
    """

    rows: int
    vectors: int


def tile_shape(isa: Isa) -> TileShape:
    """The largest tile without spills: accumulators, one row of B, and A's element."""
    if isa.name == "avx512":
        return TileShape(14, 2)
    per_vector = isa.registers_per_vector
    return TileShape(max(1, (isa.registers - 1 - per_vector) // per_vector), 1)


def narrow_tile(isa: Isa, nbytes: int) -> TileShape | None:
    """A tile of three half vectors, for a matrix of so few columns: with 24 of f32 it
    computes none in vain."""
    if isa.name == "avx2" and VECTOR_BYTES < nbytes <= VECTOR_BYTES * 3 // 2:
        return TileShape(4, 2)
    return None


def masked_rows(isa: Isa) -> int:
    """The most rows of a tile that reads B with a mask; 0 where that is slow."""
    if isa.name == "avx512":
        return tile_shape(isa).rows
    # the mask takes the registers of a vector
    return tile_shape(isa).rows - 1 if isa.name == "avx2" else 0


def wide_vectors(isa: Isa, rows: int) -> int:
    """Vectors of a tile when few rows leave registers for wide ones."""
    shape = tile_shape(isa)
    room = shape.rows * shape.vectors // (2 * rows)
    return next((vectors for vectors in (8, 4, 2) if vectors <= room), 1)


def chains_of(isa: Isa, vectors: int) -> int:
    """In how many chains a tile of so many *vectors* adds up an element, so that an
    addition need not wait for the one before."""
    room = tile_shape(isa).rows * tile_shape(isa).vectors
    return next(n for n in (4, 2, 1) if n == 1 or n * vectors <= room)


def multiply_add(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once where the processor has such an instruction."""
    if isa.name == "neon" or isa.has("fma"):
        return f.fma(a, b, c)
    return a * b + c


def offset(f: Function, pointer: Value, nbytes: Value | int) -> Value:
    """The address so many bytes on."""
    return f.at(pointer, nbytes, _BYTE)


PARAMETERS: Final = (
    ("a", PTR),
    ("a_row", I64),
    ("b", PTR),
    ("b_row", I64),
    ("k", I64),
    ("columns", I64),
    ("c", PTR),
    ("c_row", I64),
    ("add", I64),
    ("result", PTR),
    ("result_row", I64),
    ("next", PTR),
    ("next_step", I64),
    ("taps", I64),
    ("offsets", PTR),
    ("panels", I64),
    ("b_panel", I64),
)
"""The arguments of every function that computes a tile; all strides are in bytes.

``a`` has some rows, as the function is made for, of ``k`` consecutive elements; ``c``
receives as many, the product, added to what is there if ``add`` is not 0.  What ``b``
has is for the function to say, as is how much of ``c`` beyond ``columns`` elements of a
row it writes.  ``result``, with strided rows, is memory that is written soon after, and
``next + i * next_step`` is what step ``i`` of ``k`` may prefetch.  A function made for
taps sums ``taps`` products: for each, ``a`` is one of ``offsets``, an array of i64,
further on, and ``b`` where the last one ended; others do not heed the two.  ``panels``
of B, at least 1, that are ``b_panel`` apart, give columns of ``c`` next to each other.
"""


class TileProduct(Generator):
    """A function that computes a tile; :data:`PARAMETERS` are its arguments.

    ``b`` has ``k`` rows ``b_row`` apart.  They have *vectors* of *nbytes*, and so has
    what is written of each row of ``c``.

    Attributes:
        element: ``f32`` or ``f64``.
        rows: of the tile.
        vectors: in a row of the tile.
        chains: of additions that give an element, from :func:`chains_of`.  All tiles of
            a result have as many, so that equal rows and equal columns stay equal.
        alone: no other tile reads the same of ``b``; ``next`` does not matter.
        masked: a row of ``b`` ends after ``columns`` elements, in the last vector.
        taps: ``a`` is read at several offsets.
        nbytes: of a vector, 64 or, for the few columns that may be left, 32.
        depth: the most products that are added up before they are added to ``c``; 0
            for all.  Not with taps.
    """

    element: str
    rows: int
    vectors: int
    chains: int = 1
    alone: bool = False
    masked: bool = False
    taps: bool = False
    nbytes: int = VECTOR_BYTES
    depth: int = 0

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa, self)


def _write(module: Module, name: str, isa: Isa, form: TileProduct) -> None:
    element, rows, vectors, chains, alone, masked, taps, nbytes, depth = form
    f = module.function(name, PARAMETERS)
    a, a_row, b, b_row, k, columns, c, c_row, add = f.parameters[:9]
    result, result_row, following, step, count, offsets = f.parameters[9:15]
    panels, b_panel = f.parameters[15:]
    scalar = Type(element)
    lanes = nbytes // scalar.nbytes
    vector = scalar.vector(lanes)
    distance = _AHEAD_ALONE if alone else _AHEAD
    ahead_in_b = b_row * (distance // (nbytes * vectors))
    strides = [a_row * i for i in range(1, min(_GROUP, rows))]
    pointers = [offset(f, a, a_row * row) for row in range(0, rows, _GROUP)]
    groups = len(pointers)
    parts = nbytes // isa.vector_bytes or 1
    lines = range(0, nbytes * vectors, VECTOR_BYTES)
    mask = f.first_lanes(columns - (vectors - 1) * lanes, lanes) if masked else None

    def row_of_b(place: Value) -> list[Value]:
        places = [offset(f, place, nbytes * j) for j in range(vectors)]
        values = [f.load(p, vector) for p in places[: vectors - bool(masked)]]
        if mask is not None:
            values.append(f.load_masked(places[-1], mask, vector))
        return values

    def turn(count: int) -> Callable[..., list[Value]]:
        """*count* steps; as many as there are chains have sums of their own."""

        def steps(_: Value, *carried: Value) -> list[Value]:
            b, ahead = carried[groups : groups + 2]
            pointers, sums = list(carried[:groups]), list(carried[groups + 2 :])
            for way in range(count):
                if way and way % chains == 0:
                    # the rows of B are loaded one after the other: there are no
                    # registers for two
                    b, *pointers = known_after(f, isa, [b, *pointers], sums[-vectors:])
                if not alone and way % chains == 0:
                    f.prefetch(ahead, 2)
                    ahead = offset(f, ahead, step * min(chains, count))
                soon = offset(f, b, ahead_in_b)
                for distance in lines:
                    f.prefetch(offset(f, soon, distance))
                factors = row_of_b(b)
                for row in range(rows):
                    group, member = divmod(row, _GROUP)
                    place = offset(f, pointers[group], scalar.nbytes * way)
                    if member:
                        place = offset(f, place, strides[member - 1])
                    factor = f.load_splat(place, vector)
                    for j in range(vectors):
                        at = (way % chains * rows + row) * vectors + j
                        sums[at] = multiply_add(f, isa, factor, factors[j], sums[at])
                b = offset(f, b, b_row)
            return [
                *(
                    _opaque(f, offset(f, pointer, scalar.nbytes * count))
                    for pointer in pointers
                ),
                b,
                ahead,
                *sums,
            ]

        return steps

    def sum_up(
        k: Value, pointers: list[Value], moving: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Where A goes on, and B and what is prefetched, with the sums, after *k*
        steps."""
        state = [*pointers, *moving]
        steps = chains
        if isa.name == "avx2" and chains == 1:
            while steps < 4 and steps * rows * vectors * parts < _TURN:
                steps *= 2
        if steps > 1:
            whole = k & -steps
            state = f.loop(whole, turn(steps), state, step=steps)
            state = f.loop(k, turn(1), state, start=whole)
        else:
            state = f.loop(k, turn(1), state)
        return state[:groups], state[groups:]

    def tap(number: Value, *moving: Value) -> list[Value]:
        distance = f.load(f.at(offsets, number, I64), I64)
        return sum_up(k, [offset(f, p, distance) for p in pointers], list(moving))[1]

    def panel(
        _: Value, b: Value, c: Value, result: Value, following: Value
    ) -> list[Value]:
        for row in range(rows):
            line = offset(f, result, result_row * row)
            for distance in lines:
                f.prefetch(offset(f, line, distance), 1, write=True)
        zeros = [f.zero(vector)] * (chains * rows * vectors)
        targets = [offset(f, c, c_row * row) for row in range(rows)]

        def write(sums: list[Value], adds: Value) -> None:
            sums = _sum_chains(sums, chains)

            def each(value: Callable[[Value, Value], Value]) -> None:
                for row, target in enumerate(targets):
                    for j in range(vectors):
                        place = offset(f, target, nbytes * j)
                        f.store(value(sums[row * vectors + j], place), place)

            f.branch(
                adds.compare("eq", 0),
                lambda: each(lambda total, _: total),
                lambda: each(lambda total, place: f.load(place, vector) + total),
            )

        def some(start: Value, *moving: Value) -> list[Value]:
            left = f.minimum(k - start, depth)
            here, state = list(moving[:groups]), [*moving[groups:], *zeros]
            here, state = sum_up(left, here, state)
            write(state[2:], add | start)
            return [*here, *state[:2]]

        moving = [b, following]
        if depth:
            moving = f.loop(k, some, [*pointers, *moving], step=depth)[groups:]
        else:
            state = [*moving, *zeros]
            state = f.loop(count, tap, state) if taps else sum_up(k, pointers, state)[1]
            moving = state[:2]
            write(state[2:], add)
        right = (offset(f, p, nbytes * vectors) for p in (c, result))
        return [offset(f, b, b_panel), *right, moving[1]]

    f.loop(panels, panel, [b, c, result, following], nonempty=True)
    f.finish()


def _sum_chains(sums: list[Value], chains: int) -> list[Value]:
    while chains > 1:
        half = len(sums) // 2
        sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
        chains //= 2
    return sums


def _opaque(f: Function, value: Value) -> Value:
    """*value*, whose origin LLVM cannot see.

    Its loop strength reduction would otherwise compute each row's address from the row
    before, an addition for every multiplication.
    """
    text = value.type.text
    return f.instruction(value.type, f'call {text} asm "", "=r,0"({value})')
