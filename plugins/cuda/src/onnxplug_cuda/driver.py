"""CUDA's interface on one device, as CuPy has it."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import DeviceLost
from onnxplug_cuda.faults import (
    FORK,
    NOT_READY,
    OUT_OF_MEMORY,
    REMEDY_OF_FORK,
    REMEDY_OF_LOSS,
    STICKY,
    explained,
    status_of,
)


class Properties(Record):
    """What a GPU is.

    Attributes:
        ordinal: which of those that CUDA sees.
        name: as the driver says.
        capability: its compute capability.
        multiprocessors: how many it has.
        total: bytes of memory.
        pci_bus_id: where it is.
        driver: the newest CUDA that the driver knows, major and minor.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    total: int
    pci_bus_id: str
    driver: tuple[int, int]

    @property
    def architecture(self) -> str:
        """As compilers call it."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def __str__(self) -> str:
        return f"{self.name} (cuda:{self.ordinal})"


class Driver(AbstractContextManager[None]):
    """CUDA on one device; within its context, the calling thread is there.

    Args:
        cupy: the module.
        ordinal: of the device.

    Attributes:
        runtime, driver, nvrtc: CuPy's modules.
        properties: the device's.
        fault: why CUDA does nothing more in this process; empty as long as it does.

    Raises:
        LookupError: there is no such device.
        RuntimeError: there is no driver, or none that CuPy's CUDA works with.
    """

    def __init__(self, cupy: Any, ordinal: int) -> None:
        self.runtime = cupy.cuda.runtime
        self.driver = cupy.cuda.driver
        self.nvrtc = cupy.cuda.nvrtc
        self.fault = ""
        _drivers[weakref.ref(self, _drivers.pop)] = None
        self._here = threading.local()
        check_version(cupy)
        count = device_count(cupy)
        if not 0 <= ordinal < count:
            raise LookupError(
                f"CUDA sees no device {ordinal}; it sees {count}, counted from 0; "
                "`nvidia-smi -L` lists them, and CUDA_VISIBLE_DEVICES may hide some"
            )
        self.properties = _properties(self.runtime, ordinal)
        try:
            with self:  # which makes the device's context
                self.runtime.free(0)
        except RuntimeError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError):
                raise
            raise failure(f"CUDA does not begin on {self.properties}", error) from error

    def lost(self) -> DeviceLost:
        """The error for what was lost with the context."""
        remedy = REMEDY_OF_FORK if self.fault == FORK else REMEDY_OF_LOSS
        return DeviceLost(f"{self.properties} was lost: {self.fault}; {remedy}")

    def check(self) -> None:
        """Check that CUDA works.

        Raises:
            DeviceLost: it does not any more.
        """
        if self.fault:
            raise self.lost()

    def has_passed(self, event: int) -> bool:
        """Whether the work before an event is done; within the context.

        Raises:
            CUDARuntimeError: it failed.
        """
        status = int(self.runtime.eventQuery(event))  # which raises nothing itself
        if status not in (0, NOT_READY):
            raise self.runtime.CUDARuntimeError(status)
        return status == 0

    def __enter__(self) -> None:
        """Make the device the thread's own.

        Raises:
            DeviceLost: CUDA does nothing more in this process.
        """
        self.check()
        here = self._here
        depth = getattr(here, "depth", 0)
        if not depth:
            ordinal = self.properties.ordinal
            try:
                before = self.runtime.getDevice()
                # a thread that never set it has none of CUDA's contexts
                if before != ordinal or not getattr(here, "is_set", False):
                    self.runtime.setDevice(ordinal)
                    here.is_set = True
            except RuntimeError as error:
                self._note(error)
                raise
            here.before = before
        here.depth = depth + 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        here = self._here
        here.depth -= 1
        try:
            if error is not None:
                self._note(error)
        finally:
            is_last = not here.depth and not self.fault
            if is_last and here.before != self.properties.ordinal:
                self.runtime.setDevice(here.before)

    def _note(self, error: BaseException) -> None:
        """Note a fault after which nothing works.

        Raises:
            DeviceLost: it is one.
            MemoryError: the device has no memory left.
        """
        status = status_of(error)
        if status in STICKY:
            assert status is not None
            self.fault = self.fault or f"{STICKY[status]} ({error})"
            raise self.lost() from error
        if status == OUT_OF_MEMORY:
            raise MemoryError(str(error)) from error


_drivers: Final[dict[weakref.ref[Driver], None]] = {}
"""Those that there are."""


def _lose_all() -> None:
    for reference in list(_drivers):
        driver = reference()
        if driver is not None:
            driver.fault = driver.fault or FORK


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_all)


def failure(what: str, error: BaseException) -> RuntimeError:
    """What to raise for an error while a device is looked for, with its remedy: a
    :class:`DeviceLost` if CUDA does nothing more in this process."""
    kind = DeviceLost if status_of(error) in STICKY else RuntimeError
    return kind(f"{what}: {explained(error)}")


def device_count(cupy: Any) -> int:
    """How many devices CUDA sees.

    Raises:
        RuntimeError: there is no driver, or no device, or they do not fit CuPy.
    """
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        ep.raise_interruption(error)
        raise failure("CUDA has no devices", error) from error
    return count


def check_version(cupy: Any) -> None:
    """Check that the driver knows CuPy's CUDA.

    Raises:
        RuntimeError: it is older, or there is none.
    """
    runtime = cupy.cuda.runtime
    try:
        known = int(runtime.driverGetVersion())
    except RuntimeError as error:
        ep.raise_interruption(error)
        raise failure("the driver does not answer", error) from error
    built = int(runtime.runtimeGetVersion()) // 1000
    if not known:
        raise RuntimeError(
            "there is no driver of NVIDIA's: install it, from "
            "https://www.nvidia.com/drivers, and in a container start it with the GPUs "
            "(--gpus all)"
        )
    if known // 1000 < built:
        raise RuntimeError(
            f"the driver is for CUDA {known // 1000}.{known % 1000 // 10}, and the "
            f"CuPy that is installed for CUDA {built}; update the driver, or: pip "
            f"uninstall cupy-cuda{built}x && pip install "
            f"'onnxplug-cuda[cu{known // 1000}]'"
        )


def _properties(runtime: Any, ordinal: int) -> Properties:
    found = runtime.getDeviceProperties(ordinal)
    name = found["name"]
    version = int(runtime.driverGetVersion())
    return Properties(
        ordinal,
        name.decode(errors="replace") if isinstance(name, bytes) else str(name),
        (int(found["major"]), int(found["minor"])),
        int(found["multiProcessorCount"]),
        int(found["totalGlobalMem"]),
        str(runtime.deviceGetPCIBusId(ordinal)),
        (version // 1000, version % 1000 // 10),
    )
