"""Runs whose queued work is captured once, and replayed from then on.

What is replayed reads and writes the same addresses, so only runs on bound values are
captured, and a run on other ones starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.nodes import describe
from onnxplug.ep import CapturePhase, MemoryLocation
from onnxplug.errors import EpError, SessionRefused
from onnxplug.guard import blaming, ignoring_failures
from onnxplug.run.plan import Plan, RunPartition

if TYPE_CHECKING:
    from onnxplug.ep import CapturedGraph, Stream
    from onnxplug.run.compiled import CompiledGraph
    from onnxplug.run.device import Device
    from onnxplug.run.memory import Memory
    from onnxplug.run.run import Run
    from onnxplug.selection import ChosenEp


def capturing_device(
    chosen: Sequence[ChosenEp], compiled: CompiledGraph, memory: Memory
) -> Device | None:
    """The device whose work is captured; ``None`` if no EP's options ask for it.

    Raises:
        SessionRefused: the model has a part that cannot be captured.
    """
    capturing = [ep for ep in chosen if ep.provider.capture is not None]
    if not capturing:
        return None
    names = [ep.name for ep in capturing]
    location = capturing[0].provider.location
    device = memory.device(location)
    if device is None:
        raise SessionRefused(
            f"{names[0]} is to capture graphs, and {location} has no streams; turn the "
            "option off"
        )
    device.capture = capturing[0].provider.capture
    for unit in compiled.units:
        node = describe(unit.partition.nodes[0])
        if unit.candidate is None or unit.compiled is None:
            raise _refused(names, f"{node} is run by the host, body by body")
        if unit.candidate.name not in names:
            raise _refused(names, f"{node} is run by {unit.candidate.name}")
        home = unit.candidate.provider.location
        for name, place in (
            *_placed(unit.partition.inputs, unit.compiled.input_locations, home),
            *_placed(unit.partition.outputs, unit.compiled.output_locations, home),
        ):
            if place != location:
                raise _refused(
                    names, f"{unit.candidate.name} wants {name!r} of {node} in {place}"
                )
    made = {name for unit in compiled.units for name in unit.partition.outputs}
    for name in compiled.graph.outputs:
        if name not in made:
            raise _refused(names, f"output {name!r} is an input or a constant")
    return device


def _placed(
    names: Sequence[str],
    places: Sequence[MemoryLocation] | None,
    home: MemoryLocation,
) -> list[tuple[str, MemoryLocation]]:
    return list(zip(names, places or [home] * len(names), strict=True))


def _refused(names: Sequence[str], why: str) -> SessionRefused:
    return SessionRefused(
        f"{' and '.join(names)} is to capture graphs, for which all of the model must "
        f"run there: {why}; turn the option off, or see onnxplug explain for what is "
        "not claimed"
    )


class CapturedRun:
    """Runs of one plan on the same arrays: a warm-up, a capture, then replays.

    Args:
        arrays: the inputs and outputs.
    """

    def __init__(self, device: Device, arrays: Sequence[Any]) -> None:
        self._device = device
        self._hold: object = device.hold  # it outlives the session, with its binding
        self._arrays = list(arrays)  # kept, since the work has their addresses
        self._arrays_made: list[Any] = []
        self._is_warm = False
        self._graph: CapturedGraph | None = None

    def is_on(self, arrays: Sequence[Any]) -> bool:
        """Whether *arrays* are those of the runs."""
        return len(arrays) == len(self._arrays) and all(
            array is mine for array, mine in zip(arrays, self._arrays, strict=True)
        )

    @property
    def phase(self) -> CapturePhase | None:
        """What the next run is for; ``None`` once there is something to replay."""
        if self._graph is not None:
            return None
        return CapturePhase.CAPTURE if self._is_warm else CapturePhase.WARM_UP

    def run(
        self,
        plan: Plan,
        run: Run,
        bound: Sequence[Any],
        execute: Callable[[], Sequence[Any]],
    ) -> Sequence[Any]:
        """The results of the next run.

        Args:
            bound: the outputs, in which the results are once the run is captured.
            execute: executes *plan* on the arrays.
        """
        if self.phase is CapturePhase.WARM_UP:
            results = execute()
            self._is_warm = True
            return results
        stream = run.stream(self._device.location)
        assert stream is not None
        # partitions that may not overlap may not in replays either
        limits = [
            step.concurrency_limit
            for step in plan.steps
            if isinstance(step, RunPartition) and step.concurrency_limit is not None
        ]
        turn = object()
        try:
            for limit in limits:
                limit.begin(turn, stream, run.check)
            if self._graph is None:
                self._graph = self._capture(stream, bound, execute)
            with blaming(self._device.ep, "run", "CapturedGraph.launch"):
                self._graph.launch(stream)
            for limit in limits:
                limit.note(stream, run.record_at(self._device.location))
        finally:
            for limit in limits:
                limit.running.discard(turn)
                limit.wake()
        return bound

    def _capture(
        self,
        stream: Stream,
        bound: Sequence[Any],
        execute: Callable[[], Sequence[Any]],
    ) -> CapturedGraph:
        self._device.begin_capture(stream)
        try:
            for result, array in zip(execute(), bound, strict=True):
                if result is not array:  # an output that is bound to an input's array
                    self._device.copy(result, array, stream)
                    self._arrays_made.append(result)
        except BaseException:
            # what was captured is not wanted, and the stream is to be used again
            with ignoring_failures():
                self._device.end_capture(stream).close()
            raise
        return self._device.end_capture(stream)

    def close(self) -> None:
        """Release what was captured; its launches are done.

        Raises:
            EpError: the EP failed to.
        """
        graph, self._graph = self._graph, None
        self._arrays.clear()
        self._arrays_made.clear()
        try:
            if graph is not None:
                with blaming(self._device.ep, "close", "CapturedGraph.close"):
                    graph.close()
        finally:
            self._hold = None


def close_captured(runs: Sequence[CapturedRun]) -> None:
    """Close *runs*, whatever goes wrong in one of them; it is logged."""
    for run in runs:
        try:
            run.close()
        except EpError as error:
            import logging

            logging.getLogger("onnxplug.session").warning("%s", error)
