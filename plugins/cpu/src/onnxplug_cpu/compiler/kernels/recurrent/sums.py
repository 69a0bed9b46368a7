"""The sums of a panel's gates over a state: of one sequence, or of a block of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.recurrent import Cell
from onnxplug_cpu.compiler.codegen.emit import F32, I8, I64, PTR
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileArguments,
    TileProduct,
    chains_of,
    multiply_add,
)
from onnxplug_cpu.compiler.kernels.recurrent.ahead import Slice, pace_of
from onnxplug_cpu.compiler.kernels.recurrent.cell import phases

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Value
    from onnxplug_cpu.compiler.kernels.recurrent.steps import StepsWriter
    from onnxplug_cpu.compiler.machine.isa import Isa

_MOST_ROWS: Final = 14


def panel_lanes(isa: Isa) -> int:
    """Lanes of a panel: those of a register, two of the shorter ones."""
    return 16 if isa.name == "avx512" else 8


PAIR: Final = 2
"""Panels whose equations are computed at once."""


class Tile(NamedTuple):
    """How the sums of a block of sequences are computed.

    Attributes:
        rows: sequences of a block at most.
        gates: whose sums are computed at once.
    """

    rows: int
    gates: int

    def kernel(self, isa: Isa, rows: int) -> Kernel:
        """The tile for *rows* sequences, of blocks of as many or one less."""
        sums = self.rows * self.gates
        chains = chains_of(isa, sums) if sums < _CHAINED else 1
        nbytes = 4 * panel_lanes(isa)
        return Kernel(
            TileProduct("f32", rows, self.gates, chains, alone=True, nbytes=nbytes)
        )


_CHAINED: Final = 8
"""An addition takes four times as long as two begin in."""


def tile_of(isa: Isa, gates: int, batch: int) -> Tile:
    """The tile for *batch* sequences and a phase of so many gates: the one that reads
    weights least often, with the widest rows of them."""
    vectors = 4 * panel_lanes(isa) // isa.vector_bytes
    found = []
    for width in {gates, gates // 2} if gates % 2 == 0 and gates > 2 else {gates}:
        room = (isa.registers - 1 - width * vectors) // (width * vectors)
        if not room:
            continue
        rows = min(_MOST_ROWS, room)
        blocks = -(-batch // rows)
        found.append((blocks, -width, -(-batch // blocks)))
    blocks, width, rows = min(found)
    return Tile(rows, -width)


def chains(isa: Isa, cell: Cell, ahead: int) -> int:
    """In how many chains a single sequence's sums are added up, in registers that
    weights, or the sums for so many steps *ahead*, leave."""
    gates = max(map(len, phases(cell)))
    vectors = isa.registers * isa.vector_bytes // (4 * panel_lanes(isa))
    others = ahead or gates
    many = 1
    while (
        gates * many * isa.registers < _CHAINED * vectors
        and gates * 2 * many + others <= vectors - 2
    ):
        many *= 2
    return many


class SumsOfOne:
    """Writes the sums of one sequence, whose weights' rows have all gates of a phase.

    Attributes:
        source: where the elements are.
        gates: how many there are.
        weights: of the panel.
        count: of the elements.
    """

    def __init__(
        self, writer: StepsWriter, source: Value, gates: int, weights: Value
    ) -> None:
        self.w, self.f = writer, writer.f
        self.source, self.gates, self.weights = source, gates, weights
        self.chains = chains(writer.isa, writer.cell, writer.form.ahead)
        self.row_bytes = gates * writer.nbytes

    def sums(self, count: Value, beside: Slice | None = None) -> list[Value]:
        """The sum of each gate; *beside* is computed in the same turns."""
        f, gates = self.f, self.gates
        sums = [f.zero(self.w.vector)] * (self.chains * gates)
        done = f.value(0, I64)
        if beside:
            done, sums = self._beside(sums, count, beside)
        if self.chains > 1:
            whole = count & -self.chains
            turn = functools.partial(self._turn, self.chains)
            sums = f.loop(whole, turn, sums, start=done, step=self.chains)
            done = whole
        sums = f.loop(count, functools.partial(self._turn, 1), sums, start=done)
        while len(sums) > gates:
            half = len(sums) // 2
            sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
        return sums

    def _turn(self, many: int, k: Value, *before: Value) -> list[Value]:
        """The sums after *many* elements, from *k* on."""
        w, f, sums = self.w, self.f, list(before)
        weights = f.at(self.weights, k * self.row_bytes, I8)
        for n in range(many):
            place = f.at(weights, n * self.row_bytes, I8)
            h = f.load_splat(f.at(self.source, k + n, F32), w.vector)
            for gate in range(self.gates):
                factor = f.load(f.at(place, gate * w.nbytes, I8), w.vector)
                at = n % self.chains * self.gates + gate
                sums[at] = multiply_add(f, w.isa, h, factor, sums[at])
        return sums

    def _beside(
        self, sums: list[Value], count: Value, beside: Slice
    ) -> tuple[Value, list[Value]]:
        """Multiply elements and features in the same turns, as long as there are both,
        and what features are left; how many elements are done, and the sums."""
        f, form, many = self.f, self.w.form, len(sums)
        pace = pace_of(form.ahead, self.gates, self.chains, form.features)
        turns = f.minimum(count // pace.elements, beside.count // pace.features)
        done = turns * pace.elements

        def both(k: Value, *carried: Value) -> list[Value]:
            after = self._turn(pace.elements, k, *carried[:many])
            return [*after, *beside.turn(pace.features, carried[many:])]

        state = [*sums, *beside.carried()]
        carried = f.loop(done, both, state, step=pace.elements)
        beside.carry(carried[many:])
        beside.finish(turns * pace.features)
        return done, carried[:many]


class PanelSums:
    """Writes the sums of a pair of panels to memory, for a block of sequences.

    [half of the pair][sequence][gate of the phase][lanes of a panel], with the sums of
    the inputs, where they are computed in the step, behind those of the state.
    """

    def __init__(self, writer: StepsWriter) -> None:
        self.w, self.f = writer, writer.f
        form = writer.form
        self._rows = 1 if form.single else _MOST_ROWS
        self._gates = max(map(len, phases(writer.cell)))
        row = self._gates * (1 + form.projects) * writer.width
        self._row_bytes = 4 * row
        self._memory = self.f.stack(F32, PAIR * self._rows * row)

    def write(
        self,
        phase: int,
        gates: Sequence[int],
        state: Value,
        rows: Value,
        weights: Value,
        half: Value,
    ) -> None:
        """The sums of *gates* for the panel of *weights*.

        Args:
            state: the elements of the first sequence.
        """
        place = self._half(half)
        if not self.w.form.single:
            self._write_block(phase, len(gates), state, rows, weights, place)
            return
        of_state = SumsOfOne(self.w, state, len(gates), weights)
        if self.w.ahead:
            self.w.ahead.begin(phase, gates)
            beside, write = self.w.ahead.slice(phase, gates)
            self._store(of_state.sums(self.w.hidden, beside), place)
            write()
            return
        self._store(of_state.sums(self.w.hidden), place)
        if self.w.form.projects:
            features = self.w.k.features
            size = features * (len(gates) * self.w.nbytes)
            weights = self.w.of_direction(f"w{phase}")
            weights = self.f.at(weights, self.w.panel * size, I8)
            of_inputs = SumsOfOne(self.w, self.w.x, len(gates), weights)
            behind = self.f.at(place, self._gates * self.w.nbytes, I8)
            self._store(of_inputs.sums(features), behind)

    def of_row(self, row: Value, gates: int) -> list[Value]:
        """The sums of the pair for a sequence of the block; those of *gates*, and
        behind them of its inputs, if they are computed in the step."""
        found = []
        numbers = [*range(gates)]
        if self.w.form.projects:
            numbers += [self._gates + number for number in range(gates)]
        for number in numbers:
            halves = (
                self.f.at(
                    self._half(self.f.value(half, I64)), row * self._row_bytes, I8
                )
                for half in range(PAIR)
            )
            found.append(
                self.w.paired(
                    [self.f.at(p, number * self.w.nbytes, I8) for p in halves]
                )
            )
        return found

    def _half(self, half: Value) -> Value:
        return self.f.at(self._memory, half * (self._rows * self._row_bytes), I8)

    def _store(self, sums: Sequence[Value], place: Value) -> None:
        for n, total in enumerate(sums):
            self.f.store(total, self.f.at(place, n * self.w.nbytes, I8))

    def _write_block(
        self,
        phase: int,
        gates: int,
        state: Value,
        rows: Value,
        weights: Value,
        place: Value,
    ) -> None:
        """By a tile of a matrix product."""
        w, f, k = self.w, self.f, self.w.k
        together = k.integer(f"gates{phase}")
        tile = f.select(
            rows.compare("eq", k.rows),
            k.pointer(f"tile{phase}"),
            k.pointer(f"low_tile{phase}"),
        )
        row_bytes, nothing = f.value(self._row_bytes, I64), f.value(0, I64)
        arguments = TileArguments(
            a=state,
            a_row=w.state_row,
            b=weights,
            b_row=together * w.nbytes,
            k=w.hidden,
            columns=together * w.width,
            c=place,
            c_row=row_bytes,
            add=nothing,
            result=place,
            result_row=row_bytes,
            next=weights,
            next_step=nothing,
            taps=nothing,
            offsets=weights,
            panels=f.value(gates, I64) // together,
            b_panel=w.hidden * (together * w.nbytes),
            kept=f.zero(PTR),
        )
        f.call_pointer(tile, *arguments)
