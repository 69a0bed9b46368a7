"""Heaps and buffers with real memory, of which it is known which bytes were written."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import definitions
from .com import ComObject
from .results import Invalid
from .states import BUFFER_STATES, COPY_DEST, GENERIC_READ, alone

if TYPE_CHECKING:
    from .device import D3D12Device

DEFAULT, UPLOAD, READBACK, CUSTOM = 1, 2, 3, 4
"""Types of heaps."""

ALLOW_UNORDERED_ACCESS = 4
NOT_ZEROED = 0x1000
HEAP_FLAGS = NOT_ZEROED | 0x44 | 0x84 | 0xC0
"""CREATE_NOT_ZEROED and the flags that a heap of buffers only may have."""

PLACEMENT = 65536
UNWRITTEN = 0xFF
"""What bytes are that nobody has written: no numbers, and indices out of all bounds."""


class Allocation:
    """Memory, and which bytes of it somebody wrote.

    Attributes:
        luid: of the adapter whose memory it is.
        data: its bytes, aligned as on a GPU.
        written: whether each is defined.
    """

    def __init__(self, device: D3D12Device, size: int, zeroed: bool) -> None:
        device.windows.allocate(device.adapter.luid, size)
        self.windows = device.windows
        self.luid = device.adapter.luid
        self.size = size
        whole = np.zeros(size + 256, np.uint8)
        start = -whole.ctypes.data % 256
        self.data = whole[start : start + size]
        self.written = np.full(size, zeroed)
        if not zeroed:
            self.data.fill(UNWRITTEN)

    def free(self, keep: bool) -> None:
        """Gives the memory back; what the GPU may still use is kept, and spoilt."""
        self.windows.free(self.luid, self.size)
        self.data.fill(UNWRITTEN)
        if not keep:
            self.data, self.written = self.data[:0].copy(), self.written[:0].copy()


class Heap(ComObject):
    """Memory in which buffers are placed."""

    INTERFACE = "ID3D12Heap"

    def __init__(self, device: D3D12Device, desc: Any) -> None:
        check_heap(desc.Properties, desc.Flags)
        if not desc.SizeInBytes:
            raise Invalid("a heap has at least one byte")
        if desc.Alignment not in (0, PLACEMENT):
            raise Invalid(f"a heap's alignment of {desc.Alignment}")
        self.allocation = Allocation(
            device, desc.SizeInBytes, not desc.Flags & NOT_ZEROED
        )
        super().__init__(device.windows, device)
        self.device = device
        self.kind = desc.Properties.Type
        self._desc = bytes(desc)

    def GetDesc(self) -> Any:
        return definitions.find("D3D12_HEAP_DESC").from_buffer_copy(self._desc)

    def dispose(self) -> None:
        self.allocation.free(keep=bool(self.uses))


class Resource(ComObject):
    """A buffer."""

    INTERFACE = "ID3D12Resource"

    def __init__(
        self,
        device: D3D12Device,
        parent: ComObject,
        allocation: Allocation,
        place: tuple[int, int, Any],
    ) -> None:
        super().__init__(device.windows, parent)
        self.device = device
        self.allocation = allocation
        self.start, self.kind, desc = place
        self.size: int = desc.Width
        self.unordered = bool(desc.Flags & ALLOW_UNORDERED_ACCESS)
        self.mapped = 0
        self._desc = bytes(desc)

    @property
    def data(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The buffer's bytes."""
        return self.allocation.data[self.start : self.start + self.size]

    @property
    def written(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of them are defined."""
        return self.allocation.written[self.start : self.start + self.size]

    @property
    def fixed_state(self) -> int | None:
        """The state in which a buffer on an upload or read-back heap always is."""
        return {UPLOAD: GENERIC_READ, READBACK: COPY_DEST}.get(self.kind)

    def checksum(self, start: int, size: int) -> int | None:
        """What `unchanged` compares with; None if only the GPU can write the buffer."""
        if self.kind != UPLOAD:
            return None
        return zlib.crc32(self.data[start : start + size].data)

    def unchanged(self, start: int, size: int, checksum: int | None) -> None:
        """Checks that the program left alone what the GPU is about to read.

        Raises:
            Invalid: it has written since it submitted the command.
        """
        if self.checksum(start, size) != checksum:
            raise Invalid(
                f"{size} bytes at {start} of {self} were written by the program after "
                "it submitted a command that reads them, and before the GPU read them"
            )

    def GetDesc(self) -> Any:
        return definitions.find("D3D12_RESOURCE_DESC").from_buffer_copy(self._desc)

    def GetGPUVirtualAddress(self) -> int:
        return int(self.data.ctypes.data)

    def GetHeapProperties(self, properties: Any, flags: Any) -> None:
        if properties:
            properties.contents.Type = self.kind
        if flags:
            flags[0] = 0

    def Map(self, part: int, read: Any, place: Any) -> None:
        self.device.present()
        if part:
            raise Invalid(f"a buffer has no subresource {part}")
        if self.kind == DEFAULT:
            raise Invalid(f"{self} is on a default heap, which no processor can reach")
        self._range(read)
        reads = not read or read.contents.End > read.contents.Begin
        if self.kind == READBACK and reads and self.uses:
            raise Invalid(
                f"{self} is mapped to be read before the copy into it is known to be "
                "complete: wait for a fence signalled behind it"
            )
        self.mapped += 1
        if place:
            place[0] = self.data.ctypes.data

    def Unmap(self, part: int, written: Any) -> None:
        if not self.mapped:
            raise Invalid(f"{self} is not mapped")
        self._range(written)
        self.mapped -= 1

    def _range(self, found: Any) -> None:
        # a range that ends before it begins has nothing in it, as documented
        if found and self.size < found.contents.End > found.contents.Begin:
            raise Invalid(
                f"bytes {found.contents.Begin} to {found.contents.End} of {self.size}"
            )

    def dispose(self) -> None:
        if not isinstance(self.parent, Heap):
            self.allocation.free(keep=bool(self.uses))


def check_heap(properties: Any, flags: int) -> None:
    """Checks what a heap shall be.

    Raises:
        Invalid: it cannot be.
    """
    if properties.Type not in (DEFAULT, UPLOAD, READBACK):
        raise Invalid(f"the stand-in has no heaps of type {properties.Type}")
    if properties.CPUPageProperty or properties.MemoryPoolPreference:
        raise Invalid("properties of a heap's memory are for those of type CUSTOM only")
    if flags & ~HEAP_FLAGS:
        raise Invalid(f"flags {flags:#x} of a heap of buffers")


def check_buffer(desc: Any, kind: int, state: int) -> None:
    """Checks the description of a resource, which has to be a buffer.

    Raises:
        Invalid: with the field that is wrong.
    """
    wanted = {
        "Dimension": 1,
        "Height": 1,
        "DepthOrArraySize": 1,
        "MipLevels": 1,
        "Format": 0,
        "Layout": 1,
    }
    for name, value in wanted.items():
        if getattr(desc, name) != value:
            raise Invalid(f"{name} of a buffer is {value}, not {getattr(desc, name)}")
    if desc.SampleDesc.Count != 1 or desc.SampleDesc.Quality:
        raise Invalid("a buffer has one sample, of quality 0")
    if desc.Alignment not in (0, PLACEMENT):
        raise Invalid(f"a buffer's alignment of {desc.Alignment}")
    if not desc.Width:
        raise Invalid("a buffer has at least one byte")
    if desc.Flags & ~ALLOW_UNORDERED_ACCESS:
        raise Invalid(f"flags {desc.Flags:#x} of a buffer")
    if desc.Flags and kind != DEFAULT:
        raise Invalid("only a buffer on a default heap allows unordered access")
    fixed = {UPLOAD: GENERIC_READ, READBACK: COPY_DEST}.get(kind)
    if fixed is not None and state != fixed:
        raise Invalid(f"the first state on a heap of type {kind} is {fixed:#x}")
    if fixed is None and (state & ~BUFFER_STATES or not alone(state)):
        raise Invalid(f"no buffer can be in the state {state:#x}")


def committed(
    device: D3D12Device, properties: Any, flags: int, desc: Any, state: int
) -> Resource:
    """A buffer with a heap of its own.

    Raises:
        Failure: there is no memory.
        Invalid: the descriptions are wrong.
    """
    check_heap(properties, flags)
    check_buffer(desc, properties.Type, state)
    allocation = Allocation(device, desc.Width, not flags & NOT_ZEROED)
    return Resource(device, device, allocation, (0, properties.Type, desc))


def placed(
    device: D3D12Device, heap: Heap, offset: int, desc: Any, state: int
) -> Resource:
    """A buffer in a heap.

    Raises:
        Invalid: the descriptions are wrong, or the heap is too small.
    """
    check_buffer(desc, heap.kind, state)
    if offset % PLACEMENT:
        raise Invalid(f"offset {offset} is no multiple of {PLACEMENT}")
    if offset + desc.Width > heap.allocation.size:
        raise Invalid(
            f"{desc.Width} bytes at {offset} of a heap of {heap.allocation.size}"
        )
    return Resource(device, heap, heap.allocation, (offset, heap.kind, desc))
