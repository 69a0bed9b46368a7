"""A partition on the device: calls, which each run queues on its stream."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound

from .device_memory import DeviceArray, DeviceContext
from .device_streams import do
from .operators import Array, Kernel, Operator

Shape = tuple[int, ...]


class Call(NamedTuple):
    """A kernel's call.

    Attributes:
        node: what it computes.
        kernel: how.
        inputs: names, ``None`` for one that is left out.
        output: the name of the result.
    """

    node: ep.Node
    kernel: Kernel
    inputs: tuple[str | None, ...]
    output: str


class DevicePartition(ep.CompiledPartition):
    """Calls in order, and constants on the device."""

    def __init__(
        self,
        partition: ep.Partition,
        context: DeviceContext,
        operators: Mapping[str, Operator],
    ) -> None:
        self.context = context
        self.partition = partition
        self.constants: dict[str, DeviceArray] = {}
        self._facts: dict[str, ep.TensorFacts] = {}
        self._plans: dict[tuple[Shape, ...], Mapping[str, ep.TensorFacts]] = {}
        self.calls = [self._call(node, operators) for node in partition.nodes]

    def _call(self, node: ep.Node, operators: Mapping[str, Operator]) -> Call:
        for name in filter(None, node.inputs):
            content = self.partition.constant(name)
            if content is not None and name not in self.constants:
                dtype = ep.DataType.from_numpy(content.dtype)
                array = self.context.device.empty(content.shape, dtype)
                self.context.transfer.copy([(content, array)], None)
                self.constants[name] = array
                # only small ones are sizes, which shapes may follow from
                known = content if content.size <= 64 else None
                self._facts[name] = ep.TensorFacts(dtype, content.shape, known)
        make = operators[node.op_type].make
        kernel = make(node.attributes, node.since_version)
        (output,) = node.outputs
        assert output is not None
        return Call(node, kernel, tuple(node.inputs), output)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = None if context is None else context.stream
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before its partition")
        names = self.partition.inputs
        facts = self._plan(tuple(tuple(array.shape) for array in inputs))
        bound = self._bound(outputs, facts)
        values = {**self.constants, **dict(zip(names, inputs, strict=True))}
        times: list[list[int]] = []
        profiler = self._profiler(context)
        for call in self.calls:
            arguments = [None if name is None else values[name] for name in call.inputs]
            result = self.result(call, facts[call.output], bound, stream)
            values[call.output] = result
            work = self.work(call, arguments, result)
            if profiler is not None:
                times.append([])
                work = partial(timed, work, times[-1])
            do(work, stream)
        if profiler is not None:
            self.tell(profiler, times, stream)
        return [values[name] for name in self.partition.outputs]

    def close(self) -> None:
        self.constants = {}
        self._plans = {}

    def result(
        self,
        call: Call,
        facts: ep.TensorFacts,
        bound: Mapping[str, Any],
        stream: ep.Stream | None,
    ) -> Any:
        """The array that a call fills."""
        if call.output in bound:
            return bound[call.output]
        assert facts.dtype is not None
        return self.context.device.empty(facts.shape, facts.dtype, stream)

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        """What is to be queued for a call; it uses memory, and keeps no arrays."""
        contents = [None if each is None else each.content for each in arguments]
        return partial(compute, call.kernel, contents, result.content)

    def tell(
        self,
        profiler: ep.Profiler,
        times: Sequence[Sequence[int]],
        stream: ep.Stream | None,
    ) -> None:
        """Record how long the device took for each call, when it is done."""
        if stream is not None:
            stream.synchronize()
        for call, (start, end) in zip(self.calls, times, strict=True):
            profiler.record(
                f"{call.node.name or call.output}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=end - start,
                details={"op_name": call.node.op_type},
            )

    def _plan(self, shapes: tuple[Shape, ...]) -> Mapping[str, ep.TensorFacts]:
        """What is known of each result where inputs have *shapes*."""
        plan = self._plans.get(shapes)
        if plan is not None:
            return plan
        known: dict[str, ep.TensorFacts] = dict(self._facts)
        for name, shape in zip(self.partition.inputs, shapes, strict=True):
            known[name] = ep.TensorFacts(self.partition.value(name).dtype, shape)
        for call in self.calls:
            given = [None if name is None else known[name] for name in call.inputs]
            found = self.partition.infer(call.node, given)
            if not found or found[0] is None:
                raise ValueError(
                    f"{call.node.op_type} cannot be computed of shapes "
                    f"{[None if each is None else list(each.shape) for each in given]}"
                )
            known[call.output] = found[0]
        if len(self._plans) >= 64:
            self._plans = {}
        self._plans[shapes] = known
        return known

    def _bound(
        self, outputs: Sequence[Any | None], facts: Mapping[str, ep.TensorFacts]
    ) -> dict[str, Any]:
        bound = {
            name: array
            for name, array in zip(self.partition.outputs, outputs, strict=True)
            if array is not None
        }
        for name, array in bound.items():
            dtype = facts[name].dtype
            assert dtype is not None
            like = np.broadcast_to(np.empty((), dtype.numpy), facts[name].shape)
            check_bound(f"output {name!r}", like, array)
        return bound

    def _profiler(self, context: ep.RunContext | None) -> ep.Profiler | None:
        if context is None or context.capture is ep.CapturePhase.CAPTURE:
            return None  # nothing may be waited for
        return context.profiler


def compute(kernel: Kernel, inputs: Sequence[Array | None], output: Array) -> None:
    """Fill *output* with what *kernel* gives of *inputs*."""
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    with np.errstate(all="ignore"):  # infinities and NaNs are results like others
        result = np.asarray(kernel(*inputs))
    if result.shape != output.shape:
        raise ValueError(f"a result has the shape {result.shape}, not {output.shape}")
    np.copyto(output, result, casting="no")


def timed(work: Any, times: list[int]) -> None:
    """Do *work*, and append when it began and ended, in ns."""
    times.append(time.perf_counter_ns())
    work()
    times.append(time.perf_counter_ns())
