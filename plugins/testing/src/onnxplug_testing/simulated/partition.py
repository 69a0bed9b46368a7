"""A partition on a simulated device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug_testing.simulated.arrays import data_type, location_of
from onnxplug_testing.simulated.capability import operator
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.image import write_model
from onnxplug_testing.simulated.kernels import KERNELS, Kernel, find_kernel
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.queues import Point
from onnxplug_testing.simulated.storage import HostArray, Storage
from onnxplug_testing.simulated.streams import SimulatedStream

_Compute: TypeAlias = Callable[[Sequence[HostArray]], Sequence[HostArray]]


class SimulatedPartition(ep.CompiledPartition):
    """A partition on a simulated device.

    With a stream ``run`` queues the computation, and returns arrays that hold poison
    until the stream comes to it.  Two cases cannot be queued, and synchronise first as
    on a real device: shapes that depend on values, and outputs left on the host.

    Attributes:
        closed: it was.
        is_queued: its work can be queued, and captured.
        in_words: what it is, for messages.
    """

    input_locations: Sequence[ep.MemoryLocation]
    output_locations: Sequence[ep.MemoryLocation]

    def __init__(
        self,
        partition: ep.Partition,
        knobs: Knobs,
        context: SimulatedContext,
        model: Any = None,
    ) -> None:
        self.closed = False
        self._partition = partition
        self._model = model
        self.max_concurrent_runs = knobs.max_concurrent_runs
        self._knobs = knobs
        self._context = context
        self._running: list[object] = []
        self._last: Point | None = None
        self._is_warm = False
        self._inputs = tuple(partition.inputs)
        self._outputs = tuple(partition.outputs)
        locations = value_locations(partition, knobs, context)
        assert locations.inputs is not None
        assert locations.outputs is not None
        self.input_locations = locations.inputs
        self.output_locations = locations.outputs
        self._static = tuple(
            shape if _is_static(shape) else None
            for shape in (partition.value(name).shape for name in self._inputs)
        )
        nodes = partition.nodes if model is None else model.graph.node
        ops = {operator(node) for node in nodes}
        self.in_words = f"a partition of {', '.join(sorted(ops))}"
        has_functions = ops <= KERNELS.keys()
        if model is None:
            self._compute = _arithmetic(partition, knobs, has_functions)
        else:
            self._compute = _quietly(_by_reference(model))
        self._waits = not has_functions or ep.HOST in self.output_locations
        # what is on the host is read when the work is queued, not when it is launched
        self.is_queued = not self._waits and ep.HOST not in self.input_locations

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = self._stream(context)
        alone = self.max_concurrent_runs is not None
        turn = object()
        try:  # from here on, as an interrupt may come right after it is entered
            self._running.append(turn)
            if alone and self._running[0] is not turn:
                raise self._overlap("let one end before the next")
            with nullcontext() if stream is None else stream.queue.used():
                if alone:
                    self._check_order(stream)
                results = self._run(inputs, outputs, context, stream)
                if stream is not None and not stream.capturing:
                    self._last = stream.queue.here()
                return results
        finally:
            self._running.remove(turn)

    def image(self) -> bytes:
        """The partition as a model.

        Raises:
            Declined: tests supply its functions, or ONNX's reference, by which what is
                restored computes, has not all of its operators.
        """
        if self._knobs.kernels:
            reason = "it computes by functions that a test supplies (Knobs.kernels)"
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, reason))
        model = self._model or self._partition.to_model().model
        try:
            _by_reference(model)
        except RuntimeError as error:
            raise ep.Declined(ep.Reason(ep.RefusalCode.OPSET, str(error))) from None
        return write_model(model)

    def close(self) -> None:
        self.closed = True

    def _run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
        stream: SimulatedStream | None,
    ) -> Sequence[Any]:
        if self.closed:
            raise RuntimeError(
                f"a partition of {self._knobs.name} was run after it was closed"
            )
        self._knobs.check(Stage.RUN)
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before its partition")
        self._check_phase(None if context is None else context.capture, stream)
        if stream is not None and stream.capturing and self._knobs.wait_while_capturing:
            stream.synchronize()
        sources = self._sources(inputs)
        if stream is None:
            return self._run_now(sources, outputs, None)
        if not self._waits:
            profiler = None if context is None else context.profiler
            return self._queue(sources, outputs, stream, profiler)
        stream.synchronize()
        return self._run_now(sources, outputs, stream)

    def _stream(self, context: ep.RunContext | None) -> SimulatedStream | None:
        stream = None if context is None else context.stream
        return None if stream is None else self._context.own(stream)

    def _check_order(self, stream: SimulatedStream | None) -> None:
        """Whether what is queued now is done after the call before."""
        last = self._last
        if last is None or last.passed:
            return
        if stream is not None and stream.queue.here().comes_after(
            last.queue, last.position
        ):
            return
        raise self._overlap("let the stream wait for the work of the call before")

    def _overlap(self, remedy: str) -> RuntimeError:
        return RuntimeError(
            f"two runs of a partition of {self._knobs.name} overlap; its "
            f"max_concurrent_runs is 1, so the host must {remedy}"
        )

    def _check_phase(
        self, phase: ep.CapturePhase | None, stream: SimulatedStream | None
    ) -> None:
        capturing = stream is not None and stream.capturing
        if capturing != (phase is ep.CapturePhase.CAPTURE):
            raise RuntimeError(
                f"a run of {self._knobs.name} is of the phase {phase}, and its stream "
                f"{'captures' if capturing else 'does not capture'}"
            )
        if capturing and not self._is_warm:
            raise RuntimeError(
                f"a run of {self._knobs.name} is captured before a warm-up"
            )
        self._is_warm = self._is_warm or phase is ep.CapturePhase.WARM_UP

    def _run_now(
        self,
        sources: Sequence[Storage],
        outputs: Sequence[Any | None],
        stream: SimulatedStream | None,
    ) -> Sequence[Any]:
        self._knobs.check(Stage.WORK)
        results = self._compute([source.read() for source in sources])
        arrays = self._targets(results, outputs, stream)
        for array, result in zip(arrays, results, strict=True):
            _write(array, result, stream)
        return arrays

    def _queue(
        self,
        sources: Sequence[Storage],
        outputs: Sequence[Any | None],
        stream: SimulatedStream,
        profiler: ep.Profiler | None,
    ) -> Sequence[Any]:
        # the inputs are not there yet: a rehearsal on zeros gives the outputs' shapes
        rehearsal = self._compute(
            [np.zeros(source.shape, source.dtype) for source in sources]
        )
        arrays = self._targets(rehearsal, outputs, stream)
        targets = [array.storage for array in arrays]
        times: list[int] = []

        def work() -> None:
            times.append(time.perf_counter_ns())
            self._knobs.check(Stage.WORK)
            results = self._compute([source.read() for source in sources])
            for target, result in zip(targets, results, strict=True):
                target.write(result)
            times.append(time.perf_counter_ns())

        stream.enqueue(work)
        if profiler is not None:
            profiler.when_done(partial(self._tell, profiler, times))
        return arrays

    def _tell(self, profiler: ep.Profiler, times: Sequence[int]) -> None:
        """When the device began and ended."""
        began, ended = times
        profiler.record(
            self.in_words,
            category="Node",
            start_ns=began,
            duration_ns=ended - began,
            details={"op_name": self.in_words},
        )

    def _sources(self, inputs: Sequence[Any]) -> list[Storage]:
        sources: list[Storage] = []
        for name, location, shape, array in zip(
            self._inputs, self.input_locations, self._static, inputs, strict=True
        ):
            _require(name, location, array)
            if shape is not None and tuple(array.shape) != shape:
                raise RuntimeError(
                    f"{name!r} has the shape {list(array.shape)}, and a partition of "
                    f"{self._knobs.name} was compiled for {list(shape)}; the host must "
                    "run what is compiled for the shapes that it has"
                )
            # an input on the host is read now, as the arguments of a kernel are
            on_host = location == ep.HOST
            sources.append(Storage(np.array(array)) if on_host else array.storage)
        return sources

    def _targets(
        self,
        results: Sequence[HostArray],
        outputs: Sequence[Any | None],
        stream: ep.Stream | None,
    ) -> list[Any]:
        rows = list(
            zip(self._outputs, self.output_locations, results, outputs, strict=True)
        )
        for name, location, result, bound in rows:
            if bound is not None:
                _require(name, location, bound)
                kinds = data_type(result), data_type(bound)
                if bound.shape != result.shape or kinds[0] is not kinds[1]:
                    raise ep.OutputMismatch(
                        f"output {name!r} is {kinds[0]}{list(result.shape)}, but "
                        f"the array bound to it is {kinds[1]}{list(bound.shape)}; "
                        "bind an array of the same dtype and shape"
                    )
        return [
            bound if bound is not None else self._empty(location, result, stream)
            for _, location, result, bound in rows
        ]

    def _empty(
        self, location: ep.MemoryLocation, like: HostArray, stream: ep.Stream | None
    ) -> Any:
        if location == ep.HOST:
            return np.empty_like(like)
        dtype = ep.DataType.from_numpy(like.dtype)
        return self._context.device.empty(like.shape, dtype, stream)


def value_locations(
    partition: ep.Partition, knobs: Knobs, context: SimulatedContext
) -> ep.ValueLocations:
    """Where a partition's values are, which their element types say."""

    def places(names: Sequence[str]) -> list[ep.MemoryLocation]:
        return [
            ep.HOST
            if partition.value(name).dtype in knobs.on_host
            else context.location
            for name in names
        ]

    return ep.ValueLocations(places(partition.inputs), places(partition.outputs))


def _is_static(shape: Sequence[ep.Dimension] | None) -> bool:
    return shape is not None and all(isinstance(size, int) for size in shape)


def _arithmetic(partition: ep.Partition, knobs: Knobs, has_functions: bool) -> _Compute:
    if has_functions:
        return _quietly(_with_functions(partition, knobs))
    return _quietly(_by_reference(partition.to_model().model))


def _quietly(compute: _Compute) -> _Compute:
    def quietly(arrays: Sequence[HostArray]) -> Sequence[HostArray]:
        with np.errstate(all="ignore"):  # poison and zeros are computed with, too
            return [np.asarray(result) for result in compute(arrays)]

    return quietly


def _with_functions(partition: ep.Partition, knobs: Knobs) -> _Compute:
    def find(graph: ep.Graph, node: ep.Node) -> Kernel | ep.Reason:
        return knobs.kernels.get(operator(node)) or find_kernel(graph, node)

    sequence = KernelSequence(partition, find)
    unbound = [None] * len(partition.outputs)
    return lambda arrays: sequence.run(arrays, unbound, None)


def _by_reference(model: Any) -> _Compute:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    inputs, outputs = evaluator.input_names, evaluator.output_names
    return lambda arrays: evaluator.run(  # type: ignore[return-value]
        outputs, dict(zip(inputs, arrays, strict=True))
    )


def _require(name: str, location: ep.MemoryLocation, array: Any) -> None:
    found = location_of(array)
    if found != location:
        raise TypeError(
            f"{name!r} is wanted in {location}, but the array given is in {found}; "
            "copy it with the data transfer of its EP"
        )


def _write(array: Any, content: HostArray, stream: SimulatedStream | None) -> None:
    if isinstance(array, np.ndarray):
        np.copyto(array, content)
        return
    target = array.storage
    if stream is None:
        target.write(content)
    else:  # the memory is the array's when the stream comes to it
        stream.enqueue(lambda: target.write(content))
