"""CUDA as a target of the compiler: kernels, and what libraries do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_compiler.ir import families
from onnxplug_cuda.backend import CudaKernels
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.engines.cublaslt import CublasLt
from onnxplug_cuda.engines.cudnn import Cudnn
from onnxplug_cuda.engines.graphs import Attention, Convolution
from onnxplug_cuda.engines.product import Product
from onnxplug_cuda.options import CUDNN, Settings

if TYPE_CHECKING:
    from onnxplug_cuda.families.products import Products

_HOPPER: Final = 9
"""Compute capability from which products are given more workspace."""


class CudaTarget(CudaKernels):
    """A :class:`onnxplug_compiler.ir.target.Target` for a GPU and a session.

    Args:
        device: the GPU, whose libraries were opened.
        settings: of the session.
    """

    def __init__(self, device: CudaDevice, settings: Settings) -> None:
        properties = device.driver.properties
        super().__init__(
            properties.capability,
            multiprocessors=properties.multiprocessors,
            prefers_channels_last=settings.channels_last,
            tf32=settings.tf32,
        )
        engines = device.engines
        self._contractions: Products | None = None
        self._attention: families.Attention | None = None
        cublaslt = engines.get(Product)
        if isinstance(cublaslt, CublasLt):
            self._contractions = _products(cublaslt, device, settings)
        cudnn = engines.get(Convolution) if settings.cudnn else None
        if isinstance(cudnn, Cudnn):
            from onnxplug_cuda.families.convolutions import Convolutions

            self.convolutions = Convolutions(
                cudnn,
                settings.convolution,
                tf32=settings.tf32,
                products=self._contractions,
            )
        allowed = not settings.attention or CUDNN in settings.attention
        cudnn = engines.get(Attention) if settings.cudnn and allowed else None
        if isinstance(cudnn, Cudnn):
            from onnxplug_cuda.families import attention

            self._attention = attention.Attention(cudnn)

    @property
    def contractions(self) -> families.Contractions:
        return self._contractions or super().contractions

    @property
    def attention(self) -> families.Attention:
        return self._attention or super().attention


def _products(library: CublasLt, device: CudaDevice, settings: Settings) -> Products:
    from onnxplug_cuda.families.products import HOPPER_WORKSPACE, WORKSPACE, Products

    is_hopper = device.driver.properties.capability[0] >= _HOPPER
    return Products(
        tf32=settings.tf32,
        workspace=HOPPER_WORKSPACE if is_hopper else WORKSPACE,
        tuning=settings.tuning,
        library=library,
    )
