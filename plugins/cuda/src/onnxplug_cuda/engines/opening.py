"""Opens NVIDIA's libraries on a GPU, those that are there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from onnxplug import ep
from onnxplug_cuda.bench import DeviceBench
from onnxplug_cuda.calls import Library
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.engines.choices import Choices
from onnxplug_cuda.engines.cublaslt import CublasError, CublasLt
from onnxplug_cuda.engines.cudnn import Cudnn, CudnnError
from onnxplug_cuda.engines.graphs import Attention, Convolution
from onnxplug_cuda.engines.product import Product
from onnxplug_cuda.installation import dotted
from onnxplug_cuda.libraries import LIBRARIES, Found, Missing, find

_NAMED: Final = {library.name: library for library in LIBRARIES}


def import_frontend() -> Any:
    """cuDNN's Python frontend.

    Raises:
        ImportError: it is not installed, or broken.
    """
    try:
        import cudnn
    # it loads libraries, and raises what it likes
    except Exception as error:
        ep.raise_interruption(error)
        raise ImportError(
            f"cuDNN's Python frontend cannot be imported: {error}"
        ) from error
    return cudnn


def open_engines(
    device: CudaDevice,
    logger: logging.Logger,
    *,
    look: Callable[..., Found | Missing] = find,
    frontend: Callable[[], Any] = import_frontend,
) -> None:
    """Fill ``device.engines``, once; what is missing, or does not begin, is logged, and
    kernels serve in its place.

    Args:
        look: loads a library.
        frontend: imports cuDNN's frontend.
    """
    with device.lock:
        if device.has_looked_for_engines:
            return
        device.has_looked_for_engines = True
        for open_one in (_open_cublaslt, _open_cudnn):
            try:
                open_one(device, logger, look, frontend)
            except (CublasError, CudnnError, ImportError, AttributeError) as error:
                ep.raise_interruption(error)
                logger.info(
                    "%s: %s; kernels of the EP's serve in its place", device, error
                )


def _open_cublaslt(
    device: CudaDevice,
    logger: logging.Logger,
    look: Callable[..., Found | Missing],
    frontend: Callable[[], Any],
) -> None:
    found = _loaded("cublasLt", look)
    choices = _choices("products", device, logger, cublasLt=dotted(found.version))
    device.engines[Product] = CublasLt(
        found.handle, device.driver, device.lock, choices, DeviceBench(device)
    )


def _open_cudnn(
    device: CudaDevice,
    logger: logging.Logger,
    look: Callable[..., Found | Missing],
    frontend: Callable[[], Any],
) -> None:
    found = _loaded("cudnn", look)
    module = frontend()
    versions = {
        "cudnn": dotted(found.version),
        "frontend": str(getattr(module, "__version__", "")),
    }
    choices = _choices("convolutions", device, logger, **versions)
    opened: Library = Cudnn(
        module, device.driver, device.lock, choices, DeviceBench(device)
    )
    device.engines[Convolution] = device.engines[Attention] = opened


def _loaded(name: str, look: Callable[..., Found | Missing]) -> Found:
    """The library of a name.

    Raises:
        ImportError: it is not there.
    """
    found = look(_NAMED[name])
    if isinstance(found, Missing):
        raise ImportError(f"{_NAMED[name].title} is not found: {found.reason}")
    return found


def _choices(
    kind: str, device: CudaDevice, logger: logging.Logger, **versions: str
) -> Choices:
    properties = device.driver.properties
    machine = {
        "gpu": properties.name,
        "capability": dotted(properties.capability),
        "driver": dotted(properties.driver),
        **versions,
    }
    return Choices(kind, machine, logger)
