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
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.recurrent.ahead import InputsAhead, Slice, pace_of
from onnxplug_cpu.compiler.kernels.recurrent.cell import phases, slots
from onnxplug_cpu.compiler.kernels.recurrent.equations import Sequence as Equations
from onnxplug_cpu.compiler.kernels.recurrent.sharing import write_stages

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


class _Words(KernelWords):
    blocks: Integer
    each: Integer
    parts: Integer
    tall_blocks: Integer
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


def panel_lanes(isa: Isa) -> int:
    """Lanes of a panel: those of a register, two of the shorter ones."""
    return 16 if isa.name == "avx512" else 8


class RecurrentSteps(Generator):
    """Some steps of some sequences.  A chunk is a part of the blocks of one direction,
    or of several that share its steps one.

    Attributes:
        cell: what is computed.
        rows: sequences of a block.
        short: some blocks, the last ones, have one sequence less.
        chains: of additions that give a sum, so that one need not wait for another.
        tail: the last panel is not filled by the state.
        has_bias, has_lengths, has_y: what there is.
        projects: inputs are given as they are, and multiplied here: of one step, whose
            weights are read once in any case.
        ahead: inputs are given as they are, and products of later steps' are computed
            beside each step, of a single sequence.
        shares: whether several chunks divide the panels of each step; then states are
            there before, and stay where the last step leaves them.
    """

    cell: Cell
    rows: int
    short: bool
    chains: int
    tail: bool
    has_bias: bool
    has_lengths: bool
    has_y: bool
    projects: bool
    ahead: bool
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
        return *names, *(f"{name}_direction" for name in names)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        StepsWriter(self, _Words(module, name, self._of_phases), isa).write()


class StepsWriter:
    """Writes the function.

    Attributes:
        from_, to: bytes from a sequence's slots to its state before a step and after.
        lane: bytes to the lanes of the panel.
        panel: the number of the panel.
        left: lanes of the state from the panel's first on.
        ahead: what computes products of inputs ahead, if something does.
    """

    ahead: InputsAhead | None = None

    def __init__(self, form: RecurrentSteps, k: _Words, isa: Isa) -> None:
        self.form, self.cell, self.k, self.isa = form, form.cell, k, isa
        self.f = f = k.function
        self.width = panel_lanes(isa)
        self.vector = F32.vector(self.width)
        self.nbytes = 4 * self.width
        self.lanes = Lanes(f, isa, self.width)
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
        self.tall_blocks = k.tall_blocks
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

        def panel(turn: Value) -> None:
            self.panel = panel = first + f.select(backwards, count - 1 - turn, turn)
            self.lane, self.left = panel * self.nbytes, self.hidden - panel * self.width
            self.weights = f.at(weights, panel * size, I8)
            if self.form.projects:
                size_ = self.k.features * (len(gates) * self.nbytes)
                whole = self.of_direction(f"w{number}")
                self.input_weights = f.at(whole, panel * size_, I8)
            if self.ahead:
                self.ahead.begin(number, gates, panel)
            self._blocks(lambda row, rows: self._block(number, gates, row, rows))

        f.loop(count, panel, nonempty=True)

    def _blocks(self, body: Callable[[Value, int], None]) -> None:
        """``body(row, rows)`` for each block of the chunk."""
        f, rows, tall = self.f, self.form.rows, self.tall_blocks
        if rows == 1:
            f.loop(
                self.end_block,
                lambda block: body(block, 1),
                start=self.first_block,
                nonempty=True,
            )
            return
        end = f.minimum(self.end_block, tall) if self.form.short else self.end_block
        f.loop(end, lambda n: body(n * rows, rows), start=self.first_block)
        if self.form.short:
            f.loop(
                self.end_block,
                lambda n: body(n * (rows - 1) + tall, rows - 1),
                start=f.maximum(self.first_block, tall),
            )

    def _rows(self, body: Callable[[Value], None]) -> None:
        """``body(row)`` for each sequence of the chunk."""

        def block(row: Value, rows: int) -> None:
            self.f.loop(row + rows, body, start=row, nonempty=True)

        self._blocks(block)

    def _block(
        self, number: int, gates: tuple[int, ...], row: Value, rows: int
    ) -> None:
        slots = self.f.at(self.state, row * self.state_row, I8)
        of_rows = [self.f.at(slots, self.state_row * n, I8) for n in range(rows)]
        # what the second phase of a GRU multiplies is the state that was reset
        source = self.from_ if number == 0 else self.slot * 3
        states = [self.f.at(p, source, I8) for p in of_rows]
        weights = self.weights
        if self.ahead:
            inputs, write = self.ahead.slice(number, gates, self.panel)
            sums = self._sums(states, len(gates), weights, self.hidden, inputs)
            write()
        else:
            sums = self._sums(states, len(gates), weights, self.hidden)
        for n, slots in enumerate(of_rows):
            sequence = Equations(self, row + n, slots)
            if self.form.projects:
                x, count = [sequence.x], self.k.features
                (inputs,) = self._sums(x, len(gates), self.input_weights, count)
                sequence.inputs = dict(zip(gates, inputs, strict=True))
            sequence.finish(number, sums[n])

    def _sums(
        self,
        sources: list[Value],
        gates: int,
        weights: Value,
        count: Value,
        beside: Slice | None = None,
    ) -> list[list[Value]]:
        """For each of *sources*, of *count* elements, and each gate the panel's sum;
        *beside* is computed in the same turns."""
        f, chains = self.f, self.form.chains
        turn = functools.partial(self._turn, sources, gates)
        many_sums = len(sources) * gates
        state = [weights, *[f.zero(self.vector)] * (chains * many_sums)]
        done: Value | int = 0
        if beside:
            done = self._beside(turn, state, gates, count, beside)
        if chains > 1:
            whole = count & -chains
            many = functools.partial(turn, chains)
            state = f.loop(whole, many, state, start=done, step=chains)
            done = whole
        state = f.loop(count, functools.partial(turn, 1), state, start=done)
        sums = state[1:]
        while len(sums) > many_sums:
            half = len(sums) // 2
            sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
        return [sums[n : n + gates] for n in range(0, many_sums, gates)]

    def _turn(
        self,
        sources: list[Value],
        gates: int,
        many: int,
        k: Value,
        weights: Value,
        *carried: Value,
    ) -> list[Value]:
        """Where weights go on, and the sums, after *many* elements from *k* on."""
        f, sums, chains = self.f, list(carried), self.form.chains
        size = gates * self.nbytes
        for n in range(many):
            place = f.at(weights, n * size, I8)
            factors = [
                f.load(f.at(place, g * self.nbytes, I8), self.vector)
                for g in range(gates)
            ]
            for row, source in enumerate(sources):
                h = f.load_splat(f.at(source, k + n, F32), self.vector)
                for g in range(gates):
                    at = (n % chains * len(sources) + row) * gates + g
                    sums[at] = multiply_add(f, self.isa, h, factors[g], sums[at])
        return [f.at(weights, many * size, I8), *sums]

    def _beside(
        self,
        turn: Callable[..., list[Value]],
        state: list[Value],
        gates: int,
        count: Value,
        beside: Slice,
    ) -> Value:
        """Multiply elements and features in the same turns, as long as there are both,
        and what features are left; how many elements are done."""
        f, many = self.f, len(state)
        pace = pace_of(self.cell, gates, self.form.chains)
        turns = f.minimum(count // pace.elements, beside.count // pace.features)

        def both(number: Value, *carried: Value) -> list[Value]:
            k = number * pace.elements
            after = turn(pace.elements, k, *carried[:many])
            return [*after, *beside.turn(pace.features, carried[many:])]

        carried = f.loop(turns, both, [*state, *beside.carried()])
        state[:] = carried[:many]
        beside.carry(carried[many:])
        beside.finish(turns * pace.features)
        return turns * pace.elements

    # the states before the first step and after the last one

    def _slots(self, row: Value) -> Value:
        return self.f.at(self.state, row * self.state_row, I8)

    def _begin(self, row: Value) -> None:
        slots = self._slots(row)
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
        slots = self._slots(row)
        self._move(slots, self.f.at(slots, self.slot, I8))

    def _end(self, row: Value) -> None:
        f, slots = self.f, self._slots(row)
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
