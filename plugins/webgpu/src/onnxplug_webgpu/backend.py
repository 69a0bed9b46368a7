"""What the WebGPU EP is to what runs its partitions."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.target import GpuTarget

BACKEND: Final = Backend(
    api="WebGPU",
    distribution="onnxplug-webgpu",
    remedy="name the node in the option 'forceCpuNodeNames' for the next EP to take it",
    target=GpuTarget(),
)
"""Without what options change."""
