"""Memories and their devices, as ONNX Runtime names them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from onnxplug.ep import HOST, MemoryLocation
from onnxplug.errors import InvalidArgument
from onnxplug_onnxruntime.leniency import log_without_effect


class OrtAllocatorType(IntEnum):
    """Whether memory comes from an arena; here it never does."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """What memory is for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Who can read a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """The kind of device that has a memory."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceVendorId(IntEnum):
    """PCI ids of vendors."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtMemoryInfo:
    """What is known of a memory.

    Attributes:
        name: the memory's, ``Cpu`` for the host's.
        device_id: which of its devices, counted from 0.
    """

    def __init__(
        self,
        name: str,
        allocator_type: OrtAllocatorType,
        device_id: int,
        mem_type: OrtMemType,
    ) -> None:
        self.name = name
        self.device_id = int(device_id)
        self.allocator_type = OrtAllocatorType(allocator_type)
        self.mem_type = OrtMemType(mem_type)
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = int(OrtDeviceVendorId.NONE)

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """One of a vendor's device; *device_type* and *alignment* are not kept."""
        info = OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)
        info.device_mem_type = OrtDeviceMemoryType(mem_type)
        info.device_vendor_id = int(vendor_id)
        return info

    @property
    def location(self) -> MemoryLocation:
        """Where that is."""
        space = self.name.lower()
        return HOST if space == "cpu" else MemoryLocation(space, self.device_id)

    def __repr__(self) -> str:
        return f"OrtMemoryInfo({self.name!r}, {self.device_id})"


HOST_MEMORY: Final = OrtMemoryInfo(
    "Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT
)
"""Ordinary memory."""


def memory_info(location: MemoryLocation) -> OrtMemoryInfo:
    """What is known of the memory at *location*."""
    if location == HOST:
        return HOST_MEMORY
    kind = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    info = OrtMemoryInfo(
        location.space.capitalize(), kind, location.ordinal, OrtMemType.DEFAULT
    )
    if location.host_accessible:
        info.device_mem_type = OrtDeviceMemoryType.HOST_ACCESSIBLE
    return info


_KINDS: Final[Mapping[str, tuple[int, int]]] = {
    "cpu": (0, OrtDeviceVendorId.NONE),
    "gpu": (1, OrtDeviceVendorId.NONE),
    "webgpu": (1, OrtDeviceVendorId.NONE),
    "cuda": (1, OrtDeviceVendorId.NVIDIA),
    "dml": (1, OrtDeviceVendorId.MICROSOFT),
    "npu": (3, OrtDeviceVendorId.NONE),
    "cann": (3, OrtDeviceVendorId.HUAWEI),
}
"""The device types of ONNX Runtime by name, and their vendors."""

_NAMES: Final = {0: "cpu", 1: "gpu", 3: "npu"}


class OrtDevice:
    """A place for values.

    Args:
        device_type: the number of its kind, such as :meth:`cpu` gives.
        mem_type: the number of :class:`OrtDeviceMemoryType`.
        place: the vendor's id, which may be left out, and which device, from 0.

    Attributes:
        name: what onnxplug calls such devices, ``cuda``.
    """

    def __init__(self, device_type: int, mem_type: int, *place: int) -> None:
        *vendor, ordinal = place
        self._kind = int(device_type), int(vendor[0]) if vendor else 0
        self._mem_type = int(mem_type)
        self._ordinal = int(ordinal)
        known = [name for name, kind in _KINDS.items() if kind == self._kind]
        self.name = known[0] if known else _NAMES.get(self._kind[0], "gpu")

    @staticmethod
    def make(
        ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1
    ) -> OrtDevice:
        """The device of a name such as ``cuda``.

        Raises:
            InvalidArgument: there is no such name.
        """
        if ort_device_name not in _KINDS:
            raise InvalidArgument(
                f"Unsupported device type: {ort_device_name}; expected one of "
                f"{', '.join(_KINDS)}"
            )
        kind, vendor = _KINDS[ort_device_name]
        vendor = vendor if vendor_id < 0 else int(vendor_id)
        made = OrtDevice(kind, OrtDeviceMemoryType.DEFAULT, vendor, device_id)
        made.name = ort_device_name
        return made

    @staticmethod
    def cpu() -> int:
        """The number of the kind that is the host."""
        return 0

    @staticmethod
    def gpu() -> int:
        """The number of the kind of all GPUs."""
        return 1

    cuda = dml = webgpu = gpu

    @staticmethod
    def fpga() -> int:
        """The number of the kind of FPGAs."""
        return 2

    @staticmethod
    def npu() -> int:
        """The number of the kind of NPUs."""
        return 3

    cann = npu

    @staticmethod
    def default_memory() -> int:
        """The number of the memory that is a device's own."""
        return int(OrtDeviceMemoryType.DEFAULT)

    def device_id(self) -> int:
        """Which device, counted from 0."""
        return self._ordinal

    def device_type(self) -> int:
        """The number of its kind."""
        return self._kind[0]

    def device_vendor_id(self) -> int:
        """Its vendor's PCI id; 0 when unknown."""
        return self._kind[1]

    vendor_id = device_vendor_id

    def device_mem_type(self) -> int:
        """The number of :class:`OrtDeviceMemoryType`."""
        return self._mem_type

    mem_type = device_mem_type

    def _get_c_device(self) -> OrtDevice:
        return self

    def __repr__(self) -> str:
        return f"OrtDevice({self.name!r}, {self._ordinal})"


def get_ort_device_type(device_type: str) -> int:
    """The number of a kind of device, ``cuda`` and so on.

    Raises:
        InvalidArgument: there is no such kind.
    """
    return OrtDevice.make(device_type, 0).device_type()


class OrtArenaCfg:
    """Settings of an arena, which nothing here has; they are kept as they are given.

    Args:
        settings: the first four, in this order, or a mapping of any by name.
    """

    def __init__(self, *settings: Any) -> None:
        self.max_mem = 0
        self.arena_extend_strategy = -1
        self.initial_chunk_size_bytes = -1
        self.max_dead_bytes_per_chunk = -1
        self.initial_growth_chunk_size_bytes = -1
        self.max_power_of_two_extend_bytes = -1
        one = len(settings) == 1
        given = settings[0] if one else zip(vars(self), settings, strict=False)
        for name, value in dict(given).items():
            if name not in vars(self):
                raise InvalidArgument(f"there is no setting {name!r} of an arena")
            setattr(self, name, int(value))


def create_and_register_allocator(
    mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None
) -> None:
    """Does nothing: EPs own their memory."""
    log_without_effect(
        "create_and_register_allocator has no effect: EPs own their memory"
    )


def create_and_register_allocator_v2(
    provider_type: str,
    mem_info: OrtMemoryInfo,
    options: Mapping[str, str],
    arena_cfg: OrtArenaCfg | None,
) -> None:
    """Does nothing: EPs own their memory."""
    create_and_register_allocator(mem_info, arena_cfg)
