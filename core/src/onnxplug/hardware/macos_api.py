"""What macOS says of its processor and PCI devices, by ctypes: sysctl and IOKit.

No process is started.  It has never run on a Mac: its tests give it libraries made of
Python functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug.hardware.log import left_out


class PciDevice(Record):
    """A PCI device of the I/O registry; ``slot`` is its ``pcidebug``, "0:2:0"."""

    vendor_id: int
    device_id: int
    class_code: int
    model: str = ""
    slot: str = ""


_SYSTEM: Final = "/usr/lib/libSystem.B.dylib"
_FRAMEWORK: Final = "/System/Library/Frameworks/{0}.framework/{0}"
_UTF8: Final = 0x08000100  # kCFStringEncodingUTF8

_POINTER: Final = ctypes.c_void_p
_U32: Final = ctypes.c_uint32  # of IOKit's objects, options and CoreFoundation's enums
_SIZE: Final = ctypes.c_size_t
_TEXT: Final = ctypes.c_char_p
_TYPE_ID: Final = ctypes.c_ulong
_INDEX: Final = ctypes.c_long
_STATUS: Final = ctypes.c_int

_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    # the result, then the arguments
    "sysctlbyname": (_STATUS, _TEXT, _POINTER, _POINTER, _POINTER, _SIZE),
    "CFStringCreateWithCString": (_POINTER, _POINTER, _TEXT, _U32),
    "CFStringGetTypeID": (_TYPE_ID,),
    "CFStringGetCString": (ctypes.c_ubyte, _POINTER, _POINTER, _INDEX, _U32),
    "CFDataGetTypeID": (_TYPE_ID,),
    "CFDataGetLength": (_INDEX, _POINTER),
    "CFDataGetBytePtr": (_POINTER, _POINTER),
    "CFGetTypeID": (_TYPE_ID, _POINTER),
    "CFRelease": (None, _POINTER),
    "IOServiceMatching": (_POINTER, _TEXT),
    "IOServiceGetMatchingServices": (_STATUS, _U32, _POINTER, _POINTER),
    "IOIteratorNext": (_U32, _U32),
    "IORegistryEntryCreateCFProperty": (_POINTER, _U32, _POINTER, _POINTER, _U32),
    "IOObjectRelease": (_STATUS, _U32),
}


class SystemReader:
    """The running system's answers; *load* gives a library by its path."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._load = load

    def text(self, name: str) -> str:
        """A sysctl that is text; empty when there is none."""
        value = self._sysctl(name)
        return value.split(b"\0", 1)[0].decode("utf-8", "replace")

    def number(self, name: str) -> int:
        """A sysctl that is a number; 0 when there is none."""
        return int.from_bytes(self._sysctl(name), "little")

    def pci_devices(self) -> list[PciDevice]:
        """The PCI devices of the I/O registry."""
        try:
            foundation = self._load(_FRAMEWORK.format("CoreFoundation"))
            registry = _Registry(foundation, self._load(_FRAMEWORK.format("IOKit")))
            return list(registry.pci_devices())
        except (OSError, AttributeError) as error:
            left_out("no I/O registry: %s", error)
            return []

    def _sysctl(self, name: str) -> bytes:
        try:
            sysctl = _function(self._load(_SYSTEM), "sysctlbyname")
        except (OSError, AttributeError) as error:
            left_out("no sysctl: %s", error)
            return b""
        size = ctypes.c_size_t()
        if sysctl(name.encode(), None, ctypes.byref(size), None, 0) or not size.value:
            return b""
        value = ctypes.create_string_buffer(size.value)
        if sysctl(name.encode(), value, ctypes.byref(size), None, 0):
            return b""
        return value.raw[: size.value]


class _Registry:
    """The I/O registry, with the functions that it takes to read it."""

    def __init__(self, foundation: Any, iokit: Any) -> None:
        for name in _SIGNATURES:
            if name.startswith("CF"):
                setattr(self, name, _function(foundation, name))
            elif name.startswith("IO"):
                setattr(self, name, _function(iokit, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def pci_devices(self) -> Iterator[PciDevice]:
        matching = self.IOServiceMatching(b"IOPCIDevice")
        services = ctypes.c_uint32()
        # takes over our reference to matching
        if not matching or self.IOServiceGetMatchingServices(
            0, matching, ctypes.byref(services)
        ):
            return
        try:
            while entry := self.IOIteratorNext(services.value):
                try:
                    yield PciDevice(
                        vendor_id=self._number(entry, b"vendor-id"),
                        device_id=self._number(entry, b"device-id"),
                        class_code=self._number(entry, b"class-code"),
                        model=self._text(entry, b"model"),
                        slot=self._text(entry, b"pcidebug"),
                    )
                finally:
                    self.IOObjectRelease(entry)
        finally:
            self.IOObjectRelease(services.value)

    def _number(self, entry: int, key: bytes) -> int:
        return int.from_bytes(self._bytes(entry, key)[:4], "little")

    def _text(self, entry: int, key: bytes) -> str:
        return self._bytes(entry, key).split(b"\0", 1)[0].decode("utf-8", "replace")

    def _bytes(self, entry: int, key: bytes) -> bytes:
        """A property that is data or text; empty when there is none."""
        name = self.CFStringCreateWithCString(None, key, _UTF8)
        if not name:
            return b""
        try:
            value = self.IORegistryEntryCreateCFProperty(entry, name, None, 0)
        finally:
            self.CFRelease(name)
        if not value:
            return b""
        try:
            kind = self.CFGetTypeID(value)
            if kind == self.CFDataGetTypeID():
                start = self.CFDataGetBytePtr(value)
                length = self.CFDataGetLength(value)
                return ctypes.string_at(start, length) if length else b""
            text = ctypes.create_string_buffer(256)
            if kind == self.CFStringGetTypeID() and self.CFStringGetCString(
                value, text, len(text), _UTF8
            ):
                return text.value
            return b""
        finally:
            self.CFRelease(value)


def _function(library: Any, name: str) -> Any:
    function = getattr(library, name)
    function.restype, *function.argtypes = _SIGNATURES[name]
    return function
