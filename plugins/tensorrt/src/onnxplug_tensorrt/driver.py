"""The thread's CUDA context, which TensorRT works in, by CUDA's driver interface.

Source: *CUDA Driver API*, sections on context and device management.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

_MAJOR, _MINOR, _PROCESSORS = 75, 76, 16
"""Attributes of a device: its compute capability, and how many multiprocessors."""

AMPERE: Final = 8
"""The major compute capability from which on hardware-compatible engines run."""

_LONGEST: Final = 256
"""Bytes of a device's name at most."""


class DeviceFacts(Record):
    """What engines for a device depend on.

    Attributes:
        name: as the driver says.
        capability: its compute capability.
        processors: how many multiprocessors it has.
        driver: the newest CUDA that the driver knows, 1000 times its major version and
            ten times its minor.
    """

    name: str
    capability: tuple[int, int]
    processors: int
    driver: int

    @property
    def architecture(self) -> str:
        """As compilers call it."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


class CurrentContext(AbstractContextManager[None]):
    """Makes a CUDA context the calling thread's, within.

    Args:
        handle: the ``CUcontext``.
        library: as :func:`load_driver` gives it.

    Within, it raises RuntimeError where the driver does nothing more.
    """

    def __init__(self, handle: int, library: Any) -> None:
        self._handle = handle
        self._library = library

    def __enter__(self) -> None:
        handle = ctypes.c_void_p(self._handle)
        call(self._library, "cuCtxPushCurrent_v2", handle)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before = ctypes.c_void_p()
        call(self._library, "cuCtxPopCurrent_v2", ctypes.byref(before))

    def facts(self) -> DeviceFacts:
        """What the device is.

        Raises:
            RuntimeError: the driver does nothing more.
        """
        library, device, driver = self._library, ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(_LONGEST)
        with self:
            call(library, "cuCtxGetDevice", ctypes.byref(device))
            call(library, "cuDeviceGetName", name, _LONGEST, device)
            call(library, "cuDriverGetVersion", ctypes.byref(driver))
            major, minor, processors = (
                _attribute(library, each, device)
                for each in (_MAJOR, _MINOR, _PROCESSORS)
            )
        title = name.value.decode(errors="replace")
        return DeviceFacts(title, (major, minor), processors, driver.value)


def _attribute(library: Any, which: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    call(library, "cuDeviceGetAttribute", ctypes.byref(value), which, device)
    return value.value


def call(library: Any, function: str, *arguments: Any) -> None:
    """Call a function of the driver's.

    Raises:
        RuntimeError: it fails.
    """
    status = getattr(library, function)(*arguments)
    if status:
        raise RuntimeError(
            f"CUDA's {function} failed with status {status}; where it is 700 or 719, a "
            "kernel failed before, and the process has to start anew"
        )


def find_device(library: Any, devices: Sequence[ep.EpDevice], number: int) -> int:
    """Which GPU is meant, as CUDA counts.

    Args:
        library: as :func:`load_driver` gives it.
        devices: the session's.
        number: what the user says; -1 for the first of *devices*.

    Raises:
        OptionError: CUDA sees no GPU of that number.
        LookupError: CUDA does not see the device.
        RuntimeError: the driver does not begin.
    """
    count, wanted, found = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    call(library, "cuInit", 0)
    call(library, "cuDeviceGetCount", ctypes.byref(count))
    if number >= 0:
        if number >= count.value:
            raise ep.OptionError(
                f"option 'device_id' is {number}, and CUDA sees {count.value} devices, "
                "counted from 0; CUDA_VISIBLE_DEVICES may hide some"
            )
        return number
    address = devices[0].device.metadata.get("pci_bus_id") if devices else None
    if address is None:
        return 0
    if not library.cuDeviceGetByPCIBusId(ctypes.byref(wanted), address.encode()):
        for ordinal in range(count.value):
            call(library, "cuDeviceGet", ctypes.byref(found), ordinal)
            if found.value == wanted.value:
                return ordinal
    raise LookupError(
        f"CUDA does not see the GPU at {address}; it sees {count.value}, and "
        "CUDA_VISIBLE_DEVICES may hide others"
    )


@functools.cache
def load_driver() -> Any:
    """The driver's library.

    Raises:
        RuntimeError: it is not there.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise RuntimeError(
            f"CUDA's driver cannot be loaded: {error}; install NVIDIA's, or start the "
            "container with its libraries, such as by docker run --gpus all"
        ) from error
