"""The driver's library, of the stand-in's GPUs."""

from __future__ import annotations

import threading
from typing import Any

from plugins.cuda.tests.standin import Machine

CONTEXT = 4096
"""What the stand-in for CuPy calls the context of every GPU."""


class LibCuda:
    """``libcuda.so.1`` as ``ctypes`` has it.

    Args:
        machine: the GPU.
        name, capability: what it is.
        devices: how many there are.

    Attributes:
        failures: by function, the status that it fails with.
    """

    def __init__(
        self,
        machine: Machine,
        name: str = "Stand-in",
        capability: tuple[int, int] = (9, 0),
        devices: int = 1,
    ) -> None:
        self.machine = machine
        self.name = name
        self.capability = capability
        self.devices = devices
        self.failures: dict[str, int] = {}
        self._here = threading.local()

    @property
    def pushed(self) -> list[int]:
        """The calling thread's contexts."""
        if not hasattr(self._here, "stack"):
            self._here.stack = []
        stack: list[int] = self._here.stack
        return stack

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name in self.failures:
            return lambda *arguments: self.failures[name]
        return super().__getattribute__(name)

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0

    def cuDeviceGetByPCIBusId(self, device: Any, address: bytes) -> int:
        for ordinal in range(self.devices):
            if f"0000:{0x10 + ordinal:02x}:00.0".encode() == address.lower():
                device._obj.value = ordinal
                return 0
        return 101

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13020
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        if context.value != CONTEXT:
            return 201
        self.pushed.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        context._obj.value = self.pushed.pop()
        return 0

    def cuCtxGetDevice(self, device: Any) -> int:
        device._obj.value = 0
        return 0 if self.pushed else 201

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = self.name.encode()
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        found = {75: self.capability[0], 76: self.capability[1], 16: 132}
        value._obj.value = found[attribute]
        return 0
