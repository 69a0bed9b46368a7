"""d3d12.h, and what of d3dcommon.h it needs: devices, queues, buffers, barriers."""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag

from onnxplug_directml.abi.dxgi import DXGI_SAMPLE_DESC
from onnxplug_directml.abi.types import (
    BOOL,
    ENUM,
    FLAGS,
    POINTER_SIZED,
    SIZE_T,
    UINT,
    UINT16,
    UINT64,
)


class D3D_FEATURE_LEVEL(IntEnum):
    """Members are ``D3D_FEATURE_LEVEL_11_0`` and so on without ``D3D_FEATURE_``."""

    LEVEL_1_0_GENERIC = 0x100
    LEVEL_1_0_CORE = 0x1000
    LEVEL_11_0 = 0xB000
    LEVEL_11_1 = 0xB100
    LEVEL_12_0 = 0xC000
    LEVEL_12_1 = 0xC100
    LEVEL_12_2 = 0xC200


class D3D12_FEATURE(IntEnum):
    ARCHITECTURE = 1
    FEATURE_LEVELS = 2


class D3D12_FEATURE_DATA_ARCHITECTURE(ctypes.Structure):
    _fields_ = (
        ("NodeIndex", UINT),
        ("TileBasedRenderer", BOOL),
        ("UMA", BOOL),
        ("CacheCoherentUMA", BOOL),
    )


class D3D12_FEATURE_DATA_FEATURE_LEVELS(ctypes.Structure):
    _fields_ = (
        ("NumFeatureLevels", UINT),
        ("pFeatureLevelsRequested", ctypes.POINTER(ENUM)),
        ("MaxSupportedFeatureLevel", ENUM),
    )


# queues and command lists


class D3D12_COMMAND_LIST_TYPE(IntEnum):
    DIRECT = 0
    BUNDLE = 1
    COMPUTE = 2
    COPY = 3


class D3D12_COMMAND_QUEUE_PRIORITY(IntEnum):
    NORMAL = 0
    HIGH = 100
    GLOBAL_REALTIME = 10000


class D3D12_COMMAND_QUEUE_FLAGS(IntFlag):
    NONE = 0
    DISABLE_GPU_TIMEOUT = 1


class D3D12_COMMAND_QUEUE_DESC(ctypes.Structure):
    _fields_ = (
        ("Type", ENUM),
        ("Priority", ENUM),
        ("Flags", FLAGS),
        ("NodeMask", UINT),
    )


class D3D12_FENCE_FLAGS(IntFlag):
    NONE = 0
    SHARED = 1


# descriptors


class D3D12_DESCRIPTOR_HEAP_TYPE(IntEnum):
    CBV_SRV_UAV = 0
    SAMPLER = 1
    RTV = 2
    DSV = 3


class D3D12_DESCRIPTOR_HEAP_FLAGS(IntFlag):
    NONE = 0
    SHADER_VISIBLE = 1


class D3D12_DESCRIPTOR_HEAP_DESC(ctypes.Structure):
    _fields_ = (
        ("Type", ENUM),
        ("NumDescriptors", UINT),
        ("Flags", FLAGS),
        ("NodeMask", UINT),
    )


class D3D12_CPU_DESCRIPTOR_HANDLE(ctypes.Structure):
    _fields_ = (("ptr", SIZE_T),)


class D3D12_GPU_DESCRIPTOR_HANDLE(ctypes.Structure):
    _fields_ = (("ptr", UINT64),)


# heaps and resources


class D3D12_HEAP_TYPE(IntEnum):
    DEFAULT = 1
    UPLOAD = 2
    READBACK = 3
    CUSTOM = 4


class D3D12_CPU_PAGE_PROPERTY(IntEnum):
    UNKNOWN = 0
    NOT_AVAILABLE = 1
    WRITE_COMBINE = 2
    WRITE_BACK = 3


class D3D12_MEMORY_POOL(IntEnum):
    UNKNOWN = 0
    L0 = 1
    L1 = 2


class D3D12_HEAP_FLAGS(IntFlag):
    NONE = 0
    SHARED = 0x1
    ALLOW_ONLY_BUFFERS = 0xC0
    CREATE_NOT_ZEROED = 0x1000


class D3D12_HEAP_PROPERTIES(ctypes.Structure):
    _fields_ = (
        ("Type", ENUM),
        ("CPUPageProperty", ENUM),
        ("MemoryPoolPreference", ENUM),
        ("CreationNodeMask", UINT),
        ("VisibleNodeMask", UINT),
    )


class D3D12_RESOURCE_DIMENSION(IntEnum):
    UNKNOWN = 0
    BUFFER = 1


class D3D12_TEXTURE_LAYOUT(IntEnum):
    UNKNOWN = 0
    ROW_MAJOR = 1


class D3D12_RESOURCE_FLAGS(IntFlag):
    NONE = 0
    ALLOW_UNORDERED_ACCESS = 4


class D3D12_RESOURCE_STATES(IntFlag):
    """Members are ``D3D12_RESOURCE_STATE_COMMON`` and so on."""

    COMMON = 0
    UNORDERED_ACCESS = 0x8
    NON_PIXEL_SHADER_RESOURCE = 0x40
    COPY_DEST = 0x400
    COPY_SOURCE = 0x800
    GENERIC_READ = 0xAC3


class D3D12_RESOURCE_DESC(ctypes.Structure):
    _fields_ = (
        ("Dimension", ENUM),
        ("Alignment", UINT64),
        ("Width", UINT64),
        ("Height", UINT),
        ("DepthOrArraySize", UINT16),
        ("MipLevels", UINT16),
        ("Format", ENUM),
        ("SampleDesc", DXGI_SAMPLE_DESC),
        ("Layout", ENUM),
        ("Flags", FLAGS),
    )


class D3D12_RANGE(ctypes.Structure):
    """Bytes of a mapped resource; none where the end is not behind the begin."""

    _fields_ = (("Begin", SIZE_T), ("End", SIZE_T))


# barriers


class D3D12_RESOURCE_BARRIER_TYPE(IntEnum):
    TRANSITION = 0
    ALIASING = 1
    UAV = 2


class D3D12_RESOURCE_BARRIER_FLAGS(IntFlag):
    NONE = 0


class D3D12_RESOURCE_TRANSITION_BARRIER(ctypes.Structure):
    _fields_ = (
        ("pResource", POINTER_SIZED),
        ("Subresource", UINT),
        ("StateBefore", FLAGS),
        ("StateAfter", FLAGS),
    )


class D3D12_RESOURCE_ALIASING_BARRIER(ctypes.Structure):
    _fields_ = (
        ("pResourceBefore", POINTER_SIZED),
        ("pResourceAfter", POINTER_SIZED),
    )


class D3D12_RESOURCE_UAV_BARRIER(ctypes.Structure):
    _fields_ = (("pResource", POINTER_SIZED),)


class _Barriers(ctypes.Union):
    _fields_ = (
        ("Transition", D3D12_RESOURCE_TRANSITION_BARRIER),
        ("Aliasing", D3D12_RESOURCE_ALIASING_BARRIER),
        ("UAV", D3D12_RESOURCE_UAV_BARRIER),
    )


class D3D12_RESOURCE_BARRIER(ctypes.Structure):
    """By its type ``Transition``, ``Aliasing`` or ``UAV`` is set."""

    _anonymous_ = ("_barriers",)
    _fields_ = (("Type", ENUM), ("Flags", FLAGS), ("_barriers", _Barriers))
