"""The WebGPU EP in one session."""

from __future__ import annotations

from collections.abc import Collection

from onnxplug import ep
from onnxplug_webgpu.capability import judge
from onnxplug_webgpu.context import WebGpuContext
from onnxplug_webgpu.partition import WebGpuPartition
from onnxplug_webgpu.program import Weights


class WebGpuProvider(ep.ExecutionProvider):
    """Runs partitions as shaders on one device.

    Args:
        context: of the device.
        weights: where constants on the device are shared.
        forced: names of nodes that are left to the next EP.
    """

    def __init__(
        self,
        context: WebGpuContext,
        weights: ep.WeightStore,
        forced: Collection[str] = (),
    ) -> None:
        self.location = context.location
        self._context = context
        self._weights = Weights(context.device, weights)
        self._forced = frozenset(forced)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what there are kernels for, and what follows from shapes."""
        return judge(graph, self._forced, self._context.device.largest)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all.
        """
        return WebGpuPartition(partition, self._context, self._weights)

    def close(self) -> None:
        """Give up constants."""
        self._weights.clear()
