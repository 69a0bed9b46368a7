"""A tile of a product of bytes by instructions for squares of sums (Arm's I8MM).

``SMMLA`` and ``USMMLA`` multiply eight bytes of each of two rows of A with eight of
each of two columns of B, and add the four sums: twice as many products as of a dot
product.  An *octet* is these eight bytes, two quads.  Of B, octets of neighbouring
columns lie side by side, those of sixteen columns for each step of K.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from onnxplug_cpu.compiler.codegen.emit import (
    I8,
    I32,
    I64,
    Module,
    Value,
)
from onnxplug_cpu.compiler.codegen.integer_products import SIGNED
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after, opaque
from onnxplug_cpu.compiler.kernels.contraction.tile import TileArguments, offset
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

_QUAD, _OCTET = 4, 8

_SQUARE, _BYTES, _PAIR = I32.vector(4), I8.vector(16), I64.vector(2)

_STEP_BYTES = 2 * VECTOR_BYTES
"""Of a step of a panel of B."""

_AHEAD = 2048
"""How far ahead, in bytes of a panel, B is brought into the first cache."""


class SquareTile(Generator):
    """A function that computes a tile; its arguments are
    :class:`~.tile.TileArguments`, with quads for elements of A.

    ``b`` has the octets of all taps, one after the other, whichever tap their quads are
    of: where ``k`` is odd, every second tap begins within one.  What may be missing of
    the last one is zero.

    Attributes:
        element: of the bytes of A, :data:`~.tile.QUADS` or
            :data:`~.tile.SIGNED_QUADS`.
        rows: of the tile.
        alone: no other tile reads the same of ``b``; ``next`` does not matter.
        taps: ``a`` is read at several offsets.
        nbytes: of a row of ``c``, 64 or 32.
    """

    element: str
    rows: int
    alone: bool = False
    taps: bool = False
    nbytes: int = VECTOR_BYTES

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Tile(module, name, isa, self).write()


class _Tile:
    """The loops over panels, taps and steps.

    What a loop carries are pointers to pairs of rows of A, to B and to what is
    prefetched, and squares of sums, pair of rows by pair of columns.
    """

    def __init__(self, module: Module, name: str, isa: Isa, form: SquareTile) -> None:
        self.f = f = module.function(name, TileArguments.parameters())
        self.isa, self.form = isa, form
        self.arguments = arguments = TileArguments(*f.parameters)
        self.pairs = range(0, form.rows, 2)
        self.squares = range(form.nbytes // _OCTET)
        self.rows = [offset(f, arguments.a, arguments.a_row * n) for n in self.pairs]
        self.is_odd = (arguments.k & 1).compare("ne", 0)
        self.octets = arguments.k >> 1

    def write(self) -> None:
        arguments = self.arguments
        begin = [arguments.b, arguments.c, arguments.next]
        self.f.loop(arguments.panels, self._panel, begin, nonempty=True)
        self.f.finish()

    def _panel(self, _: Value, b: Value, c: Value, following: Value) -> list[Value]:
        f, form, arguments = self.f, self.form, self.arguments
        sums = [f.zero(_SQUARE) for _ in self.pairs for _ in self.squares]
        state = [b, following, *sums]
        if not form.taps:
            state = self._sum_up(self.rows, state)
            state = self._if_odd(lambda: self._last(self.rows, state), state)
        else:
            state = self._taps(state)
        self._store(c, state[2:])
        right = [offset(f, b, arguments.b_panel), offset(f, c, form.nbytes)]
        return [*right, state[1]]

    def _if_odd(
        self, body: Callable[[], list[Value]], otherwise: list[Value]
    ) -> list[Value]:
        return self.f.branch(self.is_odd, body, lambda: otherwise)

    # taps

    def _taps(self, state: list[Value]) -> list[Value]:
        f, taps = self.f, self.arguments.taps
        return f.branch(
            self.is_odd,
            lambda: f.loop(taps, self._two_taps, state, step=2),
            lambda: f.loop(taps, self._tap, state),
        )

    def _rows_of(self, tap: Value) -> list[Value]:
        f = self.f
        distance = f.load(f.at(self.arguments.offsets, tap, I64), I64)
        return [offset(f, row, distance) for row in self.rows]

    def _tap(self, number: Value, *state: Value) -> list[Value]:
        return self._sum_up(self._rows_of(number), list(state))

    def _two_taps(self, number: Value, *state: Value) -> list[Value]:
        """Of which the last quad of the first, and the first of the second, are an
        octet."""
        f = self.f
        first = self._rows_of(number)
        after = self._sum_up(first, list(state))
        are_two = (number + 1).compare("lt", self.arguments.taps)

        def both() -> list[Value]:
            second = self._rows_of(number + 1)
            between = self._last(first, after, second)
            behind = [offset(f, row, _QUAD) for row in second]
            return self._sum_up(behind, between)

        return f.branch(are_two, both, lambda: self._last(first, after))

    # steps

    def _sum_up(self, rows: list[Value], state: list[Value]) -> list[Value]:
        """Add the whole octets of rows."""
        count = len(rows)
        return self.f.loop(self.octets, self._step, [*rows, *state])[count:]

    def _step(self, _: Value, *carried: Value) -> list[Value]:
        f, count = self.f, len(self.pairs)
        rows, state = carried[:count], list(carried[count:])
        factors = [self._pair(n, row) for n, row in zip(self.pairs, rows, strict=True)]
        moved = [opaque(f, offset(f, row, _OCTET)) for row in rows]
        return [*moved, *self._multiply(factors, state)]

    def _pair(self, number: int, row: Value) -> Value:
        """An octet of each of two rows; of the last one twice, if it is alone."""
        f = self.f
        if number + 1 == self.form.rows:
            return f.splat(f.load(row, I64, align=1), _PAIR.lanes)
        octets = f.zero(_PAIR)
        for member, place in enumerate((row, offset(f, row, self.arguments.a_row))):
            octets = f.insert(octets, f.load(place, I64, align=1), member)
        return octets

    def _last(
        self, rows: list[Value], state: list[Value], second: list[Value] | None = None
    ) -> list[Value]:
        """Add octets that begin with the last quads of *rows*; the others are the first
        of *second*, or meet zeros."""
        f, arguments = self.f, self.arguments
        factors = []
        for number, row in zip(self.pairs, rows, strict=True):
            # what meets zeros may be anything that can be read
            last = offset(f, row, (arguments.k - 1) * _QUAD)
            others = last if second is None else second[number // 2]
            quads = f.zero(_SQUARE)
            more = min(2, self.form.rows - number)
            for member in range(more):
                distance = arguments.a_row * member
                for half, place in enumerate((last, others)):
                    quad = f.load(offset(f, place, distance), I32, align=1)
                    quads = f.insert(quads, quad, 2 * member + half)
            factors.append(f.bitcast(quads, _PAIR))
        return self._multiply(factors, state)

    def _multiply(self, factors: list[Value], state: list[Value]) -> list[Value]:
        """Add the products of pairs of rows with the next octets of B."""
        f, form, arguments = self.f, self.form, self.arguments
        b, following, *sums = state
        if form.alone:
            for line in range(0, 2 * form.nbytes, 64):
                f.prefetch(offset(f, b, _AHEAD + line))
        else:
            f.prefetch(following, 2)
            following = offset(f, following, arguments.next_step * 2)
        name = "smmla" if form.element == SIGNED else "usmmla"
        for j in self.squares:
            if j > 1:
                # otherwise all of B are loaded at once, for which there is no room
                before = (j - 2) + len(self.squares) * (len(factors) - 1)
                (b,) = known_after(f, self.isa, [b], [sums[before]])
            right = f.load(offset(f, b, _BYTES.lanes * j), _BYTES)
            for i, left in enumerate(factors):
                at = i * len(self.squares) + j
                sums[at] = f.intrinsic(
                    _SQUARE,
                    f"llvm.aarch64.neon.{name}.v4i32.v16i8",
                    sums[at],
                    f.bitcast(left, _BYTES),
                    right,
                )
        return [offset(f, b, _STEP_BYTES), following, *sums]

    def _store(self, c: Value, sums: list[Value]) -> None:
        """Write the sums, or add them to what is there."""
        f, form, arguments = self.f, self.form, self.arguments
        count = len(self.squares)
        found = []
        for row in range(form.rows):
            line = offset(f, c, arguments.c_row * row)
            mine = sums[row // 2 * count :][:count]
            lanes = (2, 3, 6, 7) if row % 2 else (0, 1, 4, 5)
            for j in range(0, count, 2):
                value = f.shuffle(mine[j], mine[j + 1], lanes)
                found.append((value, offset(f, line, _OCTET * j)))

        def write(value: Callable[[Value, Value], Value]) -> None:
            for total, place in found:
                f.store(value(total, place), place)

        f.branch(
            arguments.add.compare("eq", 0),
            functools.partial(write, lambda total, _: total),
            functools.partial(write, lambda total, at: f.load(at, _SQUARE) + total),
        )
