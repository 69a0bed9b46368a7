"""A partition on the device: what each run queues."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound

from .context import OpenClContext
from .kernels import Launch, Shape
from .memory import OpenClArray
from .operators import OPERATORS
from .streams import OpenClStream

Facts: TypeAlias = Mapping[str, ep.TensorFacts]


class Call(NamedTuple):
    """A node, for some shapes.

    Attributes:
        node: it.
        inputs: names of the arrays that its kernel reads.
        output: the name of the result.
        shape: sizes of the result.
        launch: what to launch, if there are elements; ``None``: a copy.
    """

    node: ep.Node
    inputs: tuple[str, ...]
    output: str
    shape: Shape
    launch: Launch | None


class OpenClPartition(ep.CompiledPartition):
    """Calls, made for each set of shapes, and constants on the device."""

    def __init__(self, partition: ep.Partition, context: OpenClContext) -> None:
        self._partition = partition
        self._context = context
        self._constants: dict[str, OpenClArray] = {}
        self._facts: dict[str, ep.TensorFacts] = {}
        self._calls: dict[tuple[Shape, ...], list[Call]] = {}
        for node in partition.nodes:
            for position, name in enumerate(node.inputs):
                content = None if name is None else partition.constant(name)
                if name is None or content is None:
                    continue
                dtype = ep.DataType.from_numpy(content.dtype)
                if position == OPERATORS[node.op_type].sizes:
                    self._facts[name] = ep.TensorFacts(dtype, content.shape, content)
                elif name not in self._constants:
                    array = context.memory.empty(content.shape, dtype)
                    context.transfer.copy([(content, array)], None)
                    self._constants[name] = array
                    self._facts.setdefault(name, ep.TensorFacts(dtype, content.shape))

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue the calls; what is returned is ready when the stream has done them."""
        stream = None if context is None else context.stream
        if context is None or stream is None:
            with self._context.borrowed_stream() as borrowed:
                results = self._queue(inputs, outputs, context, borrowed)
                borrowed.synchronize()
                return results
        return self._queue(inputs, outputs, context, self._context.own(stream))

    def close(self) -> None:
        """Let constants go."""
        self._constants = {}
        self._calls = {}

    def _queue(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
        stream: OpenClStream,
    ) -> Sequence[Any]:
        calls = self._calls_for(tuple(tuple(array.shape) for array in inputs))
        values: dict[str, OpenClArray] = dict(self._constants)
        values.update(zip(self._partition.inputs, inputs, strict=True))
        bound = self._bound(calls, outputs)
        events: list[cl.Event | None] = []
        for call in calls:
            if context is not None and context.cancelled:
                raise ep.RunCancelled(f"the run was cancelled before {call.output!r}")
            result = bound.get(call.output)
            if result is None:
                result = self._context.memory.empty(
                    call.shape, ep.DataType.FLOAT32, stream
                )
            values[call.output] = result
            events.append(self._launch(call, values, stream))
        # work may stay on the host until the queue is flushed
        stream.queue.flush()
        if context is not None and context.profiler is not None:
            _record(context.profiler, calls, events, stream)
        return [values[name] for name in self._partition.outputs]

    def _launch(
        self, call: Call, values: Mapping[str, OpenClArray], stream: OpenClStream
    ) -> cl.Event | None:
        """Queue a call; ``None`` if there is nothing to do."""
        result = values[call.output]
        if 0 in call.shape:
            return None
        arrays = [values[name].buffer for name in call.inputs]
        if call.launch is None:
            return cl.enqueue_copy(
                stream.queue, result.buffer, arrays[0], byte_count=result.nbytes
            )
        kernel = self._context.kernel(call.launch.name, call.launch.source)
        arguments = (result.buffer, *arrays, *call.launch.numbers)
        return kernel.launch(stream, call.launch.size, arguments)

    def _bound(
        self, calls: Sequence[Call], outputs: Sequence[Any | None]
    ) -> dict[str, OpenClArray]:
        """The arrays to fill; all are looked at before anything is queued."""
        shapes = {call.output: call.shape for call in calls}
        bound: dict[str, OpenClArray] = {}
        for name, array in zip(self._partition.outputs, outputs, strict=True):
            if array is not None:
                like = np.broadcast_to(np.float32(0), shapes[name])
                check_bound(f"output {name!r}", like, array)
                bound[name] = array
        return bound

    def _calls_for(self, shapes: tuple[Shape, ...]) -> list[Call]:
        """The calls for inputs of these *shapes*, by the host's rules of operators."""
        calls = self._calls.get(shapes)
        if calls is not None:
            return calls
        facts: dict[str, ep.TensorFacts] = dict(self._facts)
        for name, shape in zip(self._partition.inputs, shapes, strict=True):
            facts[name] = ep.TensorFacts(ep.DataType.FLOAT32, shape)
        calls = []
        for node in self._partition.nodes:
            call = self._call(node, facts)
            facts[call.output] = ep.TensorFacts(ep.DataType.FLOAT32, call.shape)
            calls.append(call)
        if len(self._calls) >= 64:  # shapes that vary without end
            self._calls = {}
        self._calls[shapes] = calls
        return calls

    def _call(self, node: ep.Node, facts: Facts) -> Call:
        operator = OPERATORS[node.op_type]
        names = [name for name in node.inputs if name is not None]
        (output,) = (name for name in node.outputs if name is not None)
        found = self._partition.infer(node, [facts[name] for name in names])
        if not found or found[0] is None:
            shapes = ", ".join(str(list(facts[name].shape)) for name in names)
            raise ValueError(f"{node.op_type} cannot be computed of shapes {shapes}")
        shape = found[0].shape
        if operator.sizes is not None:
            names = names[: operator.sizes]
        given = [facts[name].shape for name in names]
        launch = None
        if operator.launch is None and math.prod(given[0]) != math.prod(shape):
            raise ValueError(f"{list(given[0])} cannot have the shape {list(shape)}")
        # what does not go together is an error of the launch, elements or not
        if operator.launch is not None:
            launch = operator.launch(node.attributes, given, shape)
        return Call(node, tuple(names), output, shape, launch)


def _record(
    profiler: ep.Profiler,
    calls: Sequence[Call],
    events: Sequence[cl.Event | None],
    stream: OpenClStream,
) -> None:
    """Tell how long the device took for each call, by the device's clock."""
    stream.synchronize()
    now = time.perf_counter_ns()
    ends = [event.profile.end for event in events if event is not None]
    # the clocks begin at other times; the last command has just ended
    offset = now - max(ends, default=0)
    for call, event in zip(calls, events, strict=True):
        if event is None:
            continue
        profiler.record(
            call.node.name or call.output,
            category="Node",
            start_ns=event.profile.start + offset,
            duration_ns=event.profile.end - event.profile.start,
            details={"op_name": call.node.op_type},
        )
