"""The memories of GPUs, and which GPU is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug import ep
from onnxplug_cuda.installation import import_cupy, problem

if TYPE_CHECKING:
    from onnxplug_cuda.context import CudaContext

SPACE: Final = "cuda"
"""The name of the memories."""


class CudaSpaces(ep.MemorySpaces):
    """The memories of GPUs, as CUDA counts them; another EP's while CuPy is missing."""

    def __init__(self) -> None:
        self.owned = frozenset() if problem() else frozenset({SPACE})

    def import_cupy(self) -> Any:
        """The module of CuPy; as :func:`~.installation.import_cupy`."""
        return import_cupy()

    def create_context(self, location: ep.MemoryLocation) -> CudaContext:
        """The memory and streams of a GPU.

        Raises:
            LookupError: there is no such GPU.
            RuntimeError: CuPy is missing, or the driver, or they do not fit.
        """
        cupy = self.import_cupy()
        from onnxplug_cuda.backend import BACKEND
        from onnxplug_cuda.context import CudaContext
        from onnxplug_cuda.device import CudaDevice
        from onnxplug_cuda.driver import Driver

        device = CudaDevice(Driver(cupy, location.ordinal))
        return CudaContext(device, location, BACKEND)


def choose(cupy: Any, devices: Sequence[ep.EpDevice], number: int) -> int:
    """Which GPU is meant, as CUDA counts.

    Args:
        devices: the session's.
        number: what the user says; -1 for the first of *devices*.

    Raises:
        OptionError: CUDA sees no GPU of that number.
        LookupError: CUDA does not see the device.
        RuntimeError: there is no driver, or it does not fit CuPy.
        DeviceLost: CUDA does nothing more in this process.
    """
    from onnxplug_cuda.driver import check_version, device_count, failure
    from onnxplug_cuda.faults import STICKY, status_of

    check_version(cupy)
    count = device_count(cupy)
    if number >= 0:
        if number >= count:
            raise ep.OptionError(
                f"option 'device_id' is {number}, and CUDA sees {count} devices, "
                "counted from 0; CUDA_VISIBLE_DEVICES may hide some"
            )
        return number
    address = devices[0].device.metadata.get("pci_bus_id") if devices else None
    if address is None:
        return 0
    try:
        return int(cupy.cuda.runtime.deviceGetByPCIBusId(address))
    except RuntimeError as error:
        ep.raise_interruption(error)
        if status_of(error) in STICKY:
            raise failure(f"CUDA does not look for {address}", error) from error
        raise LookupError(
            f"CUDA does not see the GPU at {address}: {error}; it sees {count}, and "
            "CUDA_VISIBLE_DEVICES may hide others"
        ) from error
