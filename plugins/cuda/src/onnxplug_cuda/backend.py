"""What the CUDA EP is to what runs its partitions."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_cuda.device import MOST_BUFFERS, MOST_GROUPS

BACKEND: Final = Backend(
    api="CUDA",
    distribution="onnxplug-cuda",
    remedy="list another EP before this one for it to take the node",
    target=GpuTarget(most_buffers=MOST_BUFFERS, most_groups=MOST_GROUPS),
)
"""Without what options change."""
