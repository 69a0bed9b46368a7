"""Adapters: what they are, and how DXGI and DXCore show them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import definitions
from .com import ComObject
from .results import DXGI_ERROR_NOT_FOUND, E_INVALIDARG, E_POINTER, Failure, Invalid

if TYPE_CHECKING:
    from .windows import Windows

ALL_TYPES = frozenset(
    "FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8".split()
)
D3D_FEATURE_LEVEL_1_0_GENERIC = 0x100
D3D_FEATURE_LEVEL_1_0_CORE = 0x1000
D3D_FEATURE_LEVEL_11_0 = 0xB000
D3D_FEATURE_LEVEL_12_1 = 0xC100


@dataclass(frozen=True)
class AdapterDescription:
    """An adapter.

    Attributes:
        name: as users know it.
        kind: ``gpu``, ``npu`` or ``software``.
        luid: its identifier as 64 bits, the high part of which is signed in Windows.
        memory: bytes that it has for resources.
        level: the highest ``D3D_FEATURE_LEVEL``.
        data_types: that DirectML computes with on it.
        integrated: whether it shares the processor's memory.
    """

    name: str
    kind: str
    luid: int
    vendor: int
    device: int
    memory: int = 4 << 30
    level: int = D3D_FEATURE_LEVEL_12_1
    data_types: frozenset[str] = ALL_TYPES
    integrated: bool = False

    @property
    def for_graphics(self) -> bool:
        """Whether it draws, and so has direct queues, and is listed by DXGI."""
        return self.level >= D3D_FEATURE_LEVEL_11_0

    @property
    def by_parts(self) -> Any:
        """The identifier as Windows' structure."""
        high = ctypes.c_int32(self.luid >> 32).value
        return definitions.find("LUID")(self.luid & 0xFFFFFFFF, high)


GPU = AdapterDescription("Stand-in GPU", "gpu", 0x1_0000_C0DE, 0x10DE, 0x2684)
NPU = AdapterDescription(
    "Stand-in NPU",
    "npu",
    0x2_0000_BEEF,
    0x8086,
    0x643E,
    level=D3D_FEATURE_LEVEL_1_0_GENERIC,
    data_types=frozenset("FLOAT16 FLOAT32 INT32 INT64 INT8 UINT8 UINT32".split()),
    integrated=True,
)
SOFTWARE = AdapterDescription(
    "Microsoft Basic Render Driver", "software", 0x3_0000_0008, 0x1414, 0x8C
)


def luid_of(parts: Any) -> int:
    """The 64 bits of Windows' structure."""
    return int((parts.HighPart & 0xFFFFFFFF) << 32 | parts.LowPart)


class DxgiFactory(ComObject):
    """Lists adapters that draw, in their order."""

    INTERFACE = "IDXGIFactory6"

    def listed(self) -> list[AdapterDescription]:
        return [a for a in self.windows.adapters if a.for_graphics]

    def _adapter(self, found: list[AdapterDescription], index: int) -> DxgiAdapter:
        if index >= len(found):
            raise Failure(DXGI_ERROR_NOT_FOUND, f"there is no adapter {index}")
        return DxgiAdapter(self.windows, found[index], self)

    def EnumAdapters(self, index: int, place: Any) -> None:
        self._adapter(self.listed(), index).hand_out(None, _pointers(place))

    def EnumAdapters1(self, index: int, place: Any) -> None:
        self.EnumAdapters(index, place)

    def IsCurrent(self) -> int:
        return 1

    def EnumAdapterByLuid(self, luid: Any, riid: Any, place: Any) -> None:
        found = [a for a in self.listed() if a.luid == luid_of(luid)]
        self._adapter(found, 0).hand_out(riid, place)

    def EnumWarpAdapter(self, riid: Any, place: Any) -> None:
        found = [a for a in self.listed() if a.kind == "software"]
        self._adapter(found, 0).hand_out(riid, place)

    def EnumAdapterByGpuPreference(
        self, index: int, preference: int, riid: Any, place: Any
    ) -> None:
        # 1 is the least power, 2 the most performance; software always comes last
        found = self.listed()
        if preference:
            found.sort(key=lambda a: a.integrated != (preference == 1))
        found.sort(key=lambda a: a.kind == "software")
        self._adapter(found, index).hand_out(riid, place)


class DxgiAdapter(ComObject):
    """An adapter as DXGI shows it."""

    INTERFACE = "IDXGIAdapter4"

    def __init__(
        self, windows: Windows, description: AdapterDescription, parent: ComObject
    ) -> None:
        super().__init__(windows, parent)
        self.description = description

    def _describe(self, place: Any) -> None:
        if not place:
            raise Invalid("GetDesc needs a place for the description", E_INVALIDARG)
        found, described = self.description, place.contents
        text = found.name.encode("utf-16-le")
        ctypes.memmove(described.Description, text + b"\0\0", len(text) + 2)
        described.VendorId, described.DeviceId = found.vendor, found.device
        described.DedicatedVideoMemory = 0 if found.integrated else found.memory
        described.SharedSystemMemory = found.memory
        described.AdapterLuid = found.by_parts

    def GetDesc(self, place: Any) -> None:
        self._describe(place)

    def GetDesc1(self, place: Any) -> None:
        self._describe(place)
        place.contents.Flags = 2 if self.description.kind == "software" else 0

    GetDesc2 = GetDesc3 = GetDesc1

    def GetParent(self, riid: Any, place: Any) -> int | None:
        assert self.parent is not None
        return self.parent.QueryInterface(riid, place)

    def CheckInterfaceSupport(self, guid: Any, version: Any) -> None:
        if version:
            version[0] = 31 << 48 | 15 << 16 | 1

    def QueryVideoMemoryInfo(self, node: int, group: int, place: Any) -> None:
        found = self.description
        local = group == 0
        place.contents.Budget = found.memory if local else found.memory // 2
        used = self.windows.memory_used.get(found.luid, 0)
        place.contents.CurrentUsage = used if local else 0


class DxcoreFactory(ComObject):
    """Lists all adapters, also those that only compute, by attributes."""

    INTERFACE = "IDXCoreAdapterFactory1"

    def CreateAdapterList(
        self, count: int, attributes: Any, riid: Any, place: Any
    ) -> None:
        if not count or not attributes:
            raise Invalid("CreateAdapterList needs at least one attribute")
        wanted = [bytes(attributes[i]) for i in range(count)]
        found = [
            a
            for a in self.windows.adapters
            if all(w in attributes_of(a) for w in wanted)
        ]
        DxcoreList(self.windows, found, self).hand_out(riid, place)

    def GetAdapterByLuid(self, luid: Any, riid: Any, place: Any) -> None:
        for found in self.windows.adapters:
            if found.luid == luid_of(luid.contents):
                DxcoreAdapter(self.windows, found, self).hand_out(riid, place)
                return
        raise Failure(E_INVALIDARG, "no adapter has this LUID")

    def IsNotificationTypeSupported(self, kind: int) -> bool:
        return False


class DxcoreList(ComObject):
    """Adapters that have all attributes that were asked for."""

    INTERFACE = "IDXCoreAdapterList"

    def __init__(
        self, windows: Windows, found: list[AdapterDescription], parent: ComObject
    ) -> None:
        super().__init__(windows, parent)
        self.found = found

    def GetAdapter(self, index: int, riid: Any, place: Any) -> None:
        if index >= len(self.found):
            raise Invalid(f"GetAdapter: {index} of a list of {len(self.found)}")
        DxcoreAdapter(self.windows, self.found[index], self).hand_out(riid, place)

    def GetAdapterCount(self) -> int:
        return len(self.found)

    def IsStale(self) -> bool:
        return False

    def GetFactory(self, riid: Any, place: Any) -> int | None:
        assert self.parent is not None
        return self.parent.QueryInterface(riid, place)

    def IsAdapterPreferenceSupported(self, preference: int) -> bool:
        return True

    def Sort(self, count: int, preferences: Any) -> None:
        self.found.sort(key=lambda a: a.kind == "software")


class DxcoreAdapter(ComObject):
    """An adapter as DXCore shows it."""

    INTERFACE = "IDXCoreAdapter1"

    def __init__(
        self, windows: Windows, description: AdapterDescription, parent: ComObject
    ) -> None:
        super().__init__(windows, parent)
        self.description = description

    def IsValid(self) -> bool:
        return True

    def IsAttributeSupported(self, attribute: Any) -> bool:
        return bytes(attribute.contents) in attributes_of(self.description)

    def IsPropertySupported(self, prop: Any) -> bool:
        return int(getattr(prop, "value", prop)) in properties_of(self.description)

    def GetPropertySize(self, prop: Any, place: Any) -> None:
        place[0] = len(self._property(prop))

    def GetProperty(self, prop: Any, size: int, place: int | None) -> None:
        value = self._property(prop)
        if not place or size < len(value):
            raise Invalid(f"GetProperty: {size} bytes for one of {len(value)}")
        ctypes.memmove(place, value, len(value))

    def _property(self, prop: Any) -> bytes:
        number = int(getattr(prop, "value", prop))
        found = properties_of(self.description)
        if number not in found:
            raise Failure(E_INVALIDARG, f"the property {number} is not supported")
        return found[number]

    def GetFactory(self, riid: Any, place: Any) -> int | None:
        assert self.parent is not None
        factory: ComObject = self.parent
        while not isinstance(factory, DxcoreFactory):
            assert factory.parent is not None
            factory = factory.parent
        return factory.QueryInterface(riid, place)


def attributes_of(adapter: AdapterDescription) -> set[bytes]:
    """The attributes of DXCore that an adapter has."""
    names = ["DXCORE_ADAPTER_ATTRIBUTE_D3D12_GENERIC_ML"]
    if adapter.level >= D3D_FEATURE_LEVEL_1_0_CORE:
        names.append("DXCORE_ADAPTER_ATTRIBUTE_D3D12_CORE_COMPUTE")
    if adapter.for_graphics:
        names.append("DXCORE_ADAPTER_ATTRIBUTE_D3D12_GRAPHICS")
    if adapter.kind in ("gpu", "npu"):
        names.append(f"DXCORE_HARDWARE_TYPE_ATTRIBUTE_{adapter.kind.upper()}")
    return {bytes(getattr(definitions.module("dxcore"), name)) for name in names}


def properties_of(adapter: AdapterDescription) -> dict[int, bytes]:
    """The properties of DXCore that an adapter has, by number."""
    names = definitions.module("dxcore").DXCoreAdapterProperty
    hardware = definitions.module("dxcore").DXCoreHardwareID(
        adapter.vendor, adapter.device, 0, 0
    )
    dedicated = 0 if adapter.integrated else adapter.memory
    return {
        names.InstanceLuid: bytes(adapter.by_parts),
        names.DriverVersion: (31 << 48 | 15 << 16 | 1).to_bytes(8, "little"),
        names.DriverDescription: adapter.name.encode() + b"\0",
        names.HardwareID: bytes(hardware),
        names.DedicatedAdapterMemory: dedicated.to_bytes(8, "little"),
        names.DedicatedSystemMemory: bytes(8),
        names.SharedSystemMemory: adapter.memory.to_bytes(8, "little"),
        names.IsHardware: bytes([adapter.kind != "software"]),
        names.IsIntegrated: bytes([adapter.integrated]),
        names.IsDetachable: bytes(1),
    }


def _pointers(place: Any) -> Any:
    if not place:
        raise Invalid("there is no place for the adapter", E_POINTER)
    return ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))
