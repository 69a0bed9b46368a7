"""A device of Direct3D 12: what it makes, and how it is lost."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .. import definitions
from .adapters import AdapterDescription
from .com import ComObject, addresses, object_at
from .commands import CommandAllocator, GraphicsCommandList
from .descriptors import DescriptorHeap, copy_descriptors
from .memory import Heap, Resource, committed, placed
from .queue import CommandQueue, Fence
from .results import (
    DXGI_ERROR_DEVICE_REMOVED,
    DXGI_ERROR_INVALID_CALL,
    Failure,
    Invalid,
)

if TYPE_CHECKING:
    from .directml import DmlDevice
    from .windows import Windows

DIRECT, COMPUTE, COPY = 0, 2, 3
"""Types of command lists."""


class DeviceChild(ComObject):
    """An object of a device, to which it refers."""

    def __init__(self, device: D3D12Device) -> None:
        super().__init__(device.windows, device)
        self.device = device

    def GetDevice(self, riid: Any, place: Any) -> int | None:
        return self.device.QueryInterface(riid, place)


class D3D12Device(ComObject):
    """A device; there is one for each adapter."""

    INTERFACE = "ID3D12Device"

    def __init__(self, windows: Windows, adapter: AdapterDescription) -> None:
        super().__init__(windows)
        self.adapter = adapter
        self.device = self
        self.removed = 0
        self.fences: set[Fence] = set()
        self.queues: set[CommandQueue] = set()
        self.directml: set[DmlDevice] = set()
        windows.devices[adapter.luid] = self

    def dispose(self) -> None:
        if self.windows.devices.get(self.adapter.luid) is self:
            del self.windows.devices[self.adapter.luid]

    def remove(self, reason: int) -> None:
        """Loses the device: work is dropped, and fences are as if all were reached."""
        self.removed = self.removed or reason
        for directml in self.directml:
            directml.removed = directml.removed or reason
        for queue in self.queues:
            queue.lost()
        for fence in self.fences:
            fence.lost()
        self.windows.changed.notify_all()

    def present(self) -> None:
        """Fails if the device is lost.

        Raises:
            Failure: it is.
        """
        if self.removed:
            raise Failure(DXGI_ERROR_DEVICE_REMOVED, "the device is removed")

    def GetNodeCount(self) -> int:
        return 1

    def GetAdapterLuid(self) -> Any:
        return self.adapter.by_parts

    def GetDeviceRemovedReason(self) -> int:
        return self.removed

    def CheckFeatureSupport(self, feature: int, place: int | None, size: int) -> None:
        d3d12 = definitions.module("d3d12")
        kinds = {
            d3d12.D3D12_FEATURE_FEATURE_LEVELS: d3d12.D3D12_FEATURE_DATA_FEATURE_LEVELS,
            d3d12.D3D12_FEATURE_ARCHITECTURE: d3d12.D3D12_FEATURE_DATA_ARCHITECTURE,
            d3d12.D3D12_FEATURE_ARCHITECTURE1: d3d12.D3D12_FEATURE_DATA_ARCHITECTURE1,
        }
        if feature not in kinds:
            raise Invalid(f"the stand-in knows nothing of the feature {feature}")
        kind = kinds[feature]
        if not place or size != ctypes.sizeof(kind):
            raise Invalid(f"{size} bytes for {kind.__name__} of {ctypes.sizeof(kind)}")
        data = kind.from_address(place)
        if feature == d3d12.D3D12_FEATURE_FEATURE_LEVELS:
            count = data.NumFeatureLevels
            asked = [data.pFeatureLevelsRequested[i] for i in range(count)]
            known = [level for level in asked if level <= self.adapter.level]
            if not known:
                raise Failure(DXGI_ERROR_INVALID_CALL, "no level of these is supported")
            data.MaxSupportedFeatureLevel = max(known)
            return
        data.TileBasedRenderer = 0
        data.UMA = data.CacheCoherentUMA = int(self.adapter.integrated)

    def CreateCommandQueue(self, desc: Any, riid: Any, place: Any) -> None:
        self.present()
        kind = desc.contents.Type
        self._type_of_lists(kind)
        CommandQueue(self, kind).hand_out(riid, place)

    def _type_of_lists(self, kind: int) -> None:
        if kind not in (DIRECT, COMPUTE, COPY):
            raise Invalid(f"command lists of type {kind} are not for compute")
        if kind == DIRECT and not self.adapter.for_graphics:
            raise Invalid(f"{self.adapter.name} has no direct queue: it only computes")

    def CreateCommandAllocator(self, kind: int, riid: Any, place: Any) -> None:
        self.present()
        self._type_of_lists(kind)
        CommandAllocator(self, kind).hand_out(riid, place)

    def CreateCommandList(
        self,
        node: int,
        kind: int,
        allocator: int | None,
        state: int | None,
        riid: Any,
        place: Any,
    ) -> None:
        self.present()
        found = object_at(allocator, CommandAllocator, "the command allocator")
        if state:
            raise Invalid("the stand-in has no pipeline states")
        if found.kind != kind:
            raise Invalid(f"an allocator of type {found.kind} for a list of {kind}")
        found.begin(None)
        GraphicsCommandList(self, found).hand_out(riid, place)

    def CreateDescriptorHeap(self, desc: Any, riid: Any, place: Any) -> None:
        self.present()
        DescriptorHeap(self, desc.contents).hand_out(riid, place)

    def GetDescriptorHandleIncrementSize(self, kind: int) -> int:
        return DescriptorHeap.INCREMENT

    def CopyDescriptorsSimple(
        self, count: int, target: Any, source: Any, kind: int
    ) -> None:
        copy_descriptors(self, count, target.ptr, source.ptr)

    def CreateFence(self, value: int, flags: int, riid: Any, place: Any) -> None:
        self.present()
        Fence(self, value).hand_out(riid, place)

    def CreateCommittedResource(
        self,
        properties: Any,
        flags: int,
        desc: Any,
        state: int,
        clear: Any,
        riid: Any,
        place: Any,
    ) -> None:
        self.present()
        if clear:
            raise Invalid("a buffer has no value to clear it with")
        committed(self, properties.contents, flags, desc.contents, state).hand_out(
            riid, place
        )

    def CreateHeap(self, desc: Any, riid: Any, place: Any) -> None:
        self.present()
        Heap(self, desc.contents).hand_out(riid, place)

    def CreatePlacedResource(
        self,
        heap: int | None,
        offset: int,
        desc: Any,
        state: int,
        clear: Any,
        riid: Any,
        place: Any,
    ) -> None:
        self.present()
        found = object_at(heap, Heap, "the heap")
        placed(self, found, offset, desc.contents, state).hand_out(riid, place)

    def GetResourceAllocationInfo(self, mask: int, count: int, descs: Any) -> Any:
        sizes = [-(-descs[i].Width // 65536) * 65536 for i in range(count)]
        info = definitions.find("D3D12_RESOURCE_ALLOCATION_INFO")
        return info(sum(sizes), 65536)

    def MakeResident(self, count: int, objects: Any) -> None:
        self.present()
        for address in addresses(objects, count):
            object_at(address, Resource, "an object to make resident")

    def Evict(self, count: int, objects: Any) -> None:
        self.present()
        for address in addresses(objects, count):
            found = object_at(address, Resource, "an object to evict")
            if found.uses:
                raise Invalid(f"{found} is evicted while the GPU may use it")
