"""The WebGPU EP in one session."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_compiler.gpu.execution.capability import judge, keeps_codes
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.partition import GpuPartition
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.serialiser import GpuSerialiser
from onnxplug_webgpu.settings import Settings
from onnxplug_webgpu.streams import WebGpuCapture


class WebGpuProvider(ep.ExecutionProvider):
    """Runs partitions as shaders on one device.

    Args:
        context: of the device.
        weights: where constants on the device are shared.
    """

    preferences = ep.Preferences(keeps_qdq=keeps_codes)

    def __init__(
        self,
        context: GpuContext,
        weights: ep.WeightStore,
        settings: Settings,
    ) -> None:
        backend = settings.backend
        self.location = context.location
        self._context = context
        self._weights = Weights(context.device, weights, backend.distribution)
        self._settings = settings
        self.capture = WebGpuCapture() if settings.captures else None
        self.serialiser = GpuSerialiser(
            context, self._weights, backend, caches=settings.caches
        )

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what there are kernels for, and what follows from shapes."""
        largest = self._context.device.largest_buffer
        return judge(graph, self._settings.forced, largest, self._settings.backend)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all.
        """
        backend = self._settings.backend
        return GpuPartition(partition, self._context, self._weights, backend)

    def close(self) -> None:
        """Give up constants."""
        self._weights.clear()
