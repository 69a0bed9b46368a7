"""The simulated EP in one session, and its partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.capability import judge, operator
from onnxplug_testing.simulated.kernels import KERNELS, Kernel, find_kernel
from onnxplug_testing.simulated.knobs import Knobs, Stage
from onnxplug_testing.simulated.memory import (
    DeviceArray,
    HostArray,
    SimulatedAllocator,
    Storage,
)
from onnxplug_testing.simulated.streams import SimulatedStream

_Compute: TypeAlias = Callable[[Sequence[HostArray]], Sequence[HostArray]]


class SimulatedExecutionProvider(ep.ExecutionProvider):
    """Runs partitions on one simulated device.

    Attributes:
        options: the options it was created with.
        partitions: what it compiled, in order.
        closed: it was.
    """

    def __init__(
        self,
        knobs: Knobs,
        allocator: SimulatedAllocator,
        options: Mapping[str, ep.OptionValue],
    ) -> None:
        self.location = allocator.location
        self.options = dict(options)
        self.partitions: list[SimulatedPartition] = []
        self.closed = False
        self._knobs = knobs
        self._allocator = allocator
        self._compilations = 0

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        self._knobs.check(Stage.GET_CAPABILITY)
        return judge(graph, self._knobs)

    def compile(self, partition: ep.Partition) -> SimulatedPartition:
        count, self._compilations = self._compilations, self._compilations + 1
        self._knobs.check(Stage.COMPILE)
        if self._knobs.refuse_session:
            raise ep.SessionRefused(self._knobs.refuse_session)
        whole = count in self._knobs.decline_partitions
        named = [
            node
            for node in partition.nodes
            if operator(node) in self._knobs.decline_ops
        ]
        if whole or named:
            ops = sorted({operator(node) for node in partition.nodes})
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"partition {count} of {', '.join(ops)} (Knobs.decline_…)",
                ),
                nodes=() if whole else named,
            )
        compiled = SimulatedPartition(partition, self._knobs, self._allocator)
        self.partitions.append(compiled)
        return compiled

    def close(self) -> None:
        left = sum(not partition.closed for partition in self.partitions)
        if left:
            raise RuntimeError(
                f"{self._knobs.name} was closed before {left} of its "
                f"{len(self.partitions)} partitions; close those first"
            )
        self.closed = True


class SimulatedPartition(ep.CompiledPartition):
    """A partition on a simulated device.

    With a stream ``run`` queues the computation, and returns arrays that hold poison
    until the stream comes to it.  Two cases cannot be queued, and synchronise first as
    on a real device: shapes that depend on values, and outputs left on the host.

    Attributes:
        closed: it was.
    """

    input_locations: Sequence[ep.MemoryLocation]
    output_locations: Sequence[ep.MemoryLocation]

    def __init__(
        self, partition: ep.Partition, knobs: Knobs, allocator: SimulatedAllocator
    ) -> None:
        self.closed = False
        self.max_concurrent_runs = knobs.max_concurrent_runs
        self._knobs = knobs
        self._allocator = allocator
        self._running = threading.Lock()
        self._last_work: tuple[SimulatedStream, int] | None = None
        self._inputs = tuple(partition.inputs)
        self._outputs = tuple(partition.outputs)
        self.input_locations = self._locations(partition, self._inputs)
        self.output_locations = self._locations(partition, self._outputs)
        self._has_functions = all(operator(node) in KERNELS for node in partition.nodes)
        self._compute = _arithmetic(partition, knobs, self._has_functions)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        if self.max_concurrent_runs is None:
            return self._run(inputs, outputs, context)
        free = self._running.acquire(blocking=False)
        try:
            if not free or self._has_work_left():
                raise RuntimeError(
                    f"two runs of a partition of {self._knobs.name} overlap; its "
                    "max_concurrent_runs is 1, so the host must let one end, the work "
                    "it queued included, before the next"
                )
            return self._run(inputs, outputs, context)
        finally:
            if free:
                self._running.release()

    def close(self) -> None:
        self.closed = True

    def _run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        if self.closed:
            raise RuntimeError(
                f"a partition of {self._knobs.name} was run after it was closed"
            )
        self._knobs.check(Stage.RUN)
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before its partition")
        stream = None if context is None else context.stream
        sources = self._sources(inputs)
        if not isinstance(stream, SimulatedStream):
            return self._run_now(sources, outputs, None)
        if self._has_functions and ep.HOST not in self.output_locations:
            return self._queue(sources, outputs, stream)
        stream.synchronize()
        return self._run_now(sources, outputs, stream)

    def _has_work_left(self) -> bool:
        if self._last_work is None:
            return False
        stream, number = self._last_work
        return not stream.has_done(number)

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
            _write(array, result)
        return arrays

    def _queue(
        self,
        sources: Sequence[Storage],
        outputs: Sequence[Any | None],
        stream: SimulatedStream,
    ) -> Sequence[Any]:
        # the inputs are not there yet: a rehearsal on zeros gives the outputs' shapes
        rehearsal = self._compute([np.zeros_like(source.read()) for source in sources])
        arrays = self._targets(rehearsal, outputs, stream)
        targets = [array.storage for array in arrays]

        def work() -> None:
            self._knobs.check(Stage.WORK)
            results = self._compute([source.read() for source in sources])
            for target, result in zip(targets, results, strict=True):
                target.write(result)

        self._last_work = stream, stream.enqueue(work)
        return arrays

    def _locations(
        self, partition: ep.Partition, names: Sequence[str]
    ) -> Sequence[ep.MemoryLocation]:
        return [
            ep.HOST
            if partition.value(name).dtype in self._knobs.on_host
            else self._allocator.location
            for name in names
        ]

    def _sources(self, inputs: Sequence[Any]) -> list[Storage]:
        sources: list[Storage] = []
        for name, location, array in zip(
            self._inputs, self.input_locations, inputs, strict=True
        ):
            _require(name, location, array)
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
                if bound.shape != result.shape or bound.dtype != result.dtype:
                    raise ep.OutputMismatch(
                        f"output {name!r} is {result.dtype}{list(result.shape)}, but "
                        f"the array bound to it is {bound.dtype}{list(bound.shape)}; "
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
        return self._allocator.empty(like.shape, dtype, stream)


def _arithmetic(partition: ep.Partition, knobs: Knobs, has_functions: bool) -> _Compute:
    compute = (
        _with_functions(partition, knobs) if has_functions else _by_reference(partition)
    )

    def quietly(arrays: Sequence[HostArray]) -> Sequence[HostArray]:
        with np.errstate(all="ignore"):  # poison and zeros are computed with, too
            return [np.asarray(result) for result in compute(arrays)]

    return quietly


def _with_functions(partition: ep.Partition, knobs: Knobs) -> _Compute:
    def find(graph: ep.Graph, node: ep.Node) -> Kernel | ep.Reason:
        return knobs.kernels.get(operator(node)) or find_kernel(graph, node)

    sequence = ep.KernelSequence(partition, find)
    unbound = [None] * len(partition.outputs)
    return lambda arrays: sequence.run(arrays, unbound, None)


def _by_reference(partition: ep.Partition) -> _Compute:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(partition.to_model().model)
    inputs, outputs = list(partition.inputs), list(partition.outputs)
    return lambda arrays: evaluator.run(  # type: ignore[return-value]
        outputs, dict(zip(inputs, arrays, strict=True))
    )


def _require(name: str, location: ep.MemoryLocation, array: Any) -> None:
    found = array.location if isinstance(array, DeviceArray) else ep.HOST
    if found != location:
        raise TypeError(
            f"{name!r} is wanted in {location}, but the array given is in {found}; "
            "copy it with the data transfer of its EP"
        )


def _write(array: Any, content: HostArray) -> None:
    if isinstance(array, DeviceArray):
        array.storage.write(content)
    else:
        np.copyto(array, content)
