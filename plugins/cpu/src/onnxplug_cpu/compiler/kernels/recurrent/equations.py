"""The equations of a cell, for the lanes of a pair of panels of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug_compiler.ir.recurrent import LSTM, RNN
from onnxplug_cpu.compiler.codegen.emit import I8
from onnxplug_cpu.compiler.kernels.recurrent.cell import apply

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Value
    from onnxplug_cpu.compiler.codegen.lanes import Part
    from onnxplug_cpu.compiler.kernels.recurrent.steps import StepsWriter


class Equations:
    """A step of a sequence.

    Attributes:
        sums: of the gates over the state, without biases, as
            :meth:`~.sums.PanelSums.of_row` gives them.
    """

    def __init__(self, writer: StepsWriter, row: Value, sums: Sequence[Value]) -> None:
        self.w, self.f, self.cell = writer, writer.f, writer.cell
        self.row, self.sums, self.slots = row, sums, writer.slots_of(row)
        self.x = self.f.at(self.w.x, self.row * self.w.x_row, I8)

    def finish(self, phase: int, gates: Sequence[int]) -> None:
        """Write what follows from the sums of the *gates* of a phase."""
        sums = self.sums[: len(gates)]
        self.inputs = dict(zip(gates, self.sums[len(gates) :], strict=False))
        if self.cell.kind == LSTM:
            self._lstm(sums)
        elif self.cell.kind == RNN:
            total = self._input(0) + self._recurrent(0, sums[0])
            self._write(self._apply(0, total))
        elif self.cell.resets_late:
            self._gru(sums)
        elif phase == 0:
            self._gru_gates(sums)
        else:
            self._gru_late(sums[0])

    def _lstm(self, sums: Sequence[Value]) -> None:
        """Gates lie in the order input, output, forget, cell."""
        f = self.f
        into, out, forget, candidate = (
            self._input(gate) + self._recurrent(gate, total)
            for gate, total in enumerate(sums)
        )
        place = f.at(self._slot(2), self.w.lane, I8)
        before = f.load(place, self.w.both, align=4)
        if self.cell.peepholes:
            into = into + self._peephole(0) * before
            forget = forget + self._peephole(2) * before
        into = self._apply(0, into)
        forget = 1.0 - into if self.cell.couples else self._apply(0, forget)
        after = forget * before + into * self._apply(1, candidate)
        if self.cell.peepholes:
            out = out + self._peephole(1) * after
        hidden = self._apply(0, out) * self._apply(2, after)
        f.store(self._active(after, before), place, align=4)
        self._write(hidden)

    def _gru(self, sums: Sequence[Value]) -> None:
        """Gates lie in the order update, reset, hidden."""
        update, reset = (
            self._apply(0, self._input(gate) + self._recurrent(gate, sums[gate]))
            for gate in range(2)
        )
        history = reset * self._recurrent(2, sums[2])
        candidate = self._apply(1, self._input(2) + history)
        self._write((1.0 - update) * candidate + update * self._before())

    def _gru_gates(self, sums: Sequence[Value]) -> None:
        f = self.f
        update, reset = (
            self._apply(0, self._input(gate) + self._recurrent(gate, sums[gate]))
            for gate in range(2)
        )
        f.store(update, f.at(self._slot(2), self.w.lane, I8), align=4)
        product = reset * self._before()
        f.store(product, f.at(self._slot(3), self.w.lane, I8), align=4)

    def _gru_late(self, total: Value) -> None:
        f = self.f
        place = f.at(self._slot(2), self.w.lane, I8)
        update = f.load(place, self.w.both, align=4)
        candidate = self._apply(1, self._input(2) + self._recurrent(2, total))
        self._write((1.0 - update) * candidate + update * self._before())

    # operands and results

    def _apply(self, number: int, x: Value) -> Value:
        return apply(self.f, self.w.isa, self.cell, number, x)

    def _input(self, gate: int) -> Value:
        """The projected input of a gate, with its bias."""
        f = self.f
        if self.w.form.projects:
            value = self.inputs[gate]
        elif self.w.ahead:
            value = self.w.ahead.inputs(gate)
        else:
            place = f.at(f.at(self.x, self.w.gate * gate, I8), self.w.lane, I8)
            value = f.load(place, self.w.both, align=4)
        if self.w.ahead or not self.w.form.has_bias:
            return value  # with the bias, if it was computed ahead
        return value + self._bias(gate)

    def _recurrent(self, gate: int, total: Value) -> Value:
        """The sum over the state of a gate, with its bias."""
        if not self.w.form.has_bias or (self.w.ahead and self.w.ahead.adds(gate)):
            return total
        return total + self._bias(self.cell.gates + gate)

    def _bias(self, number: int) -> Value:
        return self._parameter(self.w.bias, number)

    def _peephole(self, number: int) -> Value:
        return self._parameter(self.w.peepholes, number)

    def _parameter(self, base: Value, number: int) -> Value:
        f = self.f
        place = f.at(f.at(base, self.w.slot * number, I8), self.w.lane, I8)
        return f.load(place, self.w.both, align=4)

    def _slot(self, number: int) -> Value:
        return self.f.at(self.slots, self.w.slot * number, I8)

    def _before(self) -> Value:
        """The state before the step."""
        f = self.f
        place = f.at(f.at(self.slots, self.w.from_, I8), self.w.lane, I8)
        return f.load(place, self.w.both, align=4)

    def _is_active(self) -> Value:
        return self.w.now < self.w.length(self.row)

    def _active(self, after: Value, before: Value) -> Value:
        """*after* of a sequence that has this step, otherwise *before*."""
        if not self.w.form.has_lengths:
            return after
        return self.f.select(self._is_active(), after, before)

    def _write(self, hidden: Value) -> None:
        """Write the state after the step, and the result of it."""
        w, f = self.w, self.f
        place = f.at(f.at(self.slots, w.to, I8), w.lane, I8)
        after = hidden
        if w.form.has_lengths:
            after = self._active(hidden, self._before())
        f.store(after, place, align=4)
        if not w.form.has_y:
            return
        y = f.at(f.at(w.y, self.row * w.y_row, I8), w.lane, I8)
        result = self._active(hidden, f.zero(w.both))
        if not w.form.tail:
            f.store(result, y, align=4)
            return
        f.branch(
            w.left >= w.lanes.width,
            lambda: f.store(result, y, align=4),
            lambda: w.lanes.store("f32", result, y, self._part()),
        )

    def _part(self) -> Part:
        return self.w.lanes.first(self.w.left)
