"""The steps of a recurrent layer, one after the other, in one kernel.

A panel of the state's lanes is computed at once: the sums of all gates of these lanes
stay in registers while the weights of the panel, packed in the order in which they are
read, meet each element of the state before; then the cell's equations make the state
after of them.  So a step reads its weights once for all sequences of a chunk, and
nothing but states is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxplug_compiler.ir.recurrent import LSTM, Cell
from onnxplug_cpu.compiler.codegen.emit import F32, I8, I32, I64, U64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes
from onnxplug_cpu.compiler.kernels.recurrent.ahead import InputsAhead
from onnxplug_cpu.compiler.kernels.recurrent.cell import phases, slots
from onnxplug_cpu.compiler.kernels.recurrent.equations import Equations
from onnxplug_cpu.compiler.kernels.recurrent.sharing import write_stages
from onnxplug_cpu.compiler.kernels.recurrent.sums import PAIR, PanelSums, panel_lanes

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


class _Words(KernelWords):
    blocks: Integer
    each: Integer
    parts: Integer
    tall_blocks: Integer
    rows: Integer
    reverse: Integer
    first: Integer
    count: Integer
    time: Integer
    hidden: Integer
    panels: Integer
    begins: Integer
    ends: Integer
    at: Integer
    shares: Integer
    panels_of_share: Integer
    shared: Pointer
    shared_of_group: Integer
    features: Integer
    x: Pointer
    x_direction: Integer
    x_time: Integer
    x_row: Integer
    ahead: Pointer
    state: Pointer
    state_direction: Integer
    slot: Integer
    bias: Pointer
    peepholes: Pointer
    h0: Pointer
    h0_direction: Integer
    h0_row: Integer
    c0: Pointer
    c0_direction: Integer
    c0_row: Integer
    y: Pointer
    y_direction: Integer
    y_time: Integer
    y_row: Integer
    last_h: Pointer
    last_h_direction: Integer
    last_h_row: Integer
    last_c: Pointer
    last_c_direction: Integer
    last_c_row: Integer
    lengths: Pointer
    lengths_step: Integer
    flag: Pointer


class RecurrentSteps(Generator):
    """Some steps of some sequences.  A chunk is a part of the blocks of one direction,
    or of several that share its steps one.

    Attributes:
        cell: what is computed.
        single: there is one sequence.
        tail: the last pair of panels is not filled by the state.
        has_bias, has_lengths, has_y: what there is.
        projects: inputs are given as they are, and multiplied here: of one step of a
            single sequence, whose weights are read once in any case.
        ahead: inputs of a single sequence are given as they are, and products of those
            of the next block, of so many steps, are computed beside each step; or 0.
        features: of these inputs for an element of the state, about.
        shares: whether several chunks divide the panels of each step; then states are
            there before, and stay where the last step leaves them.
    """

    cell: Cell
    single: bool
    tail: bool
    has_bias: bool
    has_lengths: bool
    has_y: bool
    projects: bool
    ahead: int
    features: int
    shares: bool

    @property
    def words(self) -> tuple[str, ...]:
        return (*_Words.names, *self._of_phases)

    @property
    def _of_phases(self) -> tuple[str, ...]:
        names = [
            f"{matrix}{number}"
            for matrix in ("wr" if self.projects or self.ahead else "r")
            for number in range(len(phases(self.cell)))
        ]
        names += [f"{name}_direction" for name in names]
        if not self.single:
            for number in range(len(phases(self.cell))):
                names += [f"{word}{number}" for word in ("tile", "low_tile", "gates")]
        return tuple(names)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        StepsWriter(self, _Words(module, name, self._of_phases), isa).write()


class StepsWriter:
    """Writes the function.

    Attributes:
        from_, to: bytes from a sequence's slots to its state before a step and after.
        panel: the number of the panel whose sums are computed.
        pair: the first of two panels, on whose lanes the equations are computed, as
            one panel's would wait for each other.
        lane: bytes to the lanes of the pair.
        left: lanes of the state from the pair's first on.
        ahead: what computes products of inputs ahead, if something does.
    """

    ahead: InputsAhead | None = None

    def __init__(self, form: RecurrentSteps, k: _Words, isa: Isa) -> None:
        self.form, self.cell, self.k, self.isa = form, form.cell, k, isa
        self.f = f = k.function
        self.width = panel_lanes(isa)
        self.vector = F32.vector(self.width)
        self.nbytes = 4 * self.width
        self.both = F32.vector(PAIR * self.width)
        self.lanes = Lanes(f, isa, PAIR * self.width)
        if form.tail:
            self.lanes.reserve_for("f32", strided=False)
        group, self.own = k.chunk, f.value(0, I64)
        if form.shares:
            group, self.own = k.chunk // k.shares, k.chunk % k.shares
        parts = k.parts
        self.group = group
        self.direction = group // parts
        part = group % parts
        self.first_block = part * k.each
        end = self.first_block + k.each
        self.end_block = f.minimum(end, k.blocks)
        self.first_row = self.row_of(self.first_block)
        self.end_row = self.row_of(self.end_block)
        self.hidden = k.hidden
        self.gate = self.hidden * 4
        self.slot = k.slot
        self.state_row = self.slot * slots(self.cell)
        self.state = self.of_direction("state")
        self.x_row = k.x_row
        if form.has_bias:
            self.bias = f.at(
                k.bias,
                self.direction * (self.slot * 2 * self.cell.gates),
                I8,
            )
        if self.cell.peepholes:
            self.peepholes = f.at(k.peepholes, self.direction * (self.slot * 3), I8)
        if form.has_y:
            self.y_row = k.y_row
        self.sums = PanelSums(self)
        if form.has_lengths:
            self.lengths_step = k.lengths_step
            self.lengths = k.lengths

    # the loops, from the outermost on

    def write(self) -> None:
        f, k = self.f, self.k
        time, first = k.time, k.first
        reverse = (k.reverse >> self.direction) & 1
        last = time - 1
        begin = f.select(reverse.compare("ne", 0), last - first, first)
        turn = 1 - reverse * 2
        words = ["x", "y"] if self.form.has_y else ["x"]
        moving = [
            f.at(self.of_direction(word), begin * k.integer(f"{word}_time"), I8)
            for word in words
        ]
        steps = [k.integer(f"{word}_time") * turn for word in words]
        if self.form.ahead:
            self.ahead = InputsAhead(self, reverse, turn)
        if self.form.shares:
            self._write_shared(begin, turn, moving, steps)
            f.finish()
            return
        if self.form.has_lengths:
            self._rows(self._check_length)
        f.branch(k.begins.compare("ne", 0), lambda: self._rows(self._begin))

        def step(
            number: Value, from_: Value, to: Value, now: Value, *moving: Value
        ) -> list[Value]:
            self._at_step(number, from_, to, now, moving)
            for phase, gates in enumerate(phases(self.cell)):
                self._phase(phase, gates, f.value(0, I64), self.k.panels)
            moved = [f.at(p, s, I8) for p, s in zip(moving, steps, strict=True)]
            return [to, from_, now + turn, *moved]

        state = [k.at, self.slot - k.at, begin, *moving]
        at = f.loop(k.count, step, state)[0]
        f.branch(at.compare("ne", 0), lambda: self._rows(self._settle))
        f.branch(k.ends.compare("ne", 0), lambda: self._rows(self._end))
        f.finish()

    def _write_shared(
        self, begin: Value, turn: Value, moving: list[Value], steps: list[Value]
    ) -> None:
        """A phase of a step is a stage."""
        f, k = self.f, self.k
        each = k.panels_of_share
        many = len(phases(self.cell))

        def stage(number: Value, share: Value) -> None:
            step = number // many
            first = share * each
            count = f.minimum(each, k.panels - first)
            from_ = f.select((step & 1).compare("ne", 0), self.slot - k.at, k.at)
            moved = [f.at(p, s * step, I8) for p, s in zip(moving, steps, strict=True)]
            now = begin + step * turn
            self._at_step(step, from_, self.slot - from_, now, moved)
            for phase, gates in enumerate(phases(self.cell)):
                write = functools.partial(self._phase, phase, gates, first, count)
                f.branch((number % many).compare("eq", phase), write)

        memory = f.at(k.shared, self.group * k.shared_of_group, I8)
        stages = k.count * many
        write_stages(f, self.isa, memory, self.own, k.shares, stages, stage)

    def _at_step(
        self,
        number: Value,
        from_: Value,
        to: Value,
        now: Value,
        moving: Sequence[Value],
    ) -> None:
        if self.ahead:
            self.ahead.at_step(self.k.first + number)
        self.from_, self.to, self.now = from_, to, now
        self.x, self.y = moving[0], moving[-1]

    def _phase(
        self, number: int, gates: tuple[int, ...], first: Value, count: Value
    ) -> None:
        """The sums of *gates* over the whole state, and what follows from them, for
        *count* panels."""
        f = self.f
        weights = self.of_direction(f"r{number}")
        size = self.hidden * (len(gates) * self.nbytes)
        # forth and back: what was read last of a step is still in caches
        backwards = self.from_.compare("ne", 0)
        # what the second phase of a GRU multiplies is the state that was reset
        source = self.from_ if number == 0 else self.slot * 3
        pairs, end = (count + PAIR - 1) // PAIR, first + count

        def pair(turn: Value) -> None:
            self.pair = first + f.select(backwards, pairs - 1 - turn, turn) * PAIR
            self.lane = self.pair * self.nbytes
            self.left = self.hidden - self.pair * self.width
            self._blocks(block)

        def block(first_row: Value, rows: Value) -> None:
            if not self.form.single:
                f.loop(rows, lambda row: self._ask_for(first_row + row, gates))
            state = f.at(self.slots_of(first_row), source, I8)

            def sums(half: Value) -> None:
                self.panel = self.pair + half
                panel = f.at(weights, self.panel * size, I8)
                self.sums.write(number, gates, state, rows, panel, half)

            f.loop(f.minimum(end - self.pair, PAIR), sums, nonempty=True)
            f.loop(rows, lambda row: equations(first_row + row, row), nonempty=True)

        def equations(sequence: Value, row: Value) -> None:
            found = self.sums.of_row(row, len(gates))
            Equations(self, sequence, found).finish(number, gates)

        f.loop(pairs, pair, nonempty=True)

    def _ask_for(self, row: Value, gates: Sequence[int]) -> None:
        """Bring what the pair's equations will read, and write, into a cache."""
        f = self.f
        x = f.at(f.at(self.x, row * self.x_row, I8), self.lane, I8)
        places = [f.at(x, self.gate * gate, I8) for gate in gates]
        if self.form.has_y and gates[-1] == self.cell.gates - 1:
            places.append(f.at(f.at(self.y, row * self.y_row, I8), self.lane, I8))
        for place in places:
            for line in range(0, PAIR * self.nbytes, 64):
                f.prefetch(f.at(place, line, I8), 2)

    def _blocks(self, body: Callable[[Value, Value], None]) -> None:
        """``body(row, rows)`` for each block of the chunk."""
        if self.form.single:
            body(self.first_row, self.f.value(1, I64))
            return

        def block(number: Value) -> None:
            first = self.row_of(number)
            body(first, self.row_of(number + 1) - first)

        self.f.loop(self.end_block, block, start=self.first_block, nonempty=True)

    def row_of(self, block: Value) -> Value:
        """The first sequence of a block: the first blocks have one more."""
        short = self.f.maximum(block - self.k.tall_blocks, 0)
        return block * self.k.rows - short

    def _rows(self, body: Callable[[Value], None]) -> None:
        """``body(row)`` for each sequence of the chunk."""
        self.f.loop(self.end_row, body, start=self.first_row, nonempty=True)

    def paired(self, places: Sequence[Value]) -> Value:
        """The lanes of both panels of a pair, which lie apart."""
        first, second = (self.f.load(each, self.vector) for each in places)
        return self.f.shuffle(first, second, range(PAIR * self.width))

    # the states before the first step and after the last one

    def slots_of(self, row: Value) -> Value:
        return self.f.at(self.state, row * self.state_row, I8)

    def _begin(self, row: Value) -> None:
        slots = self.slots_of(row)
        self._copy(slots, self._given("h0", row), "h0")
        if self.cell.kind == LSTM:
            self._copy(
                self.f.at(slots, self.slot * 2, I8), self._given("c0", row), "c0"
            )

    def _copy(self, to: Value, from_: Value, word: str) -> None:
        """A state from where it is given, or zeros where it is not."""
        f = self.f

        def given() -> None:
            f.loop(
                self.hidden,
                lambda n: f.store(f.load(f.at(from_, n, F32), F32), f.at(to, n, F32)),
                nonempty=True,
            )

        def absent() -> None:
            f.loop(
                self.hidden,
                lambda n: f.store(f.zero(F32), f.at(to, n, F32)),
                nonempty=True,
            )

        f.branch(self.k.integer(word).compare("ne", 0), given, absent)

    def _settle(self, row: Value) -> None:
        """Put the state where the next command finds it."""
        slots = self.slots_of(row)
        self._move(slots, self.f.at(slots, self.slot, I8))

    def _end(self, row: Value) -> None:
        f, slots = self.f, self.slots_of(row)
        f.branch(
            self.k.integer("last_h").compare("ne", 0),
            lambda: self._move(self._given("last_h", row), slots),
        )
        if self.cell.kind == LSTM:
            f.branch(
                self.k.integer("last_c").compare("ne", 0),
                lambda: self._move(
                    self._given("last_c", row), f.at(slots, self.slot * 2, I8)
                ),
            )

    def _move(self, to: Value, from_: Value) -> None:
        f = self.f
        f.loop(
            self.hidden,
            lambda n: f.store(f.load(f.at(from_, n, F32), F32), f.at(to, n, F32)),
            nonempty=True,
        )

    def _given(self, word: str, row: Value) -> Value:
        place = self.of_direction(word)
        return self.f.at(place, row * self.k.integer(f"{word}_row"), I8)

    def of_direction(self, word: str) -> Value:
        distance = self.direction * self.k.integer(f"{word}_direction")
        return self.f.at(self.k.pointer(word), distance, I8)

    def length(self, row: Value) -> Value:
        """How many steps a sequence has."""
        place = self.f.at(self.lengths, row * self.lengths_step, I8)
        return self.f.convert(self.f.load(place, I32), I64)

    def _check_length(self, row: Value) -> None:
        f, length = self.f, self.length(row)
        # as unsigned numbers, negative ones are above all limits
        wrong = f.bitcast(length, U64) > f.bitcast(self.k.time, U64)
        f.branch(wrong, lambda: f.store(length, self.k.flag))
