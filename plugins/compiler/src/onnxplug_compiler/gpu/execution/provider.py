"""An EP of a GPU in one session, as all have it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onnxplug import ep
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.capability import judge, keeps_codes
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.partition import GpuPartition
from onnxplug_compiler.gpu.execution.program import Weights


class GpuProvider(ep.ExecutionProvider):
    """Runs partitions as kernels of one GPU.

    Args:
        context: of the GPU.
        weights: the session's constants there.
        forced: names of nodes that are left to the next EP, and why.
    """

    preferences = ep.Preferences(keeps_qdq=keeps_codes)

    def __init__(
        self,
        context: GpuContext,
        weights: Weights,
        backend: Backend,
        forced: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.location = context.location
        self._context = context
        self._weights = weights
        self._backend = backend
        self._forced = forced

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what there are kernels for, and what follows from shapes."""
        largest = self._context.device.largest_buffer
        return judge(graph, self._forced, largest, self._backend)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all.
        """
        return GpuPartition(partition, self._context, self._weights, self._backend)

    def close(self) -> None:
        """Give up constants."""
        self._weights.clear()
