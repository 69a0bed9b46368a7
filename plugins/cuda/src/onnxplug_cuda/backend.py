"""What the CUDA EP is to what runs its partitions."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_cuda.device import MOST_BUFFERS, MOST_GROUPS, CudaDevice
from onnxplug_cuda.shapes import shapes_for


class CudaKernels(GpuTarget):
    """A :class:`onnxplug_compiler.ir.target.Target` without libraries.

    Args:
        capability: the GPU's compute capability.
        multiprocessors: how many the GPU has; see :func:`~.shapes.shapes_for`.
        prefers_channels_last: how images lie.
        tf32: products may round factors of float32 to TF32.
    """

    def __init__(
        self,
        capability: tuple[int, int],
        *,
        multiprocessors: int = 1,
        prefers_channels_last: bool = False,
        tf32: bool = False,
    ) -> None:
        super().__init__(
            dialect=CudaDevice.dialect,
            prefers_channels_last=prefers_channels_last,
            shapes=shapes_for(capability, multiprocessors=multiprocessors, tf32=tf32),
            most_buffers=MOST_BUFFERS,
            most_groups=MOST_GROUPS,
        )


BACKEND: Final = Backend(
    api="CUDA",
    distribution="onnxplug-cuda",
    remedy="list another EP before this one for it to take the node",
    target=CudaKernels((7, 5)),
)
"""Without what options and GPUs change: for the oldest ones."""
