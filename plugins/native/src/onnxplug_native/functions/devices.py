"""Hardware, pairs of EPs and hardware, and places in memory."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from onnxplug import ep
from onnxplug_native.functions.environment import KeyValuePairs
from onnxplug_native.interface.arena import placed
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import put_int, put_pointer
from onnxplug_native.interface.structure import Structure

_TYPES: Final = (ep.DeviceType.CPU, ep.DeviceType.GPU, ep.DeviceType.NPU)

HOST_ACCESSIBLE: Final = 5
"""The type of memory that the processor reads and writes, too."""

READ_ONLY: Final = 2
"""The type of allocators of memory for weights."""


class Hardware(Handle):
    """A device that an EP may drive.

    Attributes:
        device: what is known of it.
        metadata: of that, the further facts.
    """

    def __init__(self, device: ep.HardwareDevice) -> None:
        super().__init__()
        self.device = device
        self.metadata = KeyValuePairs(device.metadata)

    def release(self) -> None:
        """Release it and its facts."""
        self.metadata.release()
        super().release()


@dataclass(frozen=True, slots=True)
class Place:
    """A place in memory.

    Attributes:
        device_type: 0 for the processor's, 1 a GPU's, 2 an FPGA's, 3 an NPU's.
        memory_type: 0 for the device's own, 5 for what the processor can use, too.
        vendor_id: the device's maker; 0 for any.
        device_id: which device.
    """

    device_type: int = 0
    memory_type: int = 0
    vendor_id: int = 0
    device_id: int = 0

    @property
    def is_host(self) -> bool:
        """Whether numpy can use what lies there."""
        return self.device_type == 0 or self.memory_type == HOST_ACCESSIBLE


class MemoryDevice(Handle):
    """A place in memory.

    Attributes:
        place: it.
    """

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


INFO_TAG: Final = 0x6F6E6E78_696E666F
"""What the memory of what is known of an allocator ends with."""


class InfoMemory(ctypes.Structure):
    """What lies at the address of a :class:`MemoryInfo`.

    WebGPU's library copies it as the C++ structure that it is in ONNX Runtime, which
    the interface does not promise: a ``std::string`` of libstdc++, two enums, and the
    device.  What such a copy does not read, compiled entries do.

    Attributes:
        name: where the allocator's name is.
        length: the bytes of that.
        device_type: see :class:`Place`, for compiled entries.
        device_id: see there, too.
        memory_kind: 0, the EP's own.
        allocator_type: see :class:`MemoryInfo`.
        short_type: the device's type again, as C++ has it, and so what follows.
        short_memory_type: the type of its memory.
        short_id: which device.
        vendor_id: its maker.
        alignment: in bytes.
        tag: :data:`INFO_TAG` while it lives.
    """

    _fields_: ClassVar = [
        ("name", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("unread", ctypes.c_uint64),
        ("memory_kind", ctypes.c_int32),
        ("allocator_type", ctypes.c_int32),
        ("short_type", ctypes.c_int8),
        ("short_memory_type", ctypes.c_int8),
        ("short_id", ctypes.c_int16),
        ("vendor_id", ctypes.c_uint32),
        ("alignment", ctypes.c_uint64),
        ("tag", ctypes.c_uint64),
    ]


class MemoryInfo(Handle):
    """What an allocator allocates.

    Attributes:
        name: of the allocator.
        device: where.
        alignment: in bytes; 0 for any.
        allocator_type: see ONNX Runtime's ``OrtAllocatorType``.
    """

    def __init__(
        self, name: str, place: Place, alignment: int = 0, allocator_type: int = 0
    ) -> None:
        self.memory = memory = placed(InfoMemory)
        super().__init__(memory)
        memory.name, memory.length = self.text(name), len(name.encode())
        memory.device_type = memory.short_type = place.device_type
        memory.device_id = memory.short_id = place.device_id
        memory.short_memory_type = place.memory_type
        memory.vendor_id = place.vendor_id
        memory.allocator_type, memory.alignment = allocator_type, alignment
        memory.tag = INFO_TAG
        self.name = name
        self.device = MemoryDevice(place)
        self.alignment = alignment
        self.allocator_type = allocator_type

    @property
    def place(self) -> Place:
        """Where."""
        return self.device.place

    def copy(self) -> MemoryInfo:
        """One like it, for somebody else to release."""
        return MemoryInfo(self.name, self.place, self.alignment, self.allocator_type)

    def release(self) -> None:
        """Release it and its device."""
        self.memory.tag = 0
        self.device.release()
        super().release()


HOST_PLACE: Final = Place()


@functools.cache
def host_memory() -> MemoryInfo:
    """Ordinary memory, of which libraries know one thing for ever."""
    return MemoryInfo("Cpu", HOST_PLACE)


class Device(Handle):
    """A pair of an EP and hardware, as a library makes it.

    Attributes:
        factory: the address of the EP's factory.
        hardware: the hardware.
        metadata: facts about the pair.
        options: what the EP suggests for it.
        memories: what is allocated for it, in the order in which it was said.
    """

    def __init__(
        self,
        factory: int,
        hardware: Hardware,
        metadata: Mapping[str, str],
        options: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.factory = factory
        self.hardware = hardware
        self.metadata = KeyValuePairs(metadata)
        self.options = KeyValuePairs(options)
        self.memories: list[MemoryInfo] = []

    def release(self) -> None:
        """Release it and what belongs to it; the hardware stays."""
        for each in (self.metadata, self.options, *self.memories):
            each.release()
        super().release()


class IncompatibilityDetails(Handle):
    """Why an EP cannot drive a device, as a library says it.

    Attributes:
        reasons: bits; 0 if it can.
        notes: in words.
        code: a number of the library's own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons = 0
        self.notes = ""
        self.code = 0


# Hardware


@implements("HardwareDevice_Type")
def hardware_type(device: int) -> int:
    """What kind of device."""
    return _TYPES.index(find(Hardware, device).device.type)


@implements("HardwareDevice_VendorId")
def hardware_vendor_id(device: int) -> int:
    """The maker's PCI id."""
    return find(Hardware, device).device.vendor_id


@implements("HardwareDevice_Vendor")
def hardware_vendor(device: int) -> int:
    """The maker's name."""
    found = find(Hardware, device)
    return found.text(found.device.vendor)


@implements("HardwareDevice_DeviceId")
def hardware_device_id(device: int) -> int:
    """The device's PCI id."""
    return find(Hardware, device).device.device_id


@implements("HardwareDevice_Metadata")
def hardware_metadata(device: int) -> int:
    """Further facts."""
    return find(Hardware, device).metadata.address


@implements("CreateHardwareDevice", "OrtEpApi")
def create_hardware_device(
    kind: int,
    vendor_id: int,
    device_id: int,
    vendor: bytes | None,
    metadata: int | None,
    out: int,
) -> None:
    """A device that is not there, which libraries make to compile for it."""
    if not 0 <= kind < len(_TYPES):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{kind} is no type of hardware")
    put_pointer(
        out,
        Hardware(
            ep.HardwareDevice(
                type=_TYPES[kind],
                vendor=(vendor or b"").decode("utf-8", "replace"),
                vendor_id=vendor_id,
                device_id=device_id,
                metadata=find(KeyValuePairs, metadata).pairs if metadata else {},
            )
        ),
    )


# Pairs


@implements("CreateEpDevice", "OrtEpApi")
def create_ep_device(
    factory: int, hardware: int, metadata: int | None, options: int | None, out: int
) -> None:
    """A pair; of the facts and options it has copies."""
    device = Device(
        factory,
        find(Hardware, hardware),
        find(KeyValuePairs, metadata).pairs if metadata else {},
        find(KeyValuePairs, options).pairs if options else {},
    )
    put_pointer(out, device)


@implements("EpDevice_AddAllocatorInfo", "OrtEpApi")
def add_allocator_info(device: int, memory: int) -> None:
    """A kind of memory that is allocated for the pair; the last of each kind."""
    info = find(MemoryInfo, memory)
    memories = find(Device, device).memories

    def kind(other: MemoryInfo) -> tuple[int, bool]:
        return other.place.memory_type, other.allocator_type == READ_ONLY

    for other in [each for each in memories if kind(each) == kind(info)]:
        other.release()
        memories.remove(other)
    memories.append(info.copy())


def _factory(device: int) -> Structure:
    return Structure("OrtEpFactory", find(Device, device).factory, "a library")


@implements("EpDevice_EpName")
def ep_device_name(device: int) -> int:
    """The name of a pair's EP."""
    return find(Device, device).text(_factory(device).text("GetName"))


@implements("EpDevice_EpVendor")
def ep_device_vendor(device: int) -> int:
    """Who made a pair's EP."""
    return find(Device, device).text(_factory(device).text("GetVendor"))


@implements("EpDevice_EpMetadata")
def ep_device_metadata(device: int) -> int:
    """The facts about a pair."""
    return find(Device, device).metadata.address


@implements("EpDevice_EpOptions")
def ep_device_options(device: int) -> int:
    """The options that the EP suggests for a pair."""
    return find(Device, device).options.address


@implements("EpDevice_Device")
def ep_device_device(device: int) -> int:
    """The hardware of a pair."""
    return find(Device, device).hardware.address


@implements("EpDevice_MemoryInfo")
def ep_device_memory_info(device: int, kind: int) -> int | None:
    """What is allocated for a pair in memory of a *kind*; null if nothing is."""
    for info in find(Device, device).memories:
        if info.place.memory_type == kind and info.allocator_type != READ_ONLY:
            return info.address
    return None


@implements("DeviceEpIncompatibilityDetails_SetDetails", "OrtEpApi")
def set_incompatibility_details(
    details: int, reasons: int, code: int, notes: bytes | None
) -> None:
    """Why an EP cannot drive a device."""
    found = find(IncompatibilityDetails, details)
    found.reasons, found.code = reasons, code
    found.notes = (notes or b"").decode("utf-8", "replace")


# Memory


@implements("CreateMemoryInfo_V2")
def create_memory_info_v2(
    name: bytes | None,
    device_type: int,
    vendor_id: int,
    device_id: int,
    memory_type: int,
    alignment: int,
    allocator_type: int,
    out: int,
) -> None:
    """What an allocator of a library allocates."""
    place = Place(device_type, memory_type, vendor_id, device_id)
    text = (name or b"").decode("utf-8", "replace")
    put_pointer(out, MemoryInfo(text, place, alignment, allocator_type))


@implements("CreateMemoryInfo")
def create_memory_info(
    name: bytes | None, allocator_type: int, device_id: int, _: int, out: int
) -> None:
    """What an allocator allocates, by its name, as older libraries say it."""
    text = (name or b"").decode("utf-8", "replace")
    device_type = 0 if text.startswith("Cpu") else 1
    place = Place(device_type, 0, 0, device_id)
    put_pointer(out, MemoryInfo(text, place, 0, allocator_type))


@implements("CreateCpuMemoryInfo")
def create_cpu_memory_info(allocator_type: int, _: int, out: int) -> None:
    """Ordinary memory."""
    put_pointer(out, MemoryInfo("Cpu", HOST_PLACE, 0, allocator_type))


@implements("CompareMemoryInfo")
def compare_memory_info(first: int, second: int, out: int) -> None:
    """0 if two are equal, -1 otherwise."""
    a, b = find(MemoryInfo, first), find(MemoryInfo, second)
    equal = (a.name, a.place, a.allocator_type) == (b.name, b.place, b.allocator_type)
    put_int(out, 0 if equal else -1)


@implements("MemoryInfoGetName")
def memory_info_get_name(info: int, out: int) -> None:
    """The allocator's name."""
    found = find(MemoryInfo, info)
    put_pointer(out, found.text(found.name))


@implements("MemoryInfoGetId")
def memory_info_get_id(info: int, out: int) -> None:
    """Which device."""
    put_int(out, find(MemoryInfo, info).place.device_id)


@implements("MemoryInfoGetMemType")
def memory_info_get_mem_type(info: int, out: int) -> None:
    """0, or -1 for what the processor uses of a device's memory."""
    place = find(MemoryInfo, info).place
    put_int(out, -1 if place.memory_type == HOST_ACCESSIBLE else 0)


@implements("MemoryInfoGetType")
def memory_info_get_type(info: int, out: int) -> None:
    """The allocator's type."""
    put_int(out, find(MemoryInfo, info).allocator_type)


@implements("MemoryInfoGetDeviceType")
def memory_info_get_device_type(info: int, out: int) -> None:
    """What kind of device."""
    put_int(out, find(MemoryInfo, info).place.device_type)


@implements("MemoryInfoGetDeviceMemType")
def memory_info_get_device_mem_type(info: int) -> int:
    """What kind of the device's memory."""
    return find(MemoryInfo, info).place.memory_type


@implements("MemoryInfoGetVendorId")
def memory_info_get_vendor_id(info: int) -> int:
    """The device's maker."""
    return find(MemoryInfo, info).place.vendor_id


@implements("MemoryInfo_GetMemoryDevice", "OrtEpApi")
def memory_info_get_memory_device(info: int) -> int:
    """Where it is, which lives as long."""
    return find(MemoryInfo, info).device.address


@implements("MemoryDevice_AreEqual", "OrtEpApi")
def memory_device_are_equal(first: int, second: int) -> bool:
    """Whether two places are the same."""
    return find(MemoryDevice, first).place == find(MemoryDevice, second).place


@implements("MemoryDevice_GetDeviceType", "OrtEpApi")
def memory_device_get_device_type(device: int) -> int:
    """What kind of device."""
    return find(MemoryDevice, device).place.device_type


@implements("MemoryDevice_GetMemoryType", "OrtEpApi")
def memory_device_get_memory_type(device: int) -> int:
    """What kind of the device's memory."""
    return find(MemoryDevice, device).place.memory_type


@implements("MemoryDevice_GetVendorId", "OrtEpApi")
def memory_device_get_vendor_id(device: int) -> int:
    """The device's maker."""
    return find(MemoryDevice, device).place.vendor_id


@implements("MemoryDevice_GetDeviceId", "OrtEpApi")
def memory_device_get_device_id(device: int) -> int:
    """Which device."""
    return find(MemoryDevice, device).place.device_id
