"""The host's allocator, which libraries ask for and hand back to entries of ours."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from onnxplug_native.functions.devices import HOST_PLACE, MemoryInfo
from onnxplug_native.functions.environment import KeyValuePairs
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.ending import lasting, replace_at_the_end
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import put_pointer
from onnxplug_native.interface.structure import Structure
from onnxplug_native.interface.table import API_VERSION, entries

_MOST: int = 1 << 47
"""More bytes than any process has, which a C library may still promise."""


class _Structure(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("functions", ctypes.c_void_p * len(entries("OrtAllocator"))),
    )


class HostAllocator:
    """Allocates ordinary memory, from the C library.

    Attributes:
        address: of the structure that libraries know.
        info: what it allocates.
    """

    def __init__(self) -> None:
        self.info = MemoryInfo("Cpu", HOST_PLACE, 64)
        library = ctypes.CDLL(None)
        self._malloc = library.malloc
        self._malloc.restype, self._malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._free = library.free
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p]
        bodies: dict[str, Any] = {
            "Alloc": lambda _, size: self.allocate(size),
            "Reserve": lambda _, size: self.allocate(size),
            "AllocOnStream": lambda _, size, stream: self.allocate(size),
            "Free": lambda _, address: self.free(address),
            "Info": lambda _: self.info.address,
        }
        self._callbacks = [
            entry.signature(bodies[entry.name]) if entry.name in bodies else None
            for entry in entries("OrtAllocator")
        ]
        functions = (ctypes.c_void_p * len(self._callbacks))(
            *(
                ctypes.cast(each, ctypes.c_void_p).value if each else None
                for each in self._callbacks
            )
        )
        self._structure = lasting(_Structure(API_VERSION, functions))
        lasting(self._callbacks)
        late = [
            self.info.address if entry.name == "Info" else 0
            for entry in entries("OrtAllocator")
        ]
        replace_at_the_end(self._structure.functions, late)
        self.address = ctypes.addressof(self._structure)

    def allocate(self, size: int) -> int | None:
        """The address of *size* bytes; ``None`` if there are not so many, or none."""
        if not 0 < size < _MOST:
            return None
        found: int | None = self._malloc(size)
        return found

    def free(self, address: int | None) -> None:
        """Free what was allocated; nothing for ``None``."""
        self._free(address)


@functools.cache
def host_allocator() -> HostAllocator:
    """The allocator, made when it is first asked for, and never destroyed."""
    return HostAllocator()


def _structure(address: int | None) -> Structure:
    if not address:
        raise InterfaceError(Code.INVALID_ARGUMENT, "the allocator is null")
    return Structure("OrtAllocator", address, "a library")


def allocate_text(allocator: int | None, text: str | bytes) -> int:
    """The address of a C string from *allocator*, which its caller frees.

    Raises:
        InterfaceError: there is no memory.
    """
    data = (text.encode() if isinstance(text, str) else text) + b"\0"
    return allocate_bytes(allocator, data)


def allocate_bytes(allocator: int | None, data: bytes) -> int:
    """The address of a copy of *data* from *allocator*, which its caller frees.

    Raises:
        InterfaceError: there is no memory.
    """
    address: int | None = _structure(allocator).call("Alloc", len(data))
    if not address:
        raise InterfaceError(Code.FAIL, f"the allocator has no {len(data)} bytes")
    ctypes.memmove(address, data, len(data))
    return address


@implements("GetAllocatorWithDefaultOptions")
def get_allocator_with_default_options(out: int) -> None:
    """The host's allocator, which nobody releases."""
    put_pointer(out, host_allocator().address)


@implements("AllocatorAlloc")
def allocator_alloc(allocator: int, size: int, out: int) -> None:
    """Memory of an allocator, ours or a library's."""
    address = _structure(allocator).call("Alloc", size)
    if size and not address:
        raise InterfaceError(Code.FAIL, f"the allocator has no {size} bytes")
    put_pointer(out, address)


@implements("AllocatorFree")
def allocator_free(allocator: int, address: int | None) -> None:
    """Free what an allocator gave."""
    _structure(allocator).call("Free", address)


@implements("AllocatorGetInfo")
def allocator_get_info(allocator: int, out: int) -> None:
    """What an allocator allocates."""
    put_pointer(out, _structure(allocator).call("Info"))


@implements("ReleaseAllocator")
def release_allocator(_: int | None) -> None:
    """Nothing: what kernels are given are the EP's own and the host's, which stay."""


@implements("AllocatorGetStats")
def allocator_get_stats(allocator: int, out: int) -> None:
    """What an allocator says of itself; nothing, where it does not."""
    structure = _structure(allocator)
    if structure.has("GetStats"):
        structure.call("GetStats", out)
    else:
        put_pointer(out, KeyValuePairs())
