"""Executes a plan: one run, its streams and its cancellation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.control_flow import run_bodies
from onnxplug.ep import HOST, MemoryLocation, Stream
from onnxplug.errors import EpError, OnnxplugError, RunCancelled
from onnxplug.memory import Hop, Memory
from onnxplug.plan import CopyValue, Plan, RunBodies, RunPartition


class Run:
    """One run of a session, shared by the plans of its graph and bodies.

    Attributes:
        options: the run's config entries.
        deadline: ``time.monotonic()`` after which the run is cancelled.
        cancelled: set from any thread to end the run before its next step.
    """

    def __init__(
        self,
        memory: Memory,
        options: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.memory = memory
        self.options = dict(options or {})
        self.deadline = deadline
        self.cancelled = False
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
            self.cancelled = True
            raise RunCancelled("the run's deadline passed before it finished")
        if self.cancelled:
            raise RunCancelled("the run was cancelled before it finished")

    def copy(self, value: Any, hop: Hop) -> Any:
        """*value* at the hop's target; lists element by element."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self.copy(item, hop) for item in value]
        stream = self.stream(hop.stream_at)
        if stream is None or self._pending.get(id(value)) != hop.stream_at:
            # another device's copy to the host may still be filling it
            value = self.settle(value)
        if stream is not None:
            self._order(hop)
        target = self.memory.empty(hop.target, value, stream)
        hop.transfer.copy([(value, target)], stream)
        if stream is not None:
            # device memory is reused in the order of its own stream: no need to hold it
            held = self._in_flight.setdefault(hop.stream_at, [])
            if hop.source != hop.stream_at:
                held.append(value)
            if hop.target != hop.stream_at:
                held.append(target)
            if hop.target.host_accessible:
                self._pending[id(target)] = hop.stream_at
        return target

    def _order(self, hop: Hop) -> None:
        """Let the copy see what earlier work on the other device has made."""
        other = hop.source if hop.stream_at == hop.target else hop.target
        stream, before = self.stream(hop.stream_at), self._streams.get(other)
        if stream is None or before is None or before is stream:
            return
        if self.memory.ep_at(other) == self.memory.ep_at(hop.stream_at):
            stream.wait(before)
        else:
            self.synchronize(other)

    def settle(self, value: Any) -> Any:
        """*value*, waited for when a queued copy still fills it."""
        if self._pending and value is not None:
            if isinstance(value, list):
                return [self.settle(item) for item in value]
            location = self._pending.get(id(value))
            if location is not None:
                self.synchronize(location)
        return value

    def synchronize(self, location: MemoryLocation) -> None:
        """Wait for the work queued at *location*; its failure is told as the EP's."""
        stream = self._streams.get(location)
        if stream is None:
            return
        try:
            stream.synchronize()
        except OnnxplugError:
            raise
        # work of an EP may raise anything; it is reported as the EP's failure
        except Exception as error:
            ep = self.memory.ep_at(location)
            raise EpError(
                f"{ep} failed in run: {type(error).__name__}: {error}",
                ep=ep,
                stage="run",
            ) from error
        self._in_flight.pop(location, None)
        self._pending = {
            key: place for key, place in self._pending.items() if place != location
        }

    def finish(self) -> None:
        """Wait for all queued work, and release the streams."""
        error: BaseException | None = None
        for location, stream in self._streams.items():
            if stream is None:
                continue
            # every stream is waited for and closed, even if an earlier one failed
            try:
                self.synchronize(location)
            except BaseException as raised:  # noqa: BLE001
                error = error or raised
            finally:
                stream.close()
        self._streams.clear()
        self._pending.clear()
        self._in_flight.clear()
        if error is not None:
            raise error


class _Context:
    """A run as one EP sees it; see :class:`onnxplug.ep.RunContext`."""

    __slots__ = ("run", "stream")

    def __init__(self, run: Run, stream: Stream | None) -> None:
        self.run = run
        self.stream = stream

    @property
    def options(self) -> Mapping[str, str]:
        return self.run.options

    @property
    def deadline(self) -> float | None:
        return self.run.deadline

    @property
    def cancelled(self) -> bool:
        run = self.run
        return run.cancelled or (
            run.deadline is not None and time.monotonic() > run.deadline
        )


def execute(plan: Plan, inputs: Sequence[Any], run: Run) -> list[Any]:
    """The outputs of *plan* on the host, for *inputs* in the plan's order."""
    slots = plan.template.copy()
    slots[1 : len(inputs) + 1] = inputs
    for step in plan.steps:
        run.check()
        match step:
            case RunPartition():
                results = _run_partition(step, slots, run)
                for slot, result in zip(step.outputs, results, strict=True):
                    slots[slot] = result
            case CopyValue():
                slots[step.target] = run.copy(slots[step.source], step.hop)
            case RunBodies():
                _run_control_flow(step, slots, run)
        for slot in step.frees:
            slots[slot] = None
    return [run.settle(slots[slot]) for slot in plan.outputs]


def _run_partition(step: RunPartition, slots: list[Any], run: Run) -> Sequence[Any]:
    arguments = [slots[slot] for slot in step.inputs]
    if step.location == HOST or step.location.host_accessible:
        arguments = [run.settle(argument) for argument in arguments]
    stream = run.stream(step.location)
    context = _Context(run, stream)
    nothing_bound = [None] * len(step.outputs)
    if step.turnstile is None:
        return run_partition(step, arguments, nothing_bound, context)
    with step.turnstile:
        results = run_partition(step, arguments, nothing_bound, context)
        # the next run may start only when this one's work is done
        run.synchronize(step.location)
        return results


def run_partition(
    step: RunPartition,
    arguments: Sequence[Any],
    outputs: Sequence[Any | None],
    context: _Context | None,
) -> Sequence[Any]:
    """Call the EP, its failure told as such."""
    try:
        return step.run(arguments, outputs, context)
    except OnnxplugError:
        raise
    except Exception as error:
        raise EpError(
            f"{step.ep} failed in run: {type(error).__name__}: {error}",
            ep=step.ep,
            stage="run",
        ) from error


def _run_control_flow(step: RunBodies, slots: list[Any], run: Run) -> None:
    inputs = [run.settle(slots[slot]) for slot in step.inputs]

    def run_body(attribute: str, arguments: Sequence[Any]) -> list[Any]:
        captured = [run.settle(slots[slot]) for slot in step.captured[attribute]]
        return execute(step.bodies[attribute], [*arguments, *captured], run)

    results = run_bodies(step.node, inputs, run_body)
    for slot, result in zip(step.outputs, results, strict=False):
        if slot:
            slots[slot] = result
