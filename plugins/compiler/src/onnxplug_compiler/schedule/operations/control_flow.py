"""If, Loop and Scan whose bodies are compiled, and whose values keep their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.buffers import Address, Buffer, Check, Input, Output
from onnxplug_compiler.ir.flow import Flow, Move, Turns
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.bodies import (
    NUMBER,
    BatchCall,
    Body,
    ControlFlowCall,
    Scanned,
    choose,
    rounds,
)
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Operation,
    Plan,
    register,
)
from onnxplug_compiler.schedule.planned import Result

_BOOL: Final = np.dtype(np.bool_)


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if not isinstance(call, ControlFlowCall) or not target.elements(call.op_type):
        return f"{call.op_type} is not compiled"
    reasons = (body.why_not(target) for body in call.bodies.values())
    return next(filter(None, reasons), None)


def _known(plan: Plan, call: ControlFlowCall) -> list[Abstract | None]:
    """What is known of a call's inputs."""
    found: list[Abstract | None] = []
    for name in call.inputs:
        value = None if name is None else plan.known(name)
        if value is not None:
            value = Abstract(value.dtype, value.shape, value.content, value.varies)
        found.append(value)
    return found


def _flow(plan: Plan) -> Flow:
    flow = plan.recorder.target.flow
    assert flow is not None
    return flow


class _Part:
    """Commands that are to be done within one: a body, as a plan has it.

    Args:
        taken: what is known of what the body takes.

    Attributes:
        recorder: collects them.
        inputs: where inputs of the body are, by name; those that it only gives out,
            too.
        outputs: where its outputs are written, by name.
    """

    def __init__(self, plan: Plan, body: Body, taken: Sequence[Abstract]) -> None:
        self.plan = plan
        self.body = body
        self.recorder = plan.recorder.part()
        self.inputs: dict[str, View] = {}
        self.outputs: dict[str, View] = {}
        try:
            self._planned = plan.planned(body.plans, taken)
        except NotCompiled as refusal:
            raise body.refused(refusal) from refusal
        self._values: dict[str, Abstract | Result] = dict(
            zip(body.inputs, taken, strict=True)
        )
        self._values |= zip(body.outputs, self._planned.results, strict=True)
        self._read = {
            body.inputs[buffer.position]
            for placed in self._planned.work.placed
            for buffer in placed.buffers
            if type(buffer) is Input
        }
        self._copies: list[tuple[str, View]] = []
        for name in body.captures:
            if name in self._read or name in body.results:
                self.inputs[name] = plan.contiguous(plan.view(name))

    def takes(self, name: str) -> bool:
        """Whether an input is read, or given out."""
        return name in self._read or name in self.body.results

    def place(self, name: str) -> View:
        """A place for an input, if it has none yet."""
        return self.inputs.setdefault(name, self._temporary(name))

    def result(self, name: str) -> View:
        """A place that has a result when the commands are done."""
        place = self.outputs.get(name)
        if place is None:
            place = self.outputs[name] = self._temporary(name)
            if name not in self.body.outputs:
                self._copies.append((name, place))
        return place

    def write(self, name: str, target: View) -> None:
        """Write a result to *target*, in C order."""
        if name in self.body.outputs and name not in self.outputs:
            self.outputs[name] = target
        else:
            self._copies.append((name, target))

    def _temporary(self, name: str) -> View:
        value = self._values[name]
        return self.plan.recorder.temporary(value.dtype, value.shape)

    def commands(self) -> Sequence[Any]:
        """All commands, once everything has its place."""
        places: dict[Buffer, Address] = {}
        body, recorder, work = self.body, self.recorder, self._planned.work
        for placed in work.placed:
            for buffer in placed.buffers:
                if type(buffer) is Input:
                    view = self.inputs[body.inputs[buffer.position]]
                    places[buffer] = view.address
                elif type(buffer) is Output:
                    view = self.outputs[body.outputs[buffer.position]]
                    places[buffer] = view.address
        try:
            recorder.commands += _flow(self.plan).moved(recorder, work, places)
        except ValueError as error:
            raise_interruption(error)
            raise NotCompiled(str(error)) from error
        recorder.checks += [
            Check(check.flag, check.error, recorder.nodes) for check in work.checks
        ]
        for name, result in zip(body.outputs, self._planned.results, strict=True):
            if result.content is not None:
                content = recorder.constant(result.content)
                record_copy(recorder, content, self.outputs[name])
        for name, target in self._copies:
            source = self.outputs[name] if name in body.outputs else self.inputs[name]
            record_copy(recorder, source, target)
        return recorder.commands


class _Target:
    """Where a result of a call is written, in C order.

    Attributes:
        view: there.
    """

    def __init__(self, plan: Plan, name: str | None, value: Abstract) -> None:
        self._plan = plan
        self._wanted = wanted = None if name is None else plan.destination(name)
        self.view: Final[View] = (
            wanted
            if wanted is not None and wanted.is_contiguous
            else plan.recorder.temporary(value.dtype, value.shape)
        )

    def close(self) -> None:
        """Record what brings the result to where it is wanted."""
        if self._wanted is not None and self._wanted is not self.view:
            record_copy(self._plan.recorder, self.view, self._wanted)


def _record_if(plan: Plan, call: Call) -> None:
    assert isinstance(call, ControlFlowCall) and call.inputs[0] is not None
    known = _known(plan, call)
    chosen, results = choose(call, known)
    targets = [
        _Target(plan, name, value)
        for name, value in zip(call.outputs, results, strict=False)
    ]
    branches: list[Sequence[Any]] = []
    bodies = (call.bodies["then_branch"], call.bodies["else_branch"])
    for body in bodies if chosen is None else (chosen,):
        part = _Part(plan, body, call.captured(body, known))
        for number, name in enumerate(body.results):
            if number < len(targets):
                part.write(name, targets[number].view)
            else:
                part.result(name)
        branches.append(part.commands())
    if chosen is not None:
        plan.recorder.commands += branches[0]
    else:
        condition = _scalar(plan, call, 0, _BOOL)
        assert condition is not None
        _flow(plan).record_choice(plan.recorder, condition, *branches)
    for target in targets:
        target.close()


def _scalar(
    plan: Plan, call: ControlFlowCall, position: int, dtype: np.dtype[Any]
) -> View | None:
    """The only element of an input; ``None`` for one that is left out."""
    name = call.inputs[position]
    if name is None:
        return None
    view = plan.view(name)
    if view.dtype != dtype:
        raise NotCompiled(f"input {position} of {call.op_type} is {view.dtype}", call)
    return view


class _Rounds:
    """Records a Loop or Scan."""

    def __init__(self, plan: Plan, call: ControlFlowCall) -> None:
        self.plan, self.call = plan, call
        self.found = rounds(call, _known(plan, call))
        self.part = _Part(plan, self.found.body, self.found.taken)
        self.first: list[Move] = []
        self.before: list[Move] = []
        self.after: list[Move] = []
        self.targets: list[_Target] = []
        self.copies: list[tuple[View, View]] = []

    def record(self) -> None:
        call, found, recorder = self.call, self.found, self.plan.recorder
        for number in range(found.states):
            self._take_state(number)
        for number, each in enumerate(found.scanned):
            self._take_slices(number, each)
        for number, each in enumerate(found.gathered):
            self._gather(number, each)
        turns = self._turns()
        label = call.op_type
        if found.turns is not None:
            most = "≤" if isinstance(call, BatchCall) else ""
            label = f"{label} {most}{found.turns}×"
        _flow(self.plan).record_turns(
            recorder, turns, self.part.commands(), count=found.turns, label=label
        )
        for target in self.targets:
            target.close()
        for source, view in self.copies:
            record_copy(recorder, source, view)

    def _turns(self) -> Turns:
        call, found, part = self.call, self.found, self.part
        body = found.body
        limit = given = again = number = condition = start = None
        if found.results_lead:
            limit = _scalar(self.plan, call, 0, NUMBER.dtype)
            if isinstance(call, BatchCall):
                start = _scalar(self.plan, call, 1, NUMBER.dtype)
            else:
                given = _scalar(self.plan, call, 1, _BOOL)
            if found.ends_early:
                again = part.result(body.results[0])
            if part.takes(body.inputs[0]):
                number = part.place(body.inputs[0])
            if part.takes(body.inputs[1]):
                condition = part.place(body.inputs[1])
        else:
            limit = self.part.recorder.constant(np.array(found.turns, NUMBER.dtype))
        for name in body.results:
            part.result(name)  # of those that nobody wants
        return Turns(
            limit,
            given,
            again,
            number,
            condition,
            self.first,
            self.before,
            self.after,
            start,
            self._done(again),
        )

    def _done(self, again: View | None) -> View | None:
        """Where the number of turns is written, if it is a result."""
        call, recorder = self.call, self.plan.recorder
        if not isinstance(call, BatchCall):
            return None
        turns, another = call.outputs[-2:]
        assert turns is not None and another is not None
        if again is None:
            again = recorder.constant(np.array(True))
        self.copies.append((again, self.plan.destination(another)))
        return self.plan.destination(turns)

    def _take_state(self, number: int) -> None:
        call, found, part, plan = self.call, self.found, self.part, self.plan
        place = found.lead + number
        outer, name = call.inputs[place], found.body.inputs[place]
        assert outer is not None
        result = found.body.results[found.results_lead + number]
        wanted = call.outputs[number] if number < len(call.outputs) else None
        given = plan.contiguous(plan.view(outer))
        if result == name:  # in all turns
            part.inputs[name] = given
            if wanted is not None:
                self.copies.append((given, plan.destination(wanted)))
            return
        target = _Target(plan, wanted, found.taken[place])
        self.targets.append(target)
        inside = part.inputs[name] = target.view
        self.first.append(Move(inside.address, given.address, inside.nbytes))
        made = part.result(result)
        self.after.append(Move(inside.address, made.address, inside.nbytes))

    def _take_slices(self, number: int, scanned: Scanned) -> None:
        call, found, part, plan = self.call, self.found, self.part, self.plan
        place = found.lead + found.states + number
        outer, name = call.inputs[place], found.body.inputs[place]
        assert outer is not None
        if not part.takes(name):
            return
        whole = plan.contiguous(_turns_first(plan.view(outer), scanned.axis))
        inside = part.place(name)
        start, step = self._steps(inside, scanned)
        source = Address(whole.buffer, whole.offset + start)
        self.before.append(
            Move(inside.address, source, inside.nbytes, source_step=step)
        )

    def _gather(self, number: int, scanned: Scanned) -> None:
        call, found, part, plan = self.call, self.found, self.part, self.plan
        position = found.states + number
        name = call.outputs[position] if position < len(call.outputs) else None
        if name is None:
            return
        made = part.result(found.body.results[found.results_lead + position])
        wanted = _turns_first(plan.destination(name), scanned.axis)
        whole = wanted
        if not wanted.is_contiguous:
            whole = plan.recorder.temporary(wanted.dtype, wanted.shape)
            self.copies.append((whole, wanted))
        start, step = self._steps(made, scanned)
        target = Address(whole.buffer, whole.offset + start)
        self.after.append(Move(target, made.address, made.nbytes, target_step=step))

    def _steps(self, one: View, scanned: Scanned) -> tuple[int, int]:
        """Bytes from the first place to that of the first turn, and from turn to
        turn."""
        if not scanned.backward:
            return 0, one.nbytes
        return max(0, (self.found.turns or 0) - 1) * one.nbytes, -one.nbytes


def _turns_first(view: View, axis: int) -> View:
    """*view* with an axis in front of the others."""
    rest = [each for each in range(len(view.shape)) if each != axis]
    return view.transpose((axis, *rest))


def _record_rounds(plan: Plan, call: Call) -> None:
    assert isinstance(call, ControlFlowCall)
    _Rounds(plan, call).record()


register("If", Operation(_record_if, _accepts))
register("Loop Scan", Operation(_record_rounds, _accepts))
