"""Blocks of a product of bfloat16 by vectors, for processors without tiles.

The layouts are those of tiles (:mod:`~.bf16_terms`) of one term.  A step broadcasts a
pair of elements of every row of A, and adds its products with the pairs of a row of B
to sums in registers.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.bf16_products import add_bf16_pairs
from onnxplug_cpu.compiler.codegen.emit import F32, I64, U32, Module, Value
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

MOST_ROWS: Final = 14
"""Twice as many sums and a row of B fit 32 registers, and the rest."""

_GROUP: Final = 7
"""Rows that share a pointer, as in :mod:`~.tile`."""

_PAIR_BYTES: Final = 4
_PAIRS: Final = STEP // 2
_TURN: Final = 4
"""Pairs of a turn of the innermost loop."""

PAIRS_LINES: Final = (4, 8, 16, 32)
"""How many lines of what comes next a kernel can prefetch in each step."""

_SUM, _PAIR = F32.vector(LANES), U32.vector(LANES)


class BlockOfPairs(Generator):
    """A function that computes a block; its arguments are
    :class:`~.bf16_tiles.BlockArguments`, of which it does not heed the state, and whose
    sums always begin with 0.

    Attributes:
        tiles: of rows, 1 or 2; with 1 the second is neither read nor written.
        rows: of a tile, all of which are read.
        columns: vectors of columns, 1 or 2; with 1 the others are neither computed nor
            written.
        lines: of :data:`PAIRS_LINES`; or 0 for a block that is alone in its columns,
            which brings B into the first cache itself.
    """

    tiles: int
    rows: int
    columns: int
    lines: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Block(module, name, isa, self).write()


class _Block:
    """The loops over taps, steps and turns of some pairs, for one tile after the other.

    What they carry are pointers to B, to what comes next and to groups of rows of A,
    and sums, row by row.
    """

    def __init__(self, module: Module, name: str, isa: Isa, form: BlockOfPairs) -> None:
        self.f = f = module.function(name, BlockArguments.parameters())
        self.isa, self.form = isa, form
        self.arguments = BlockArguments(*f.parameters)
        self.lines = form.lines
        row = self.arguments.row
        self.strides = [row * n for n in range(1, min(_GROUP, form.rows))]

    def write(self) -> None:
        arguments = self.arguments
        self._tile(arguments.first, arguments.sums)
        if self.form.tiles == 2:
            self.lines = 0  # what comes next has been asked for
            self._tile(arguments.second, offset(self.f, arguments.sums, TILE_SUMS))
        self.f.finish()

    def _tile(self, first: Value, sums: Value) -> None:
        f, arguments, form = self.f, self.arguments, self.form

        def tap(number: Value, *moving: Value) -> list[Value]:
            distance = f.load(f.at(arguments.offsets, number, I64), I64)
            start = offset(f, first, distance)
            a = [
                offset(f, start, arguments.row * row)
                for row in range(0, form.rows, _GROUP)
            ]
            return f.loop(arguments.steps, self._step, [*a, *moving])[len(a) :]

        zeros = [f.zero(_SUM)] * (form.rows * form.columns)
        begin = [arguments.b, arguments.next, *zeros]
        _, _, *totals = f.loop(arguments.taps, tap, begin)
        for number, total in enumerate(totals):
            row, column = divmod(number, form.columns)
            f.store(total, offset(f, sums, row * SUMS_ROW + column * ROW_BYTES))

    def _step(self, _: Value, *carried: Value) -> list[Value]:
        f, groups = self.f, -(-self.form.rows // _GROUP)
        a, (b, following, *sums) = carried[:groups], carried[groups:]
        state = f.loop(
            _PAIRS, self._turn, [*a, b, following, *sums], step=_TURN, nonempty=True
        )
        b, following, *sums = state[groups:]
        rest = self.arguments.plane - ROW_BYTES
        a = tuple(opaque(f, offset(f, place, rest)) for place in state[:groups])
        return [*a, offset(f, b, TERM_BYTES - TILE_BYTES), following, *sums]

    def _turn(self, _: Value, *carried: Value) -> list[Value]:
        f, form, groups = self.f, self.form, -(-self.form.rows // _GROUP)
        a, (b, following, *sums) = list(carried[:groups]), carried[groups:]
        for pair in range(_TURN):
            if pair:
                # rows of B are loaded one after the other: there are no registers for
                # two
                before = sums[-form.columns :]
                b, *a = known_after(f, self.isa, [b, *a], before)
            here = offset(f, b, pair * ROW_BYTES)
            factors = [
                f.load(offset(f, here, column * TILE_BYTES), _PAIR)
                for column in range(form.columns)
            ]
            if not form.lines:
                for column in range(form.columns):
                    ahead = STEPS_AHEAD * TERM_BYTES + column * TILE_BYTES
                    f.prefetch(offset(f, here, ahead))
            for row in range(form.rows):
                group, member = divmod(row, _GROUP)
                place = offset(f, a[group], pair * _PAIR_BYTES)
                if member:
                    place = offset(f, place, self.strides[member - 1])
                left = f.load_splat(place, _PAIR)
                for column, right in enumerate(factors):
                    at = row * form.columns + column
                    sums[at] = add_bf16_pairs(f, self.isa, left, right, sums[at])
        lines = self.lines * _TURN // _PAIRS
        for line in range(lines):
            f.prefetch(offset(f, following, line * 64), 2)
        moved = [opaque(f, offset(f, p, _TURN * _PAIR_BYTES)) for p in a]
        b = offset(f, b, _TURN * ROW_BYTES)
        return [*moved, b, offset(f, following, lines * 64), *sums]
