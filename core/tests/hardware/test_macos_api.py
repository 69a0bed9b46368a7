"""The calls of the macOS reader, against libraries made of Python functions.

This shows that signatures and references agree with each other; only a Mac can show
that they agree with macOS.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from onnxplug.hardware.macos import PciDevice
from onnxplug.hardware.macos_api import SystemReader

STRING, DATA, NUMBER = 7, 20, 22


def sysctl(values: Mapping[str, bytes]) -> SimpleNamespace:
    """libSystem, knowing *values* by name."""

    def sysctlbyname(name: bytes, into: Any, size: Any, new: None, length: int) -> int:
        value = values.get(name.decode())
        if value is None:
            return -1
        if into is not None:
            assert size._obj.value >= len(value)
            ctypes.memmove(into, value, len(value))
        size._obj.value = len(value)
        return 0

    return SimpleNamespace(sysctlbyname=sysctlbyname)


class Registry:
    """CoreFoundation and IOKit, over a list of devices and their properties."""

    def __init__(self, devices: Sequence[Mapping[str, bytes | str | int]]) -> None:
        self.devices = devices
        self.next = 0
        self.values: dict[int, Any] = {}
        self.held: set[int] = set()
        self.buffers: list[Any] = []

    def library(self) -> SimpleNamespace:
        """Both of them, as functions that take attributes."""
        names = [name for name in dir(self) if name.startswith(("CF", "IO"))]
        return SimpleNamespace(
            **{name: self._function(getattr(self, name)) for name in names}
        )

    @staticmethod
    def _function(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: method(*arguments)

    def _hold(self, value: Any) -> int:
        handle = 1000 + len(self.values)
        self.values[handle] = value
        self.held.add(handle)
        return handle

    def CFStringCreateWithCString(self, allocator: None, text: bytes, code: int) -> int:
        assert code == 0x08000100
        return self._hold(text.decode())

    def CFRelease(self, handle: int) -> None:
        self.held.remove(handle)

    def CFGetTypeID(self, handle: int) -> int:
        kinds = {str: STRING, bytes: DATA, int: NUMBER}
        return kinds[type(self.values[handle])]

    def CFStringGetTypeID(self) -> int:
        return STRING

    def CFDataGetTypeID(self) -> int:
        return DATA

    def CFDataGetLength(self, handle: int) -> int:
        return len(self.values[handle])

    def CFDataGetBytePtr(self, handle: int) -> int:
        self.buffers.append(ctypes.create_string_buffer(self.values[handle]))
        return ctypes.addressof(self.buffers[-1])

    def CFStringGetCString(self, handle: int, into: Any, size: int, code: int) -> int:
        text = self.values[handle].encode()
        if len(text) >= size:
            return 0
        into.value = text
        return 1

    def IOServiceMatching(self, name: bytes) -> int:
        assert name == b"IOPCIDevice"
        return 1  # taken over by the next call

    def IOServiceGetMatchingServices(self, port: int, match: int, into: Any) -> int:
        into._obj.value = 2
        self.held.add(2)
        return 0

    def IOIteratorNext(self, iterator: int) -> int:
        assert iterator == 2
        if self.next == len(self.devices):
            return 0
        self.next += 1
        self.held.add(99 + self.next)
        return 99 + self.next

    def IOObjectRelease(self, handle: int) -> int:
        self.held.remove(handle)
        return 0

    def IORegistryEntryCreateCFProperty(
        self, entry: int, name: int, allocator: None, options: int
    ) -> int:
        value = self.devices[entry - 100].get(self.values[name])
        return 0 if value is None else self._hold(value)


def reader(**libraries: Any) -> SystemReader:
    def load(path: str) -> Any:
        for name, library in libraries.items():
            if name in path:
                return library
        raise OSError(path)

    return SystemReader(load)


def test_sysctl_is_read() -> None:
    values = {
        "machdep.cpu.brand_string": b"Apple M1\0",
        "hw.optional.arm64": b"\1\0\0\0",
        "empty": b"",
    }
    system = reader(libSystem=sysctl(values))
    assert system.text("machdep.cpu.brand_string") == "Apple M1"
    assert system.number("hw.optional.arm64") == 1
    assert (system.text("absent"), system.number("absent")) == ("", 0)
    assert (system.text("empty"), system.number("empty")) == ("", 0)


def test_the_registry_is_read_and_released() -> None:
    registry = Registry(
        [
            {
                "vendor-id": b"\x02\x10\x00\x00",
                "device-id": b"\x40\x73\x00\x00",
                "class-code": b"\x00\x00\x03\x00",
                "model": b"AMD Radeon Pro 5500M\0",
                "pcidebug": "3:0:0",
            },
            {"vendor-id": 5, "model": b"", "pcidebug": "x" * 300},
        ]
    )
    both = registry.library()
    system = reader(CoreFoundation=both, IOKit=both)
    assert system.pci_devices() == [
        PciDevice(
            vendor_id=0x1002,
            device_id=0x7340,
            class_code=0x030000,
            model="AMD Radeon Pro 5500M",
            slot="3:0:0",
        ),
        PciDevice(vendor_id=0, device_id=0, class_code=0),
    ]
    assert registry.held == set()


def test_a_registry_that_refuses_means_no_devices() -> None:
    both = Registry([{}]).library()
    both.IOServiceGetMatchingServices = lambda *arguments: 5
    assert reader(CoreFoundation=both, IOKit=both).pci_devices() == []


def test_libraries_that_are_missing_or_too_old_mean_no_answers() -> None:
    empty = SimpleNamespace()
    assert reader().pci_devices() == []
    assert reader(CoreFoundation=empty, IOKit=empty).pci_devices() == []
    assert reader().text("machdep.cpu.vendor") == ""
    assert reader(libSystem=empty).number("hw.optional.arm64") == 0


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has all of it")
def test_elsewhere_the_reader_finds_nothing() -> None:
    system = SystemReader()
    assert system.pci_devices() == []
    assert system.number("hw.optional.arm64") == 0
