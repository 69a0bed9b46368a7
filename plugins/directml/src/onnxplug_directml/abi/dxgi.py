"""dxgi.h to dxgi1_6.h, and what of dxgicommon.h they need: adapters."""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag

from onnxplug_directml.abi.types import LUID, SIZE_T, UINT, UINT16, UINT64


class DXGI_FORMAT(IntEnum):
    UNKNOWN = 0


class DXGI_SAMPLE_DESC(ctypes.Structure):
    _fields_ = (("Count", UINT), ("Quality", UINT))


class DXGI_ADAPTER_FLAG(IntFlag):
    NONE = 0
    REMOTE = 1
    SOFTWARE = 2


class DXGI_GPU_PREFERENCE(IntEnum):
    UNSPECIFIED = 0
    MINIMUM_POWER = 1
    HIGH_PERFORMANCE = 2


class DXGI_MEMORY_SEGMENT_GROUP(IntEnum):
    LOCAL = 0
    NON_LOCAL = 1


class DXGI_ADAPTER_DESC1(ctypes.Structure):
    """Its text is of code units of 16 bits, as ``wchar_t`` is on Windows."""

    _fields_ = (
        ("Description", UINT16 * 128),
        ("VendorId", UINT),
        ("DeviceId", UINT),
        ("SubSysId", UINT),
        ("Revision", UINT),
        ("DedicatedVideoMemory", SIZE_T),
        ("DedicatedSystemMemory", SIZE_T),
        ("SharedSystemMemory", SIZE_T),
        ("AdapterLuid", LUID),
        ("Flags", UINT),
    )


class DXGI_QUERY_VIDEO_MEMORY_INFO(ctypes.Structure):
    _fields_ = (
        ("Budget", UINT64),
        ("CurrentUsage", UINT64),
        ("AvailableForReservation", UINT64),
        ("CurrentReservation", UINT64),
    )
