"""Partitions that DirectML runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_directml.device.array import DmlArray
from onnxplug_directml.device.compiled import CompiledGraph
from onnxplug_directml.device.context import DmlContext
from onnxplug_directml.device.pool import Memory


class DmlPartition(ep.CompiledPartition):
    """A compiled graph, and how a partition's values are bound to it.

    Args:
        compiled: closed with this.
        partition: what it is of; its shapes are numbers.
        context: the memory that values are in.
    """

    # what a graph computes in between is in one place, whichever run it is of
    max_concurrent_runs = 1

    def __init__(
        self, compiled: CompiledGraph, partition: ep.Partition, context: DmlContext
    ) -> None:
        self._compiled: CompiledGraph | None = compiled
        self._context = context
        self._inputs: Final = [Border(partition, name) for name in partition.inputs]
        self._outputs: Final = [Border(partition, name) for name in partition.outputs]
        places = {name: place for place, name in enumerate(partition.inputs)}
        self._read: Final = [places[name] for name in compiled.inputs]
        made = {name: place for place, name in enumerate(partition.outputs)}
        self._checks: Final = compiled.checks
        results = compiled.outputs[:-1] if self._checks else compiled.outputs
        self._made: Final = [made[name] for name in results]
        first = describe(partition.nodes[0])
        more = len(partition.nodes) - 1
        self._what: Final = f"{first} and {more} others" if more else first
        self._nodes: Final = [node.op_type for node in partition.nodes]

    @property
    def report(self) -> ep.PartitionReport:  # type: ignore[override]
        """How many command lists were recorded, one for each set of arrays."""
        compiled = self._compiled
        if compiled is None:
            return ep.PartitionReport()
        return ep.PartitionReport(counts={"command lists": compiled.recorded})

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue the work."""
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before DirectML began")
        compiled = self._compiled
        if compiled is None:
            raise RuntimeError("the partition was closed")
        stream = None if context is None else context.stream
        queue = self._context.stream_or_own(stream)
        for border, array in zip(self._inputs, inputs, strict=True):
            border.check_input(array)
        for border, bound in zip(self._outputs, outputs, strict=True):
            border.check_output(bound)
        results = [
            border.array(self._context, stream) if bound is None else bound
            for border, bound in zip(self._outputs, outputs, strict=True)
        ]
        profiler = None if context is None else context.profiler
        if profiler is not None:
            queue.synchronize()
        began = time.perf_counter_ns()
        read = [self._memory(inputs[place]) for place in self._read]
        made = [self._memory(results[place]) for place in self._made]
        if self._checks:
            made.append(self._context.device.memory(4 * len(self._checks)))
        queue.queue(compiled.execution(read, made))
        for memory in (*read, *made):
            queue.keep(memory)
        if self._checks:
            queue.read_when_done(made[-1], 4 * len(self._checks), self._check)
        if stream is None or profiler is not None:
            queue.synchronize()
        if profiler is not None:
            profiler.record(
                self._what,
                category="Node",
                start_ns=began,
                duration_ns=time.perf_counter_ns() - began,
                details={"op_name": self._nodes[0], "nodes": len(self._nodes)},
            )
        return results

    def _check(self, content: np.ndarray[Any, Any]) -> None:
        """See what the graph found of what it was given.

        Raises:
            NodeError: something is wrong.
        """
        for flag, message in zip(content.view(np.uint32), self._checks, strict=True):
            if flag:
                raise ep.NodeError(message)

    def _memory(self, array: DmlArray) -> Memory:
        return self._context.memory_of(array)

    def close(self) -> None:
        """Release the compiled graph once what is queued of it is done."""
        compiled, self._compiled = self._compiled, None
        if compiled is not None:
            compiled.close()


class EmptyPartition(ep.CompiledPartition):
    """A partition whose outputs have no elements, of which DirectML knows nothing.

    Args:
        context: the memory that values are in.
    """

    def __init__(self, partition: ep.Partition, context: DmlContext) -> None:
        self._context = context
        self._outputs: Final = [Border(partition, name) for name in partition.outputs]

    @staticmethod
    def is_one(partition: ep.Partition) -> bool:
        """Whether no output of *partition* has elements."""
        shapes = (partition.value(name).shape for name in partition.outputs)
        return all(shape is not None and 0 in shape for shape in shapes)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Arrays without elements."""
        stream = None if context is None else context.stream
        for border, bound in zip(self._outputs, outputs, strict=True):
            border.check_output(bound)
        return [
            border.array(self._context, stream) if bound is None else bound
            for border, bound in zip(self._outputs, outputs, strict=True)
        ]


class Border:
    """An input or output of a partition: what its arrays are.

    Raises:
        Declined: its type or its shape are not known.
    """

    def __init__(self, partition: ep.Partition, name: str) -> None:
        value = partition.value(name)
        shape = value.shape
        if (
            value.dtype is None
            or shape is None
            or not all(isinstance(size, int) for size in shape)
        ):
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.DYNAMIC_SHAPE,
                    f"type or shape of {name!r} is not known",
                )
            )
        self.name: Final = name
        self.dtype: Final = value.dtype
        self.shape: Final = tuple(int(size) for size in shape)  # type: ignore[arg-type]

    def array(self, context: DmlContext, stream: ep.Stream | None) -> DmlArray:
        """A new array for it.

        Raises:
            MemoryError: there is not enough memory.
        """
        return context.new_array(self.shape, self.dtype.numpy, stream)

    def check_input(self, array: Any) -> None:
        """See that *array* is what the graph was compiled for.

        Raises:
            ValueError: it is not.
        """
        if not isinstance(array, DmlArray) or tuple(array.shape) != self.shape:
            found = list(getattr(array, "shape", ()))
            raise ValueError(
                f"input {self.name!r} is of shape {found}, and the graph was compiled "
                f"for {list(self.shape)}"
            )
        if array.dtype != self.dtype.numpy:
            raise ValueError(
                f"input {self.name!r} is {array.dtype}, and the graph was compiled for "
                f"{self.dtype}"
            )

    def check_output(self, bound: Any | None) -> None:
        """See that *bound*, if there is any, can take the output.

        Raises:
            OutputMismatch: it cannot.
        """
        if bound is None:
            return
        if (
            not isinstance(bound, DmlArray)
            or tuple(bound.shape) != self.shape
            or bound.dtype != self.dtype.numpy
        ):
            raise ep.OutputMismatch(
                f"output {self.name!r} is {self.dtype}{list(self.shape)}, and the "
                f"array bound to it is of shape {list(bound.shape)} or another type; "
                "bind one like the output"
            )
