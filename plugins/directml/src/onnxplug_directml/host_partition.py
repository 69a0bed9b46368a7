"""Partitions with tensors without elements, of which DirectML has none.

Sizes of 0 come with runs, when the nodes cannot go to another EP any more; then the
host computes, and the session's report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug_directml.device.context import DmlContext
from onnxplug_directml.partition import Border
from onnxplug_kernels import find_kernel, function_of

FindKernel: TypeAlias = Callable[
    [ep.Graph, ep.Node, Any], Callable[..., Any] | ep.Reason | None
]
"""``ep.SessionContext.find_kernel``."""


class HostPartition(ep.CompiledPartition):
    """A partition that the host computes, of values on the adapter.

    Args:
        context: the memory that values are in.
        supplied: finds kernels of operators that others than ONNX have.

    Raises:
        Declined: a node has no kernel.
    """

    def __init__(
        self, partition: ep.Partition, context: DmlContext, supplied: FindKernel
    ) -> None:
        def find(graph: ep.Graph, node: ep.Node) -> Callable[..., Any]:
            kernel = find_kernel(node.domain, node.op_type, graph.opset(node.domain))
            found = (
                supplied(graph, node, np)
                if kernel is None
                else function_of(kernel, node, np)
            )
            if found is None or isinstance(found, ep.Reason):
                why = found or ep.Reason(ep.RefusalCode.OP, "the host has no kernel")
                raise ep.Declined(why, nodes=[node])
            return found

        self._kernels = KernelSequence(partition, find)
        self._context = context
        self._inputs: Final = [Border(partition, name) for name in partition.inputs]
        self._outputs: Final = [Border(partition, name) for name in partition.outputs]
        note = "of these sizes a tensor has no elements, of which DirectML has none"
        count = len(partition.nodes)
        self.report = ep.PartitionReport(
            tiers=dict.fromkeys(range(count), "host"),
            notes=dict.fromkeys(range(count), note),
        )

    @staticmethod
    def is_one(partition: ep.Partition) -> bool:
        """Whether a tensor of *partition* has no elements."""
        names = {
            name
            for node in partition.nodes
            for name in (*node.inputs, *node.outputs)
            if name is not None
        }
        return any(0 in (partition.value(name).shape or ()) for name in names)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Copy to the host, compute, and copy back."""
        stream = None if context is None else context.stream
        queue = self._context.stream_or_own(stream)
        for border, bound in zip(self._outputs, outputs, strict=True):
            border.check_output(bound)
        given = []
        for border, array in zip(self._inputs, inputs, strict=True):
            border.check_input(array)
            given.append(np.empty(border.shape, border.dtype.numpy))
            queue.read(self._context.memory_of(array), given[-1])
        queue.synchronize()
        found = self._kernels.run(given, [None] * len(outputs), None)
        results = [
            border.array(self._context, stream) if bound is None else bound
            for border, bound in zip(self._outputs, outputs, strict=True)
        ]
        for result, array in zip(found, results, strict=True):
            queue.upload(self._context.memory_of(array), np.asarray(result))
        if stream is None:
            queue.synchronize()
        return results
