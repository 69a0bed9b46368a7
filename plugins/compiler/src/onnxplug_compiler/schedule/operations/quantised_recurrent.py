"""An LSTM whose weights are codes, and whose states become codes at each step.

The inputs of all steps are multiplied at once.  A step is a turn of commands: the state
of the whole batch is quantised as its range needs it, multiplied, and the equations of
the cell follow.

Source: ``DynamicQuantizeLSTM`` of ONNX Runtime's ContribOperators.md; the equations are
those of ONNX's LSTM-22.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.flow import Move, Turns
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Support, Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import coded_products
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.quantization import record_range
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)
from onnxplug_kernels.rnn import DIRECTIONS, USUAL_ACTIVATIONS

_X, _W, _R, _BIAS, _LENGTHS, _H, _C, _PEEPHOLES = range(8)
_SCALES: Final = {_W: 8, _R: 10}
"""The positions of the scales of weights; zero points follow."""

_GATES: Final = 4
"""In the order input, output, forget, cell."""

_STEPS: Final = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
"""Activations that are steps of chains, by their names in lower case."""

_U8, _I32, _I64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)


def _activations(call: Call, directions: int) -> list[list[str]]:
    """The steps of each direction's activations.

    Raises:
        NotCompiled: one of them is no step.
    """
    usual = USUAL_ACTIVATIONS["LSTM"]
    names = call.attributes.get("activations") or [*usual] * directions
    found = [_STEPS.get(str(name).lower(), "") for name in names]
    if len(found) != len(usual) * directions or "" in found:
        raise NotCompiled(f"the activations {[*names]} of {call.op_type}", call)
    return [found[n : n + len(usual)] for n in range(0, len(found), len(usual))]


def _directions(call: Call) -> tuple[str, ...]:
    found = DIRECTIONS.get(str(call.attributes.get("direction", "forward")).lower())
    if found is None:
        raise NotCompiled(f"direction {call.attributes['direction']!r}", call)
    return found


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    name = "DynamicQuantizeLSTM"
    codes = target.elements(f"com.microsoft.{name}")
    if not codes:
        return f"{name} is not compiled"
    if call.input(_LENGTHS) is not None:
        return f"{name} is compiled for sequences of one length"
    of_codes = {_W, _R, *(position + 1 for position in _SCALES.values())}
    for position, dtype in enumerate(dtypes):
        taken = codes if position in of_codes else {"f32"}
        if dtype is not None and element_of(dtype) not in taken:
            return f"{name} is not compiled for {dtype} as input {position}"
    return None


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, w, r = (given(inputs, position).shape for position in (_X, _W, _R))
    count = len(_directions(call))
    _activations(call, count)
    if len(x) != 3 or len(w) != 3 or len(r) != 3 or 0 in (*x, *w, *r):
        raise NotCompiled(f"X, W and R have shapes {x}, {w} and {r}", call)
    hidden = r[1]
    columns = _GATES * hidden
    state = (count, x[1], hidden)
    wanted = {
        _W: (count, x[2], columns),
        _R: (count, hidden, columns),
        _BIAS: (count, 2 * columns),
        _H: state,
        _C: state,
        _PEEPHOLES: (count, 3 * hidden),
    }
    for position, shape in wanted.items():
        value = inputs[position] if position < len(inputs) else None
        if value is not None and value.shape != shape:
            raise NotCompiled(f"{call.op_type} of {value.shape} for {shape}", call)
    for scale in _SCALES.values():
        for position in (scale, scale + 1):
            shape = given(inputs, position).shape
            if shape not in ((count,), (count, 1), (count, columns)):
                raise NotCompiled(f"input {position} has shape {shape}", call)
    clip = call.attributes.get("clip")
    if call.attributes.get("hidden_size") not in (None, hidden) or (clip and clip < 0):
        raise NotCompiled(f"hidden_size is not {hidden}, or the clip is {clip}", call)


class _Weights(NamedTuple):
    """Those of a direction.

    Attributes:
        codes: [sums, columns].
        zero: zero points as :class:`~...ir.coded.Factor` has them, of the same shape.
        offset: likewise.
        scale: one number, or one for each column.
    """

    codes: View
    zero: View | None
    offset: int
    scale: View


class _Direction:
    """A direction while it is recorded."""

    def __init__(self, plan: Plan, call: Call, number: int) -> None:
        self.plan, self.call, self.number = plan, call, number
        self.label = call.op_type
        self.time, self.batch, _ = plan.known(_named(call, _X)).shape
        self.hidden = plan.known(_named(call, _R)).shape[1]
        directions = _directions(call)
        self.is_reverse = directions[number] == "reverse"
        self.steps = _activations(call, len(directions))[number]

    def record(self, codes: tuple[View, View, View], y: View) -> tuple[View, View]:
        """Record all steps; where the last states are.

        Args:
            codes: of the inputs, with their scale and zero point.
            y: [time, batch, hidden], the states of all steps, each in C order.
        """
        recorder, hidden = self.plan.recorder, self.hidden
        of_inputs = recorder.temporary(F32, (self.time, self.batch, _GATES * hidden))
        rows = of_inputs.reshape((self.time * self.batch, _GATES * hidden))
        assert rows is not None
        self._multiply(recorder, codes, self._weights(_W), rows, self._biases())
        state, cell = (recorder.temporary(F32, (self.batch, hidden)) for _ in range(2))
        first = [
            Move(inside.address, self._initial(position).address, inside.nbytes)
            for position, inside in ((_H, state), (_C, cell))
        ]
        part = recorder.part()
        now = recorder.temporary(F32, (self.batch, _GATES * hidden))
        gates = recorder.temporary(F32, now.shape)
        quantised = (
            recorder.temporary(_U8, state.shape),
            recorder.temporary(F32, ()),
            recorder.temporary(_U8, ()),
        )
        record_range(part, state, quantised, self.label)
        self._multiply(part, quantised, self._weights(_R), gates, now)
        self._record_equations(part, gates, state, cell)
        turns = self._turns(first, of_inputs, now, state, y)
        flow = recorder.target.flow
        assert flow is not None, "accepted by its elements"
        label = f"{self.label} {self.time}×{self.batch}×{hidden}"
        flow.record_turns(recorder, turns, part.commands, count=self.time, label=label)
        return state, cell

    def _turns(
        self, first: list[Move], of_inputs: View, now: View, state: View, y: View
    ) -> Turns:
        start, sign = (self.time - 1, -1) if self.is_reverse else (0, 1)
        begin = of_inputs.place(start), y.place(start)
        before = Move(
            now.address, begin[0].address, now.nbytes, source_step=sign * now.nbytes
        )
        y_step = sign * y.strides[0] * y.dtype.itemsize
        after = Move(begin[1].address, state.address, state.nbytes, target_step=y_step)
        limit = self.plan.recorder.constant(np.array(self.time, _I64))
        return Turns(limit, None, None, None, None, first, [before], [after])

    def _initial(self, position: int) -> View:
        """[batch, hidden], in C order."""
        name = self.call.input(position)
        if name is None:
            return self.plan.recorder.constant(
                np.zeros((self.batch, self.hidden), np.float32)
            )
        return self.plan.contiguous(self.plan.view(name)).place(self.number)

    def _biases(self) -> View | None:
        """[1, columns], of the inputs and of the states together."""
        name = self.call.input(_BIAS)
        if name is None:
            return None
        recorder, columns = self.plan.recorder, _GATES * self.hidden
        both = self.plan.view(name).place(self.number)
        total, chain = recorder.temporary(F32, (columns,)), Formula("f32")
        parts = (both.slice((first,), (columns,)) for first in (0, columns))
        value = chain.step("Add", *map(chain.read, parts))
        chain.record(recorder, value, total, self.label)
        return total

    def _weights(self, position: int) -> _Weights:
        plan, call = self.plan, self.call
        codes = plan.view(_named(call, position)).place(self.number)
        scale = plan.view(_named(call, _SCALES[position])).place(self.number)
        named = plan.known(_named(call, _SCALES[position] + 1))
        if named.content is None:
            raise NotCompiled("zero points that are not known", call)
        zeros = np.ascontiguousarray(named.content[self.number]).reshape(-1)
        if scale.size == 1:
            scale = scale.reshape(()) or scale
        if (zeros == zeros[0]).all():
            return _Weights(codes, None, int(zeros[0]), scale)
        zero = plan.recorder.constant(zeros).broadcast_to(codes.shape)
        return _Weights(codes, zero, 0, scale)

    def _multiply(
        self,
        recorder: Recorder[Target],
        left: tuple[View, View, View],
        weights: _Weights,
        out: View,
        added: View | None,
    ) -> None:
        """Write the product, as floats, of codes and weights, plus what is *added*."""
        codes, scale, zero = left
        inner, columns = weights.codes.shape
        rows = codes.size // inner
        whole = (1, 1, rows, columns)

        def of_product(view: View, *sizes: int) -> View:
            found = view.reshape((1, 1, *sizes))
            assert found is not None, "in C order, or one repeated number or row"
            return found

        left_codes = of_product(codes, rows, inner)
        a = Factor(Codes(left_codes), Codes(zero.broadcast_to(left_codes.shape)))
        b_zero = weights.zero
        b = Factor(
            Codes(of_product(weights.codes, inner, columns)),
            None if b_zero is None else Codes(of_product(b_zero, inner, columns)),
            weights.offset,
        )
        chain = Formula("f32")
        total = chain.cast(chain.tile_of("i32"), "f32")
        scales = [each.broadcast_to(whole) for each in (scale, weights.scale)]
        value = chain.step("Mul", total, chain.step("Mul", *map(chain.read, scales)))
        if added is not None:
            value = chain.step("Add", value, chain.read(added.broadcast_to(whole)))
        after = chain.epilogue([value], [of_product(out, rows, columns)])
        tile = recorder.temporary(_I32, whole)
        coded_products(recorder).record_coded(
            recorder, a, b, tile, epilogue=after, label=self.label
        )

    def _record_equations(
        self, recorder: Recorder[Target], gates: View, state: View, cell: View
    ) -> None:
        """Write the state and the cell after a step."""
        chain, call, hidden = Formula("f32"), self.call, self.hidden
        clip = call.attributes.get("clip")
        into, out, forget, candidate = (
            chain.read(gates.slice((0, gate * hidden), state.shape))
            for gate in range(_GATES)
        )
        before = chain.read(cell)
        name = call.input(_PEEPHOLES)
        peepholes = None if name is None else self.plan.view(name).place(self.number)

        def seen(value: Number, cell: Number, number: int) -> Number:
            if peepholes is None:
                return value
            factor = chain.read(peepholes.slice((number * hidden,), (hidden,)))
            return chain.step("Add", value, chain.step("Mul", factor, cell))

        def active(number: int, value: Number) -> Number:
            if clip is not None:
                limits = chain.number(-float(clip)), chain.number(float(clip))
                value = chain.step("Clip", value, *limits)
            return chain.step(self.steps[number], value)

        into = active(0, seen(into, before, 0))
        if call.attributes.get("input_forget"):
            forget = chain.step("Sub", chain.number(1.0), into)
        else:
            forget = active(0, seen(forget, before, 2))
        kept = chain.step("Mul", forget, before)
        after = chain.step("Add", kept, chain.step("Mul", into, active(1, candidate)))
        out = active(0, seen(out, after, 1))
        result = chain.step("Mul", out, active(2, after))
        chain.record_all(recorder, [result, after], [state, cell], self.label)


def _named(call: Call, position: int) -> str:
    name = call.input(position)
    if name is None:
        raise NotCompiled(f"{call.op_type} lacks input {position}", call)
    return name


def _record(plan: Plan, call: Call) -> None:
    recorder = plan.recorder
    if recorder.target.flow is None:
        raise NotCompiled("steps are no part of what is around them", call)
    x = plan.contiguous(plan.view(_named(call, _X)))
    codes = (
        recorder.temporary(_U8, x.shape),
        recorder.temporary(F32, ()),
        recorder.temporary(_U8, ()),
    )
    record_range(recorder, x, codes, call.op_type)
    count, (time, batch, _) = len(_directions(call)), x.shape
    hidden = plan.known(_named(call, _R)).shape[1]
    wanted = [
        None if (name := call.output(position)) is None else plan.destination(name)
        for position in range(3)
    ]
    y = wanted[0]
    if y is None or not y.is_contiguous:
        y = recorder.temporary(F32, (time, count, batch, hidden))
    for number in range(count):
        of_direction = y.transpose((1, 0, 2, 3)).place(number)
        last = _Direction(plan, call, number).record(codes, of_direction)
        for state, target in zip(last, wanted[1:], strict=True):
            if target is not None:
                record_copy(recorder, state, target.place(number))
    if wanted[0] is not None and wanted[0] is not y:
        record_copy(recorder, y, wanted[0])


register(
    "com.microsoft.DynamicQuantizeLSTM",
    Operation(_record, _accepts, _check, any_output=True),
)
