"""Products of the inputs of later steps, computed beside the sums of a step.

A step of one sequence waits for its weights, each of which it multiplies once, while
products of inputs wait for the units that multiply, as each weight meets a block of
steps.  So both are done at once: a step computes a part of the products of the next
block, whose inputs are known, in the turns of the loop that reads the step's weights.

The products of two blocks are kept, for one direction as [block of two][panel][gate]
[step of the block][lanes of the panel].  The last block ends with the last step, and so
begins before the one before it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.recurrent import GRU, Cell
from onnxplug_cpu.compiler.codegen.emit import F32, I8, I64
from onnxplug_cpu.compiler.codegen.scheduling import opaque
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Value
    from onnxplug_cpu.compiler.kernels.recurrent.steps import StepsWriter
    from onnxplug_cpu.compiler.machine.isa import Isa

_LONG: Final = 64
"""Steps for which a block of twice as many is worth its begin."""

_RESET: Final = 2
"""The gate of a GRU whose sum over the state is reset."""

_REACH: Final = 7
"""Steps whose inputs one pointer reaches: see :mod:`..contraction.tile`."""


def block_steps(isa: Isa, cell: Cell, time: int) -> int:
    """Steps of a block, a multiple of the gates of each phase; 0 if *time* has too few.

    A larger block reads weights less often, in more registers, but its first products
    have no steps to be computed beside.
    """
    few = 6 if cell.kind == GRU else 8
    if isa.name == "avx512" and time >= _LONG:
        return 2 * few
    return few if time >= 2 * few else 0


class Pace(NamedTuple):
    """What a turn of the loop has.

    Attributes:
        elements: of the state, each of which meets a row of the gates' weights.
        features: of the inputs of a block, each of which meets a vector of weights.
    """

    elements: int
    features: int


def pace_of(steps: int, gates: int, chains: int, features: int) -> Pace:
    """So many multiplications of inputs for each of the state, as there are about so
    many *features* for an element of it."""
    elements = max(2, chains)
    while 4 * elements * gates <= 3 * steps:
        elements *= 2
    return Pace(elements, max(1, round(elements * gates * features / steps)))


class Slice:
    """The part of the products of the next block that a panel of a step computes.

    A vector of a gate's weights of the panel meets a feature of all steps of the block.

    Attributes:
        count: how many features it has; 0 after the last block has been computed.
        sums: for each step of the block, of the features before these.
    """

    def __init__(
        self,
        ahead: InputsAhead,
        weights: Value,
        x: Value,
        count: Value,
        sums: Sequence[Value],
    ) -> None:
        self._ahead, self.count, self.sums = ahead, count, list(sums)
        groups = range(0, ahead.steps, _REACH)
        apart = [ahead.f.at(x, ahead.x_step * step, I8) for step in groups]
        self._moving = [weights, *apart]

    def carried(self) -> list[Value]:
        """What a loop over features carries."""
        return [*self._moving, *self.sums]

    def carry(self, carried: Sequence[Value]) -> None:
        """Go on after a loop."""
        many = len(self._moving)
        self._moving, self.sums = list(carried[:many]), list(carried[many:])

    def turn(self, features: int, carried: Sequence[Value]) -> list[Value]:
        """What is carried after so many *features* more."""
        ahead, many = self._ahead, len(self._moving)
        f, sums = ahead.f, list(carried[many:])
        weights, *pointers = carried[:many]
        for n in range(features):
            factor = f.load(f.at(weights, n * ahead.nbytes, I8), ahead.vector)
            for step in range(ahead.steps):
                group, member = divmod(step, _REACH)
                place = f.at(pointers[group], 4 * n, I8)
                if member:
                    place = f.at(place, ahead.strides[member - 1], I8)
                x = f.load_splat(place, ahead.vector)
                sums[step] = multiply_add(f, ahead.w.isa, x, factor, sums[step])
        pointers = [opaque(f, f.at(place, 4 * features, I8)) for place in pointers]
        return [f.at(weights, features * ahead.nbytes, I8), *pointers, *sums]

    def finish(self, done: Value) -> None:
        """What is left after *done* features."""
        self.carry(
            self._ahead.f.loop(
                self.count,
                lambda _, *carried: self.turn(1, carried),
                self.carried(),
                start=done,
            )
        )


class InputsAhead:
    """Writes the products of inputs of one sequence in one direction.

    Attributes:
        steps: of a block.
        x_step: bytes from the inputs of a step to those of the next one.
        strides: so many for 1, 2, … steps.
    """

    def __init__(self, writer: StepsWriter, reverse: Value, turn: Value) -> None:
        self.w = writer
        self.f: Function = writer.f
        k, f = writer.k, writer.f
        self.vector, self.nbytes = writer.vector, writer.nbytes
        self.steps = writer.form.ahead
        self.x_step = k.x_time * turn
        self.strides = [self.x_step * n for n in range(1, min(_REACH, self.steps))]
        last = (k.time - 1) * k.x_time
        self._x = f.at(k.x, reverse * last, I8)
        self._of_gate = self.steps * self.nbytes
        of_panel = writer.cell.gates * self._of_gate
        self._of_block = k.slot * (of_panel // writer.nbytes)
        self._of_panel = of_panel
        self._products = f.at(k.ahead, writer.direction * (self._of_block * 2), I8)

    def at_step(self, number: Value) -> None:
        """What follows is of the step that is computed as *number*."""
        self.number = number
        self._block = number // self.steps
        self._place = number - self._block * self.steps

    def inputs(self, gate: int) -> Value:
        """The step's products with their biases, for the pair's lanes of *gate*."""
        row = self.number - self._first(self._block)
        first = self._gate(self._block, self.w.pair, self.f.value(gate, I64))
        first = self.f.at(first, row * self.nbytes, I8)
        return self.w.paired([first, self.f.at(first, self._of_panel, I8)])

    def adds(self, gate: int) -> bool:
        """Whether products have the bias of the state, too: unless it is reset late."""
        return not (self.w.cell.resets_late and gate == _RESET)

    def begin(self, phase: int, gates: Sequence[int]) -> None:
        """Before the first step, compute all of the first block for the panel."""
        f, features = self.f, self.w.k.features

        def each(number: Value) -> None:
            weights = self._weights(phase, gates, number * features)
            gate = number + gates[0]
            begins = [self._bias(gates, gate)] * self.steps
            whole = Slice(self, weights, self._x, features, begins)
            whole.finish(f.value(0, I64))
            self._write(self._gate(self._block, self.w.panel, gate), whole)

        f.branch(
            self.number.compare("eq", 0),
            lambda: f.loop(len(gates), each, nonempty=True),
        )

    def slice(
        self, phase: int, gates: Sequence[int]
    ) -> tuple[Slice, Callable[[], None]]:
        """The part of the step, and what writes its results.

        Each gate of the phase has as many steps of the block, which divide its
        features.
        """
        f, features = self.f, self.w.k.features
        parts = self.steps // len(gates)
        number, part = self._place // parts, self._place % parts
        first, end = ((features * each) // parts for each in (part, part + 1))
        following = self._block + 1
        is_there = (following * self.steps) < self.w.k.time
        count = f.select(is_there, end - first, 0)
        x = f.at(self._x, self._first(following) * self.x_step + first * 4, I8)
        weights = self._weights(phase, gates, number * features + first)
        gate = number + gates[0]
        place = self._gate(following, self.w.panel, gate)
        begins, bias = part.compare("eq", 0), self._bias(gates, gate)
        before = [f.select(begins, bias, each) for each in self._read(place)]
        of_step = Slice(self, weights, x, count, before)
        return of_step, lambda: self._write(place, of_step)

    def _first(self, block: Value) -> Value:
        """The first step of a block, or of the last one if there are not so many."""
        return self.f.minimum(block * self.steps, self.w.k.time - self.steps)

    def _bias(self, gates: Sequence[int], gate: Value) -> Value:
        """The bias of one of *gates* for the panel; of inputs, and of the state if that
        is added to them."""
        w, f = self.w, self.f
        if not w.form.has_bias:
            return f.zero(self.vector)
        place = f.at(w.bias, w.slot * gate + w.panel * self.nbytes, I8)
        of_inputs = f.load(place, self.vector, align=4)
        of_state = f.load(f.at(place, w.slot * w.cell.gates, I8), self.vector, align=4)
        total = of_inputs + of_state
        if all(map(self.adds, gates)):
            return total
        return f.select(gate.compare("eq", _RESET), of_inputs, total)

    def _gate(self, block: Value, panel: Value, gate: Value) -> Value:
        """The products of *panel* for *gate*."""
        place = (block & 1) * self._of_block + panel * self._of_panel
        return self.f.at(self._products, place + gate * self._of_gate, I8)

    def _weights(self, phase: int, gates: Sequence[int], row: Value) -> Value:
        whole = self.w.of_direction(f"w{phase}")
        first = self.w.panel * self.w.k.features * len(gates)
        return self.f.at(whole, (first + row) * self.nbytes, I8)

    def _places(self, place: Value) -> list[Value]:
        return [self.f.at(place, n * self.nbytes, I8) for n in range(self.steps)]

    def _read(self, place: Value) -> list[Value]:
        return [self.f.load(each, self.vector) for each in self._places(place)]

    def _write(self, place: Value, products: Slice) -> None:
        for each, total in zip(self._places(place), products.sums, strict=True):
            self.f.store(total, each)


def ahead_bytes(cell: Cell, steps: int, slot: int) -> int:
    """The products that are kept for one direction, of blocks of so many steps and so
    many lanes of all panels."""
    return 2 * cell.gates * steps * slot * F32.nbytes
