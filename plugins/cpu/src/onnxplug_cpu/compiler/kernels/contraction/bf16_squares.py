"""Blocks of a product of bfloat16 by instructions for squares of sums (Arm's BF16).

``BFMMLA`` multiplies four elements of each of two rows of A with four of each of two
columns of B, and adds the four sums: four times as many products as of float32.  The
layouts are those of tiles (:mod:`~.bf16_terms`) of one term: pairs of four columns lie
side by side, and two rows of such pairs are interleaved for two squares.

Sums of four products are rounded to odd, and denormals count as zero, in and out (Arm
Architecture Reference Manual, ``BFMMLA``, without FEAT_EBF16).
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, F64, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after, opaque
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES, TILE_BYTES
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import STEP, TERM_BYTES
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import (
    STEPS_AHEAD,
    SUMS_ROW,
    TILE_SUMS,
    BlockArguments,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

MOST_ROWS: Final = 6
"""Three pairs of rows have 24 registers of sums; A and B have the rest of 32."""

_SQUARES: Final = LANES // 2
"""Of a pair of rows with a vector of columns."""

_FOUR: Final = 4
"""Elements of K that an instruction multiplies."""

_TURN: Final = 2
"""Fours of a turn of the innermost loop, for which a line can be prefetched."""

_ELEMENT_BYTES: Final = 2
_SQUARE, _PAIRS = F32.vector(4), Type("u32").vector(4)
_FACTOR, _ROWS = Type("bf16").vector(8), F64.vector(2)


class BlockOfSquares(Generator):
    """A function that computes a block; its arguments are
    :class:`~.bf16_tiles.BlockArguments`, of which it does not heed the state, and whose
    sums always begin with 0.

    Attributes:
        tiles: of rows, 1 or 2; with 1 the second is neither read nor written.
        rows: of a tile, all of which are read, at most :data:`MOST_ROWS`.
        columns: vectors of columns, 1 or 2; with 1 the others are neither computed nor
            written.
        lines: of :data:`~.bf16_pairs.PAIRS_LINES`; or 0 for a block that is alone in
            its columns, which brings B into the first cache itself.
    """

    tiles: int
    rows: int
    columns: int
    lines: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Block(module, name, isa, self).write()


class _Block:
    """The loops over taps, steps and turns, for one tile and vector of columns after
    the other.

    What they carry are pointers to pairs of rows of A, to B and to what comes next, and
    squares of sums, pair of rows by pair of columns.
    """

    def __init__(
        self, module: Module, name: str, isa: Isa, form: BlockOfSquares
    ) -> None:
        self.f = f = module.function(name, BlockArguments.parameters())
        self.isa, self.form = isa, form
        self.arguments = BlockArguments(*f.parameters)
        self.lines = form.lines
        self.pairs = range(0, form.rows, 2)

    def write(self) -> None:
        f, arguments = self.f, self.arguments
        self._tile(arguments.first, arguments.sums)
        if self.form.tiles == 2:
            self._tile(arguments.second, offset(f, arguments.sums, TILE_SUMS))
        f.finish()

    def _tile(self, first: Value, sums: Value) -> None:
        f, arguments = self.f, self.arguments
        for column in range(self.form.columns):
            b = offset(f, arguments.b, column * TILE_BYTES)
            self._columns(first, b, offset(f, sums, column * ROW_BYTES))
            self.lines = 0  # what comes next has been asked for

    def _columns(self, first: Value, b: Value, place: Value) -> None:
        f, arguments = self.f, self.arguments

        def tap(number: Value, *moving: Value) -> list[Value]:
            distance = f.load(f.at(arguments.offsets, number, I64), I64)
            start = offset(f, first, distance)
            rows = [offset(f, start, arguments.row * pair) for pair in self.pairs]
            return f.loop(arguments.steps, self._step, [*rows, *moving])[len(rows) :]

        zeros = [f.zero(_SQUARE) for _ in self.pairs for _ in range(_SQUARES)]
        begin = [b, arguments.next, *zeros]
        _, _, *sums = f.loop(arguments.taps, tap, begin)
        self._store(place, sums)

    def _step(self, _: Value, *carried: Value) -> list[Value]:
        f, count = self.f, len(self.pairs)
        fours = STEP // _FOUR
        state = f.loop(fours, self._turn, carried, step=_TURN, nonempty=True)
        rest = self.arguments.plane - STEP * _ELEMENT_BYTES
        rows = [opaque(f, offset(f, row, rest)) for row in state[:count]]
        b, *others = state[count:]
        return [*rows, offset(f, b, TERM_BYTES - TILE_BYTES), *others]

    def _turn(self, _: Value, *carried: Value) -> list[Value]:
        f, count = self.f, len(self.pairs)
        rows, (b, following, *sums) = list(carried[:count]), carried[count:]
        if not self.form.lines:
            for line in range(2 * _TURN):
                ahead = STEPS_AHEAD * TERM_BYTES + line * ROW_BYTES
                f.prefetch(offset(f, b, ahead))
        for four in range(_TURN):
            if four:
                # there are no registers for what comes next
                b, *rows = known_after(f, self.isa, [b, *rows], sums[-1:])
            at = four * _FOUR * _ELEMENT_BYTES
            factors = [
                self._pair(number, offset(f, row, at))
                for number, row in zip(self.pairs, rows, strict=True)
            ]
            b, sums = self._multiply(factors, b, sums)
        lines = self.lines * _TURN * _FOUR // STEP
        for line in range(lines):
            f.prefetch(offset(f, following, line * 64), 2)
        nbytes = _TURN * _FOUR * _ELEMENT_BYTES
        moved = [opaque(f, offset(f, row, nbytes)) for row in rows]
        return [*moved, b, offset(f, following, lines * 64), *sums]

    def _pair(self, number: int, row: Value) -> Value:
        """Four elements of each of two rows; of the last one twice, if it is alone."""
        f = self.f
        if number + 1 == self.form.rows:
            both = f.splat(f.load(row, F64, align=8), _ROWS.lanes)
        else:
            both = f.zero(_ROWS)
            for member, place in enumerate((row, offset(f, row, self.arguments.row))):
                both = f.insert(both, f.load(place, F64, align=8), member)
        return f.bitcast(both, _FACTOR)

    def _multiply(
        self, factors: list[Value], b: Value, sums: list[Value]
    ) -> tuple[Value, list[Value]]:
        """Add the products of pairs of rows with the next four rows of B."""
        f, sums = self.f, list(sums)
        for first in range(0, _SQUARES, 2):
            if first:
                # otherwise all of B are loaded at once, for which there is no room
                before = sums[(len(factors) - 1) * _SQUARES + first - 1]
                (b,) = known_after(f, self.isa, [b], [before])
            low, high = (
                f.load(offset(f, b, row * ROW_BYTES + first * 8), _PAIRS)
                for row in range(2)
            )
            for half, lanes in enumerate(((0, 4, 1, 5), (2, 6, 3, 7))):
                right = f.bitcast(f.shuffle(low, high, lanes), _FACTOR)
                for number, left in enumerate(factors):
                    at = number * _SQUARES + first + half
                    sums[at] = f.intrinsic(
                        _SQUARE, "llvm.aarch64.neon.bfmmla", sums[at], left, right
                    )
        return offset(f, b, 2 * ROW_BYTES), sums

    def _store(self, place: Value, sums: list[Value]) -> None:
        f = self.f
        for row in range(self.form.rows):
            mine = sums[row // 2 * _SQUARES :][:_SQUARES]
            lanes = (2, 3, 6, 7) if row % 2 else (0, 1, 4, 5)
            for first in range(0, _SQUARES, 2):
                value = f.shuffle(mine[first], mine[first + 1], lanes)
                f.store(value, offset(f, place, row * SUMS_ROW + first * 8))
