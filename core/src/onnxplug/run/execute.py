"""Executes a plan, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.authoring.control_flow import no_items, run_bodies
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.traces import type_shapes
from onnxplug.ep import HOST, MemoryLocation
from onnxplug.errors import OutOfMemory, RunCancelled
from onnxplug.guard import GuardedRun, ignoring_failures
from onnxplug.run.context import Context
from onnxplug.run.plan import (
    CopyValue,
    Plan,
    RunBodies,
    RunPartition,
    Step,
    fillable,
    only_partition,
)
from onnxplug.run.run import Run

if TYPE_CHECKING:
    from onnxplug.ep import Node, RunContext


def execute(
    plan: Plan,
    inputs: Sequence[Any],
    run: Run,
    bound: Sequence[Any | None] | None = None,
    captured: Sequence[Any] = (),
) -> list[Any]:
    """The outputs of *plan*, for *inputs* in the plan's order.

    Those on the host are there; others may still be queued.

    Args:
        captured: what a body captures, in the plan's order.
        bound: for each output an array to fill, where the plan leaves the output, or
            ``None``.  The caller fills those that are not among the results: outputs
            that no step makes, and arrays that share memory with an input, which is
            to be read until the run ends, where the step does not take care of that.

    Raises:
        OutputMismatch: a bound array has not the output's shape or element type.
    """
    slots = plan.template.copy()
    given = [
        (slot, array)
        for slot, array in zip(plan.outputs, bound or (), strict=bool(bound))
        if array is not None
    ]
    wanted = dict(itertools.compress(given, fillable(plan, given, inputs)))
    slots[1 : len(inputs) + 1] = inputs
    for slot, value in zip(plan.captured_slots, captured, strict=True):
        slots[slot] = value
    perform = _perform if run.profile is None else _perform_recorded
    for step in plan.steps:
        run.check()
        perform(step, slots, run, wanted)
        for slot in step.frees:
            slots[slot] = None
    return [run.wait_for(slots[slot]) for slot in plan.outputs]


def _perform(step: Step, slots: list[Any], run: Run, wanted: Mapping[int, Any]) -> None:
    match step:
        case RunPartition():
            results = _run_partition(step, slots, run, wanted)
            for slot, result in zip(step.outputs, results, strict=True):
                slots[slot] = result
        case CopyValue():
            into = wanted.get(step.target)
            slots[step.target] = run.copy(
                slots[step.source], step.hop, into, pinned=not step.is_result
            )
        case RunBodies():
            _run_control_flow(step, slots, run)


def _perform_recorded(
    step: Step, slots: list[Any], run: Run, wanted: Mapping[int, Any]
) -> None:
    """As :func:`_perform`, and the session's trace has it."""
    assert run.profile is not None
    details: dict[str, Any]
    match step:
        case RunPartition():
            name, category = f"partition {step.number}", "Partition"
            shapes = type_shapes(slots[slot] for slot in step.inputs)
            details = {"provider": step.ep, "input_type_shape": shapes}
        case CopyValue():
            name, category = f"copy {step.name}", "Copy"
            details = {
                "source": str(step.hop.source),
                "target": str(step.hop.target),
                "input_type_shape": type_shapes([slots[step.source]]),
                # what is queued is waited for later
                "queued": run.stream(step.hop.device.location) is not None,
            }
        case RunBodies():
            name, category = step.node.name or describe(step.node), "Node"
            details = {
                "op_name": step.node.op_type,
                "node_index": step.node.index,
                "provider": "host",
            }
    with run.profile.stage(name, category, details):
        _perform(step, slots, run, wanted)


def direct_call(plan: Plan) -> GuardedRun | None:
    """A function for a plan that is one partition on the host, if it is one.

    Nothing is looked up or decided in it: the EP is called on the checked inputs.
    """
    step = only_partition(plan, HOST)
    if step is None:
        return None
    run, fed = step.run, tuple(range(1, len(plan.inputs) + 1))
    if (step.inputs, step.outputs) == (fed, plan.outputs):
        return run
    taken = [slot - 1 for slot in step.inputs]
    given = [step.outputs.index(slot) for slot in plan.outputs]
    unbound = (None,) * len(given)

    def run_rearranged(
        inputs: Sequence[Any],
        outputs: Sequence[Any | None] = unbound,
        context: RunContext | None = None,
        /,
    ) -> Sequence[Any]:
        arguments = [inputs[number] for number in taken]
        if outputs is unbound:
            results = run(arguments)
        else:
            wanted = dict(zip(given, outputs, strict=True))
            bound = [wanted.get(number) for number in range(len(step.outputs))]
            results = run(arguments, bound, context)
        return [results[number] for number in given]

    return run_rearranged


def _run_partition(
    step: RunPartition, slots: list[Any], run: Run, wanted: Mapping[int, Any]
) -> Sequence[Any]:
    # an EP of a device may want some of its inputs on the host, and these are ready
    arguments = [run.wait_for(slots[slot]) for slot in step.inputs]
    stream = run.stream(step.location)
    context = Context(run, stream, step.ep)
    outputs = [wanted.get(slot) for slot in step.outputs]
    # captured work runs when it is launched, and takes its turn then
    is_captured = run.is_capturing
    if step.concurrency_limit is None or is_captured:
        results = _call(step, arguments, outputs, context)
    else:
        results = _call_in_turn(step, arguments, outputs, context)
    if stream is not None and step.location.host_accessible and not is_captured:
        run.fills(results, step.location)
    return results


def _call_in_turn(
    step: RunPartition,
    arguments: Sequence[Any],
    outputs: Sequence[Any | None],
    context: Context,
) -> Sequence[Any]:
    limit, run, stream = step.concurrency_limit, context.run, context.stream
    assert limit is not None
    turn = object()
    try:
        limit.begin(turn, stream, run.check)
        try:
            results = _call(step, arguments, outputs, context)
            if stream is not None:
                limit.note(stream, run.record_at(step.location))
        except BaseException:
            with ignoring_failures():  # the caller gets the first
                run.synchronize(step.location)
            raise
        return results
    finally:
        limit.running.discard(turn)
        limit.wake()


def _call(
    step: RunPartition,
    arguments: Sequence[Any],
    outputs: Sequence[Any | None],
    context: Context,
) -> Sequence[Any]:
    try:
        return step.run(arguments, outputs, context)
    except RunCancelled:
        context.run.check()  # which knows why it was cancelled
        raise


def _run_control_flow(step: RunBodies, slots: list[Any], run: Run) -> None:
    inputs = [run.wait_for(slots[slot]) for slot in step.inputs]

    def run_body(attribute: str, arguments: Sequence[Any]) -> list[Any]:
        run.check()  # here too, since a body may have no step
        captured = [run.wait_for(slots[slot]) for slot in step.captured[attribute]]
        plan = step.bodies[attribute]
        if run.profile is None:
            return execute(plan, arguments, run, captured=captured)
        with run.profile.stage(f"{describe(step.node)}.{attribute}", "Body"):
            return execute(plan, arguments, run, captured=captured)

    try:
        results = run_bodies(
            step.node, inputs, run_body, step.placement, _DeviceArrays(run)
        )
    except MemoryError as error:
        raise OutOfMemory.of(
            error,
            f"{describe(step.node)}, for what its iterations give,",
            node=step.node.name or describe(step.node),
        ) from error
    for slot, result in zip(step.outputs, results, strict=False):
        if slot:
            slots[slot] = result


class _DeviceArrays:
    """See :class:`onnxplug.authoring.control_flow.Arrays`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def no_items(self, node: Node, name: str, axis: int, at: MemoryLocation) -> Any:
        nothing = no_items(node, name, axis)
        return nothing if at == HOST else self.put(nothing, at)

    def stack(self, items: Sequence[Any], axis: int, at: MemoryLocation) -> Any:
        device, stream = self._run.memory.device(at), self._run.stream(at)
        assert device is not None
        stacked = device.stack(items, axis, stream)
        if stacked is not NotImplemented:
            return stacked
        return self.put(np.stack([self._fetch(item, at) for item in items], axis), at)

    def take(self, array: Any, axis: int, index: int, at: MemoryLocation) -> Any:
        device, stream = self._run.memory.device(at), self._run.stream(at)
        assert device is not None
        part = device.take(array, axis, index, stream)
        if part is not NotImplemented:
            return part
        return self.put(np.take(self._fetch(array, at), index, axis), at)

    def put(self, array: Any, at: MemoryLocation) -> Any:
        return self._along(array, HOST, at)

    def _fetch(self, array: Any, at: MemoryLocation) -> Any:
        return self._run.wait_for(self._along(array, at, HOST))

    def _along(self, array: Any, source: MemoryLocation, target: MemoryLocation) -> Any:
        for hop in self._run.memory.route(source, target):
            array = self._run.copy(array, hop)
        return array
