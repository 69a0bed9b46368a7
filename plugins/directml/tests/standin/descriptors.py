"""Descriptor heaps: places for descriptors, that processors and GPUs address apart."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .. import definitions
from .com import ComObject
from .results import Invalid

if TYPE_CHECKING:
    from .device import D3D12Device

CBV_SRV_UAV = 0
SHADER_VISIBLE = 1
_STARTS = itertools.count(0x10_0000_0000, 0x1_0000_0000)
_FOR_GPUS = 0x4000_0000_0000


class DescriptorHeap(ComObject):
    """A heap of descriptors.

    Attributes:
        slots: what is in each; None before anything was written.
    """

    INTERFACE = "ID3D12DescriptorHeap"
    INCREMENT = 40
    """Bytes from one descriptor to the next, other than on any known GPU."""

    def __init__(self, device: D3D12Device, desc: Any) -> None:
        if desc.Type != CBV_SRV_UAV:
            raise Invalid(f"the stand-in has no descriptor heaps of type {desc.Type}")
        if not desc.NumDescriptors:
            raise Invalid("a descriptor heap has at least one descriptor")
        if desc.Flags & ~SHADER_VISIBLE or desc.NodeMask not in (0, 1):
            raise Invalid(f"flags {desc.Flags:#x} and nodes {desc.NodeMask:#x}")
        if desc.Flags and desc.NumDescriptors > 1_000_000:
            raise Invalid("a million descriptors are all that shaders can see")
        super().__init__(device.windows, device)
        self.device = device
        self.slots: list[object | None] = [None] * desc.NumDescriptors
        self.visible = bool(desc.Flags & SHADER_VISIBLE)
        self.start = next(_STARTS)
        self._desc = bytes(desc)

    def GetDesc(self) -> Any:
        found = definitions.find("D3D12_DESCRIPTOR_HEAP_DESC")
        return found.from_buffer_copy(self._desc)

    def GetCPUDescriptorHandleForHeapStart(self) -> Any:
        return definitions.find("D3D12_CPU_DESCRIPTOR_HANDLE")(self.start)

    def GetGPUDescriptorHandleForHeapStart(self) -> Any:
        if not self.visible:
            raise Invalid(f"{self} is not visible to shaders")
        return definitions.find("D3D12_GPU_DESCRIPTOR_HANDLE")(self.start | _FOR_GPUS)

    def write(self, first: int, count: int, what: object) -> None:
        """Writes descriptors.

        Raises:
            Invalid: the GPU may still read them.
        """
        for index in range(first, first + count):
            token = self.slots[index]
            if any((self, index) in use.descriptors for use in self.uses):
                raise Invalid(
                    f"the descriptor {index} of {self} is overwritten while the GPU "
                    "may still read it"
                )
            if token is not what:
                self.slots[index] = what


def range_of(
    device: D3D12Device, handle: int, count: int, gpu: bool
) -> tuple[DescriptorHeap, int]:
    """The heap of a handle, and the index of its descriptor.

    Raises:
        Invalid: it is in none, or there are fewer descriptors from there on.
    """
    bare = handle & ~_FOR_GPUS
    name = "GPU" if gpu else "CPU"
    if gpu != bool(handle & _FOR_GPUS):
        raise Invalid(f"{handle:#x} is no handle for {name}s")
    heaps = [o for o in device.windows.alive if isinstance(o, DescriptorHeap)]
    for heap in heaps:
        index, rest = divmod(bare - heap.start, heap.INCREMENT)
        if 0 <= index < len(heap.slots):
            if heap.device is not device:
                raise Invalid(f"{heap} is of another device")
            if rest:
                raise Invalid(f"{handle:#x} is no multiple of the increment")
            if index + count > len(heap.slots):
                raise Invalid(
                    f"{count} descriptors from {index} on of {len(heap.slots)}"
                )
            return heap, index
    raise Invalid(
        f"the {name} handle {handle:#x} is of no descriptor heap that is there"
    )


def copy_descriptors(device: D3D12Device, count: int, target: int, source: int) -> None:
    """Copies descriptors between heaps, in the processor's memory.

    Raises:
        Invalid: the ranges are wrong, or the source is visible to shaders, from where
            reading is not allowed.
    """
    to, first = range_of(device, target, count, gpu=False)
    heap, start = range_of(device, source, count, gpu=False)
    if heap.visible:
        raise Invalid(f"{heap} is visible to shaders and cannot be copied from")
    for i in range(count):
        to.write(first + i, 1, heap.slots[start + i])
