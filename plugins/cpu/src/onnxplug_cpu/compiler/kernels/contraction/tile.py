"""The innermost loop of matrix multiplication: one tile of the result in registers.

A tile of *rows* by *vectors* registers' worth of columns is summed over a block of K:
each step broadcasts one element of every row of A and multiplies it with the vectors of
one row of B (Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication,
2008).  Sizes of registers are in the code; K and all strides are arguments, so that one
function serves every shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import (
    I32,
    I64,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.integer_products import (
    SIGNED,
    UNSIGNED,
    add_pairs,
    add_quads,
    instructions,
    quad_elements,
    saturates,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import stored
from onnxplug_cpu.compiler.codegen.math.narrow import widened
from onnxplug_cpu.compiler.codegen.scheduling import known_after, opaque
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

_BYTE = Type("i8")

_GROUP = 7
"""Rows that share a pointer: an x86 address reaches the others by 1, 3 and 5 strides,
which are in registers, and twice and four times as many."""

_AHEAD_ALONE, _AHEAD = 4096, 2048
"""How far ahead, in bytes of a panel, B is brought into the first cache: when a tile
is the whole height of a matrix, and when others have brought it nearer."""

_STREAMED: Final = 2
"""Multiplications of a cache line of B up to which nothing is prefetched for a tile
alone: Zen 4 finds such a stream by itself, and reads it up to a quarter faster if no
prefetches take turns with it."""


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


def integer_tile_shape(isa: Isa) -> TileShape:
    """The same of pairs and quads: their products are added by another instruction,
    and take registers, unless one instruction does both.

    With AVX2 what is spilled for a sixth row does not take as long as that saves.
    """
    shape = tile_shape(isa)
    if isa.name != "avx512" or isa.has("avx512vnni"):
        return shape
    return shape._replace(rows=shape.rows - 1)


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


PAIRS: Final = "i16"
"""The element of tiles whose factors are pairs of i16 that are next to each other along
K, and whose sums are i32."""


QUADS: Final = UNSIGNED
"""The same of four integers of 8 bits, which have signs in the second factor only."""

SIGNED_QUADS: Final = SIGNED
"""The same with signs in both."""

MOVED_QUADS: Final = "moved i8"
"""The same, of which those of the first factor become by 128 larger, and lose their
signs, while they are multiplied: their sums are those of :data:`QUADS` so moved."""

_SIGNS: Final = -0x7F7F7F80
"""The bits of an i32 that are the signs of its bytes."""

_ADD: Final[dict[str, Callable[..., Value]]] = {
    PAIRS: add_pairs,
    QUADS: add_quads,
    SIGNED_QUADS: functools.partial(add_quads, element=SIGNED),
    MOVED_QUADS: add_quads,
}


def elements_of_quads(isa: Isa) -> tuple[str, ...]:
    """Of tiles of quads that are faster than those of pairs, the best first."""
    if isa.multiplies_byte_tiles:
        return QUADS, SIGNED_QUADS
    return quad_elements(isa)


def moves_quads(isa: Isa) -> bool:
    """Whether tiles of :data:`MOVED_QUADS` are as fast as those of :data:`QUADS`: one
    instruction for a row goes beside the products, where each is one."""
    return elements_of_quads(isa) == (QUADS,) and not saturates(isa)


def _instructions(isa: Isa, element: str) -> int:
    """For a multiplication of registers, with AVX2."""
    if element not in _ADD:
        return 1
    return instructions(isa, quads=element != PAIRS)


def lane_of(element: str) -> Type:
    """What a lane of a tile is: of pairs and quads i32."""
    return Type("i32" if element in _ADD else element)


def multiply_add(f: Function, isa: Isa, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once where the processor has such an instruction."""
    if a.type.is_float and isa.fuses:
        return f.fma(a, b, c)
    return a * b + c


def offset(f: Function, pointer: Value, nbytes: Value | int) -> Value:
    """The address so many bytes on."""
    return f.at(pointer, nbytes, _BYTE)


class TileArguments(FunctionArguments):
    """The arguments of every function that computes a tile; all strides are in bytes.

    ``a`` has some rows, as the function is made for, of ``k`` consecutive elements;
    ``c`` receives as many, the product, added to what is there if ``add`` is not 0.
    What ``b`` has is for the function to say, as is how much of ``c`` beyond
    ``columns`` elements of a row it writes.  ``result``, with strided rows, is memory
    that is written soon after, which tiles of floats prefetch, and ``next + i *
    next_step`` is what step ``i`` of ``k`` may prefetch.  A function made for taps sums
    ``taps`` products: for each, ``a`` is one of ``offsets``, an array of i64, further
    on, and ``b`` where the last one ended; others do not heed the two.  ``panels`` of
    B, at least 1, that are ``b_panel`` apart, give columns of ``c`` next to each other.
    A function made to keep what it widens writes it to ``kept``, twice as far on as it
    is from ``b``.
    """

    a: Pointer
    a_row: Integer
    b: Pointer
    b_row: Integer
    k: Integer
    columns: Integer
    c: Pointer
    c_row: Integer
    add: Integer
    result: Pointer
    result_row: Integer
    next: Pointer
    next_step: Integer
    taps: Integer
    offsets: Pointer
    panels: Integer
    b_panel: Integer
    kept: Pointer


class FinishedTile(FunctionArguments):
    """The arguments of a function that takes finished tiles.

    ``tile`` has ``rows`` × ``columns`` elements, f32 or i32, of a line of the result,
    from (``row``, ``column``) on, with ``tile_stride`` elements from row to row.
    """

    words: Pointer
    batch0: Integer
    batch1: Integer
    line: Integer
    row: Integer
    rows: Integer
    column: Integer
    columns: Integer
    tile: Pointer
    tile_stride: Integer


class QuadRemainders:
    """What lies behind a panel of quads, for those of which two products could leave 16
    bits: they are less in the panel, and what is missing is a row of its own.

    - ``count``, an i32, of these rows, and how many bytes further on they begin;
    - from byte 64 on the number of each among the quads of a column, an i32.  Which tap
      has it depends on A, in which taps may be joined;
    - the rows.
    """

    HEAD: Final = 64

    def __init__(self, f: Function, place: Value) -> None:
        self.f = f
        self.place = place
        self.count = self._number(place, 0)

    def _number(self, place: Value, index: Value | int) -> Value:
        f = self.f
        return f.convert(f.load(f.at(place, index, I32), I32), I64)

    def distance(self, number: Value, arguments: TileArguments, taps: bool) -> Value:
        """Bytes from the first element of A to those of a row."""
        f = self.f
        quad = self._number(offset(f, self.place, self.HEAD), number)
        if not taps:
            return quad * I32.nbytes
        tap, within = quad // arguments.k, quad % arguments.k
        place = f.at(arguments.offsets, tap, I64)
        return within * I32.nbytes + f.load(place, I64)

    def row(self, number: Value, nbytes: Value) -> Value:
        """Where a row of so many bytes is."""
        first = offset(self.f, self.place, self._number(self.place, 1))
        return offset(self.f, first, number * nbytes)


class TileProduct(Generator):
    """A function that computes a tile; :class:`TileArguments` are its arguments.

    ``b`` has ``k`` rows ``b_row`` apart.  They have *vectors* of *nbytes*, and so has
    what is written of each row of ``c``.

    Attributes:
        element: ``f32``, ``f64``, ``i32``, ``i64``, :data:`PAIRS`, :data:`QUADS`,
            :data:`SIGNED_QUADS` or :data:`MOVED_QUADS`.
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
        factor: of ``b``, whose vectors have as many elements and are widened in
            registers: ``f16`` or ``bf16``; empty if it is *element*.
        keeps: what is widened is written for other tiles.
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
    factor: str = ""
    keeps: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Tile(module, name, isa, self).write()


class _Tile:
    """The loops of a tile: panels, blocks of K or taps, and turns of some steps.

    What a loop carries are pointers to groups of rows of A, to B and to what is
    prefetched, and sums, chain by chain, row by row.
    """

    def __init__(self, module: Module, name: str, isa: Isa, form: TileProduct) -> None:
        self.f = f = module.function(name, TileArguments.parameters())
        self.isa, self.form = isa, form
        self.arguments = arguments = TileArguments(*f.parameters)
        self.add = _ADD.get(form.element, multiply_add)
        scalar = lane_of(form.element)
        lanes = form.nbytes // scalar.nbytes
        self.vector = scalar.vector(lanes)
        self.factor = stored(form.factor, lanes) if form.factor else self.vector
        row_bytes = form.nbytes * form.vectors
        right_bytes = self.factor.nbytes * lanes * form.vectors
        distance = _AHEAD_ALONE if form.alone else _AHEAD
        self.ahead_in_b = arguments.b_row * (distance // right_bytes)
        multiplications = form.rows * (VECTOR_BYTES // isa.vector_bytes)
        self.is_streamed = form.alone and multiplications <= _STREAMED
        a, a_row = arguments.a, arguments.a_row
        self.strides = [a_row * i for i in range(1, min(_GROUP, form.rows))]
        groups = range(0, form.rows, _GROUP)
        self.pointers = [offset(f, a, a_row * row) for row in groups]
        self.kept: Value | None = None
        if form.keeps:
            # what is kept of B is twice as far on as B, so no pointer moves along
            self.kept = f.address(arguments.kept) - (f.address(arguments.b) << 1)
        # sums of codes mostly become bytes, which lie closer together
        written = 0 if form.element in _ADD else row_bytes
        self.lines = range(0, written, VECTOR_BYTES)
        self.right_lines = range(0, right_bytes, VECTOR_BYTES)
        self.mask: Value | None = None
        if form.masked:
            left = arguments.columns - (form.vectors - 1) * lanes
            self.mask = f.first_lanes(left, lanes)

    def write(self) -> None:
        arguments = self.arguments
        begin = [arguments.b, arguments.c, arguments.result, arguments.next]
        self.f.loop(arguments.panels, self._panel, begin, nonempty=True)
        self.f.finish()

    def _panel(
        self, _: Value, b: Value, c: Value, result: Value, following: Value
    ) -> list[Value]:
        f, form, arguments = self.f, self.form, self.arguments
        for row in range(form.rows):
            line = offset(f, result, arguments.result_row * row)
            for distance in self.lines:
                f.prefetch(offset(f, line, distance), 1, write=True)
        targets = [offset(f, c, arguments.c_row * row) for row in range(form.rows)]
        moving = [b, following]
        if form.depth:
            block = functools.partial(self._block, targets)
            state = [*self.pointers, *moving]
            state = f.loop(arguments.k, block, state, step=form.depth)
            moving = state[len(self.pointers) :]
        else:
            state = [*moving, *self._zeros()]
            if form.taps:
                state = f.loop(arguments.taps, self._tap, state)
            else:
                state = self._sum_up(arguments.k, self.pointers, state)[1]
            if form.element == QUADS and saturates(self.isa):
                state = self._remainders(state)
            moving = state[:2]
            self._store(targets, state[2:], arguments.add)
        right = (offset(f, p, form.nbytes * form.vectors) for p in (c, result))
        return [offset(f, b, arguments.b_panel), *right, moving[1]]

    def _zeros(self) -> list[Value]:
        form = self.form
        return [self.f.zero(self.vector)] * (form.chains * form.rows * form.vectors)

    def _block(self, targets: list[Value], start: Value, *moving: Value) -> list[Value]:
        """As many steps as are added up before they are added to the targets."""
        groups = len(self.pointers)
        left = self.f.minimum(self.arguments.k - start, self.form.depth)
        here, state = list(moving[:groups]), [*moving[groups:], *self._zeros()]
        here, state = self._sum_up(left, here, state)
        self._store(targets, state[2:], self.arguments.add | start)
        return [*here, *state[:2]]

    def _tap(self, number: Value, *moving: Value) -> list[Value]:
        f = self.f
        distance = f.load(f.at(self.arguments.offsets, number, I64), I64)
        here = [offset(f, pointer, distance) for pointer in self.pointers]
        return self._sum_up(self.arguments.k, here, list(moving))[1]

    def _remainders(self, state: list[Value]) -> list[Value]:
        """The sums with what is left of quads of B; see :class:`QuadRemainders`."""
        f, (b, ahead, *sums) = self.f, state
        head = QuadRemainders(f, b)

        def each(number: Value, *sums: Value) -> list[Value]:
            distance = head.distance(number, self.arguments, self.form.taps)
            here = [offset(f, pointer, distance) for pointer in self.pointers]
            after = list(sums)
            self._step(0, head.row(number, self.arguments.b_row), here, after)
            return after

        return [b, ahead, *f.loop(head.count, each, sums)]

    def _sum_up(
        self, k: Value, pointers: list[Value], moving: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Where A goes on, and B and what is prefetched, with the sums, after *k*
        steps."""
        f, steps = self.f, self._steps()
        state, whole = [*pointers, *moving], None
        if steps > 1:
            whole = k & -steps
            turn = functools.partial(self._turn, steps)
            state = f.loop(whole, turn, state, step=steps)
        turn = functools.partial(self._turn, 1)
        state = f.loop(k, turn, state, start=0 if whole is None else whole)
        return state[: len(pointers)], state[len(pointers) :]

    def _steps(self) -> int:
        """Of a turn of the innermost loop."""
        form, steps = self.form, self.form.chains
        if self.isa.name == "avx2" and steps == 1:
            parts = form.nbytes // self.isa.vector_bytes or 1
            parts *= _instructions(self.isa, form.element)
            while steps < 4 and steps * form.rows * form.vectors * parts < _TURN:
                steps *= 2
        return steps

    def _turn(self, count: int, _: Value, *carried: Value) -> list[Value]:
        """*count* steps; as many as there are chains have sums of their own."""
        f, form, groups = self.f, self.form, len(self.pointers)
        b, ahead = carried[groups : groups + 2]
        pointers, sums = list(carried[:groups]), list(carried[groups + 2 :])
        for way in range(count):
            if way and way % form.chains == 0:
                # the rows of B are loaded one after the other: there are no
                # registers for two
                before = sums[-form.vectors :]
                b, *pointers = known_after(f, self.isa, [b, *pointers], before)
            if not form.alone and way % form.chains == 0:
                f.prefetch(ahead, 2)
                step = self.arguments.next_step * min(form.chains, count)
                ahead = offset(f, ahead, step)
            self._step(way, b, pointers, sums)
            b = offset(f, b, self.arguments.b_row)
        nbytes = self.vector.nbytes * count
        moved = [opaque(f, offset(f, pointer, nbytes)) for pointer in pointers]
        return [*moved, b, ahead, *sums]

    def _step(
        self, way: int, b: Value, pointers: list[Value], sums: list[Value]
    ) -> None:
        """Add the products of an element of each row of A, *way* elements on, and a row
        of B to *sums*."""
        f, form = self.f, self.form
        if not self.is_streamed:
            soon = offset(f, b, self.ahead_in_b)
            for distance in self.right_lines:
                f.prefetch(offset(f, soon, distance))
        factors = self._row_of_b(b)
        for row in range(form.rows):
            group, member = divmod(row, _GROUP)
            place = offset(f, pointers[group], self.vector.nbytes * way)
            if member:
                place = offset(f, place, self.strides[member - 1])
            factor = f.load_splat(place, self.vector)
            if form.element == MOVED_QUADS:
                factor = factor ^ _SIGNS
            for j, other in enumerate(factors):
                at = (way % form.chains * form.rows + row) * form.vectors + j
                sums[at] = self.add(f, self.isa, factor, other, sums[at])

    def _row_of_b(self, place: Value) -> list[Value]:
        f, form = self.f, self.form
        nbytes = self.factor.nbytes * self.factor.lanes
        places = [offset(f, place, nbytes * j) for j in range(form.vectors)]
        if form.factor:
            raw = [f.load(place, self.factor) for place in places]
            values = [widened(f, self.isa, each, form.factor) for each in raw]
            if self.kept is not None:
                for from_, value in zip(places, values, strict=True):
                    f.store(value, f.pointer(self.kept + (f.address(from_) << 1)))
            return values
        whole = places[: form.vectors - bool(form.masked)]
        values = [f.load(place, self.vector) for place in whole]
        if self.mask is not None:
            values.append(f.load_masked(places[-1], self.mask, self.vector))
        return values

    def _store(self, targets: list[Value], sums: list[Value], adds: Value) -> None:
        """Write the sums, or add them to what is there where *adds* is not 0."""
        f, form = self.f, self.form
        sums = _sum_chains(sums, form.chains)

        def each(value: Callable[[Value, Value], Value]) -> None:
            for row, target in enumerate(targets):
                for j in range(form.vectors):
                    place = offset(f, target, form.nbytes * j)
                    f.store(value(sums[row * form.vectors + j], place), place)

        f.branch(
            adds.compare("eq", 0),
            lambda: each(lambda total, _: total),
            lambda: each(lambda total, place: f.load(place, self.vector) + total),
        )


def _sum_chains(sums: list[Value], chains: int) -> list[Value]:
    while chains > 1:
        half = len(sums) // 2
        sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
        chains //= 2
    return sums
