"""The WebGPU EP in one session."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.provider import GpuProvider
from onnxplug_compiler.gpu.execution.serialiser import GpuSerialiser
from onnxplug_webgpu.settings import Settings
from onnxplug_webgpu.streams import WebGpuCapture


class WebGpuProvider(GpuProvider):
    """Runs partitions as shaders on one device.

    Args:
        context: of the device.
        weights: where constants on the device are shared.
    """

    def __init__(
        self,
        context: GpuContext,
        weights: ep.WeightStore,
        settings: Settings,
    ) -> None:
        backend = settings.backend
        own = Weights(context.device, weights, backend.distribution)
        super().__init__(context, own, backend, settings.forced)
        self.capture = WebGpuCapture() if settings.captures else None
        self.serialiser = GpuSerialiser(context, own, backend, caches=settings.caches)
