"""Executes a plan: one run, its streams and its cancellation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep import HOST, MemoryLocation, Stream, describe
from onnxplug.ep.arrays import check_bound
from onnxplug.ep.profiler import type_shapes
from onnxplug.errors import OutOfMemory, RunCancelled
from onnxplug.guard import blaming
from onnxplug.options import RunOptions
from onnxplug.run.aliasing import overlap
from onnxplug.run.control_flow import run_bodies
from onnxplug.run.memory import Hop, Memory
from onnxplug.run.plan import CopyValue, Plan, RunBodies, RunPartition, Step
from onnxplug.run.profiling import Profile

if TYPE_CHECKING:
    from onnxplug.run.entries import OptionsByEp

_PATIENCE: Final = 0.1
"""Seconds to wait for another run before looking whether this one is cancelled."""


class Run:
    """One run of a session, shared by the plans of its graph and bodies.

    Attributes:
        options: what the run's config entries say to each EP.
        deadline: ``time.monotonic()`` after which the run is cancelled.
        profile: the session's trace, if there is one.
    """

    def __init__(
        self,
        memory: Memory,
        options: OptionsByEp,
        given: RunOptions | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.memory = memory
        self.profile = profile
        self.options = options
        self._given = given
        timeout = given.timeout if given else None
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self._streams: dict[MemoryLocation, Stream | None] = {}
        # arrays that queued copies read or write and that no stream keeps in order;
        # they must outlive the copies
        self._in_flight: dict[MemoryLocation, list[Any]] = {}
        self._pending: dict[int, MemoryLocation] = {}

    def stream(self, location: MemoryLocation) -> Stream | None:
        """The run's stream on *location*, made when first asked for."""
        if location not in self._streams:
            self._streams[location] = self.memory.create_stream(location)
        return self._streams[location]

    def check(self) -> None:
        """Raise :class:`RunCancelled` when the run should go no further."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise RunCancelled("the run's timeout passed before it finished")
        if self.cancelled:
            raise RunCancelled(
                "Exiting due to terminate flag being set to true: the run was "
                "cancelled before it finished"
            )

    @property
    def cancelled(self) -> bool:
        """Whether the run's options say to terminate it."""
        return self._given is not None and self._given.is_terminated

    def copy(self, value: Any, hop: Hop, into: Any = None) -> Any:
        """*value* at the hop's target; lists element by element.

        *into* is an array there to copy to; by default a new one is made.
        """
        if value is None:
            return None
        if isinstance(value, list):
            return [self.copy(item, hop) for item in value]
        stream = self.stream(hop.stream_at)
        if stream is None or self._pending.get(id(value)) != hop.stream_at:
            # another device's copy to the host may still be filling it
            value = self.wait_for(value)
        if stream is not None:
            self._order(hop)
        if into is None:
            target = self.memory.empty(hop.target, value, stream)
        else:
            check_bound("an output", value, into)
            target = into
        with blaming(self.memory.ep_at(hop.stream_at), "run"):
            hop.transfer.copy([(value, target)], stream)
        if stream is not None:
            # device memory is reused in the order of its own stream: no need to hold it
            kept = self._in_flight.setdefault(hop.stream_at, [])
            if hop.source != hop.stream_at:
                kept.append(value)
            if hop.target != hop.stream_at:
                kept.append(target)
            if hop.target.host_accessible:
                self._pending[id(target)] = hop.stream_at
        return target

    def _order(self, hop: Hop) -> None:
        """Let the copy see what earlier work on the other device has made."""
        other = hop.source if hop.stream_at == hop.target else hop.target
        stream, before = self.stream(hop.stream_at), self._streams.get(other)
        if stream is None or before is None or before is stream:
            return
        ep = self.memory.ep_at(hop.stream_at)
        if self.memory.ep_at(other) == ep:
            with blaming(ep, "run"):
                stream.wait(before)
        else:
            self.synchronize(other)

    def wait_for(self, value: Any) -> Any:
        """*value*, waited for when a queued copy still fills it."""
        if self._pending and value is not None:
            if isinstance(value, list):
                return [self.wait_for(item) for item in value]
            location = self._pending.get(id(value))
            if location is not None:
                self.synchronize(location)
        return value

    def synchronize(self, location: MemoryLocation) -> None:
        """Wait for the work queued at *location*, whose failure is the EP's."""
        stream = self._streams.get(location)
        if stream is None:
            return
        waiting: AbstractContextManager[None] = contextlib.nullcontext()
        if self.profile is not None:
            waiting = self.profile.stage(f"wait for {location}", "Wait")
        with waiting, blaming(self.memory.ep_at(location), "run"):
            stream.synchronize()
        self._in_flight.pop(location, None)
        self._pending = {
            key: place for key, place in self._pending.items() if place != location
        }

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        if error is None:
            self.finish()
            return
        # the caller gets what went wrong first
        with contextlib.suppress(Exception):
            self.finish()

    def finish(self) -> None:
        """Wait for all queued work, and release the streams."""
        # every stream is waited for and closed, even if an earlier one failed
        with contextlib.ExitStack() as ends:
            ends.callback(self._forget)
            for location, stream in reversed(self._streams.items()):
                if stream is not None:
                    ends.callback(self._close, location, stream)
                    ends.callback(self.synchronize, location)

    def _close(self, location: MemoryLocation, stream: Stream) -> None:
        with blaming(self.memory.ep_at(location), "close"):
            stream.close()

    def _forget(self) -> None:
        self._streams.clear()
        self._pending.clear()
        self._in_flight.clear()


class _Context:
    """A run as one EP sees it; see :class:`onnxplug.ep.RunContext`."""

    __slots__ = ("options", "profiler", "run", "stream")

    def __init__(self, run: Run, stream: Stream | None, ep: str) -> None:
        self.run = run
        self.stream = stream
        self.options = run.options[ep]
        self.profiler = None if run.profile is None else run.profile.of(ep)

    @property
    def deadline(self) -> float | None:
        return self.run.deadline

    @property
    def cancelled(self) -> bool:
        run = self.run
        return run.cancelled or (
            run.deadline is not None and time.monotonic() > run.deadline
        )


def execute(
    plan: Plan,
    inputs: Sequence[Any],
    run: Run,
    bound: Sequence[Any | None] | None = None,
) -> list[Any]:
    """The outputs of *plan*, for *inputs* in the plan's order.

    Args:
        bound: for each output an array to fill, where the plan leaves the output, or
            ``None``.  The caller fills those that are not among the results: outputs
            that no step makes, and arrays that share memory with an input, which is
            to be read until the run ends.

    Raises:
        OutputMismatch: a bound array has not the output's shape or element type.
    """
    slots = plan.template.copy()
    wanted = {
        slot: array
        for slot, array in zip(plan.outputs, bound or (), strict=bool(bound))
        if array is not None and not any(overlap(array, value) for value in inputs)
    }
    slots[1 : len(inputs) + 1] = inputs
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
            slots[step.target] = run.copy(slots[step.source], step.hop, into)
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
                "queued": run.stream(step.hop.stream_at) is not None,
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


def direct_call(plan: Plan) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    """A function for a plan that is one partition on the host, if it is one.

    Nothing is looked up or decided in it: the EP is called on the checked inputs.
    """
    if len(plan.steps) != 1:
        return None
    step = plan.steps[0]
    fed = range(1, len(plan.inputs) + 1)
    if (
        not isinstance(step, RunPartition)
        or step.location != HOST
        or step.semaphore is not None
        or not set(step.inputs) <= set(fed)
        or not set(plan.outputs) <= set(step.outputs)
    ):
        return None
    run = step.run
    if (step.inputs, step.outputs) == (tuple(fed), plan.outputs):
        return run
    taken = [slot - 1 for slot in step.inputs]
    given = [step.outputs.index(slot) for slot in plan.outputs]

    def run_rearranged(inputs: Sequence[Any]) -> Sequence[Any]:
        results = run([inputs[number] for number in taken])
        return [results[number] for number in given]

    return run_rearranged


def _run_partition(
    step: RunPartition, slots: list[Any], run: Run, wanted: Mapping[int, Any]
) -> Sequence[Any]:
    # an EP of a device may want some of its inputs on the host, and these are ready
    arguments = [run.wait_for(slots[slot]) for slot in step.inputs]
    stream = run.stream(step.location)
    context = _Context(run, stream, step.ep)
    outputs = [wanted.get(slot) for slot in step.outputs]
    if step.semaphore is None:
        return _call(step, arguments, outputs, context)
    while not step.semaphore.acquire(timeout=_PATIENCE):
        run.check()
    try:
        results = _call(step, arguments, outputs, context)
    except BaseException:
        with contextlib.suppress(Exception):  # the caller gets the first
            run.synchronize(step.location)
        raise
    else:
        # the next run may start only when this one's work is done
        run.synchronize(step.location)
        return results
    finally:
        step.semaphore.release()


def _call(
    step: RunPartition,
    arguments: Sequence[Any],
    outputs: Sequence[Any | None],
    context: _Context,
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
        given, plan = [*arguments, *captured], step.bodies[attribute]
        if run.profile is None:
            return execute(plan, given, run)
        with run.profile.stage(f"{describe(step.node)}.{attribute}", "Body"):
            return execute(plan, given, run)

    try:
        results = run_bodies(step.node, inputs, run_body)
    except MemoryError as error:
        raise OutOfMemory.of(
            error,
            f"{describe(step.node)}, for what its iterations give,",
            node=step.node.name or describe(step.node),
        ) from error
    for slot, result in zip(step.outputs, results, strict=False):
        if slot:
            slots[slot] = result
