"""The WebGPU EP in one session."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_webgpu.capability import judge
from onnxplug_webgpu.context import WebGpuContext
from onnxplug_webgpu.options import Settings
from onnxplug_webgpu.partition import WebGpuPartition
from onnxplug_webgpu.program import Weights
from onnxplug_webgpu.streams import WebGpuCapture


class WebGpuProvider(ep.ExecutionProvider):
    """Runs partitions as shaders on one device.

    Args:
        context: of the device.
        weights: where constants on the device are shared.
    """

    def __init__(
        self,
        context: WebGpuContext,
        weights: ep.WeightStore,
        settings: Settings,
    ) -> None:
        self.location = context.location
        self._context = context
        self._weights = Weights(context.device, weights)
        self._settings = settings
        self.capture = WebGpuCapture() if settings.captures else None

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what there are kernels for, and what follows from shapes."""
        return judge(graph, self._settings.forced, self._context.device.largest)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all.
        """
        return WebGpuPartition(partition, self._context, self._weights, self._settings)

    def close(self) -> None:
        """Give up constants."""
        self._weights.clear()
