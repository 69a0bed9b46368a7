"""The WebGPU EP in one session."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_webgpu.artefact import read, write
from onnxplug_webgpu.capability import judge, keeps_codes
from onnxplug_webgpu.context import WebGpuContext
from onnxplug_webgpu.options import Settings
from onnxplug_webgpu.partition import WebGpuPartition
from onnxplug_webgpu.program import Weights
from onnxplug_webgpu.restored import RestoredPartition
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
        context: WebGpuContext,
        weights: ep.WeightStore,
        settings: Settings,
    ) -> None:
        self.location = context.location
        self._context = context
        self._weights = Weights(context.device, weights)
        self._settings = settings
        self.capture = WebGpuCapture() if settings.captures else None
        self.serialiser = WebGpuSerialiser(context, self._weights, settings)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what there are kernels for, and what follows from shapes."""
        return judge(graph, self._settings.forced, self._context.device.largest_buffer)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all.
        """
        return WebGpuPartition(partition, self._context, self._weights, self._settings)

    def close(self) -> None:
        """Give up constants."""
        self._weights.clear()


class WebGpuSerialiser(ep.Serialiser):
    """Keeps shaders, places and weights of partitions whose sizes are known."""

    def __init__(
        self, context: WebGpuContext, weights: Weights, settings: Settings
    ) -> None:
        self.caches = settings.caches
        self._context = context
        self._weights = weights
        self._settings = settings

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        """The partition as bytes.

        Raises:
            Declined: it cannot be, as sizes are not known, or nodes are on the host.
        """
        if isinstance(compiled, RestoredPartition):
            artefact = compiled.artefact
        else:
            assert isinstance(compiled, WebGpuPartition)
            artefact = compiled.artefact()
        return write(artefact, self._context.device, self._settings.shapes)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """The partition from its bytes.

        Raises:
            Declined: they are damaged, or were written by another version, or for
                another adapter or driver, or other shapes of workgroups.
        """
        try:
            settings = self._settings
            artefact = read(data, self._context.device, settings.shapes)
            return RestoredPartition(
                partition, artefact, self._context, self._weights, settings.mode
            )
        except ValueError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError):
                raise
            raise ep.Declined(
                f"the compiled partition is of no use: {error}"
            ) from error
