"""Interfaces of d3d12.h."""

from __future__ import annotations

from ctypes import POINTER, c_void_p

from onnxplug_directml.abi import guids
from onnxplug_directml.abi.d3d12 import (
    D3D12_COMMAND_QUEUE_DESC,
    D3D12_CPU_DESCRIPTOR_HANDLE,
    D3D12_DESCRIPTOR_HEAP_DESC,
    D3D12_GPU_DESCRIPTOR_HANDLE,
    D3D12_HEAP_PROPERTIES,
    D3D12_RANGE,
    D3D12_RESOURCE_BARRIER,
    D3D12_RESOURCE_DESC,
)
from onnxplug_directml.abi.types import (
    ENUM,
    FLAGS,
    HRESULT,
    LUID,
    POINTER_SIZED,
    UINT,
    UINT64,
)
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import (
    CHECKED,
    Array,
    Creates,
    DataThenSize,
    Fills,
    Text,
)
from onnxplug_directml.com.unknown import IUnknown


class ID3D12Object(IUnknown):
    SetName = Method(6, CHECKED, Text())


class ID3D12Fence(ID3D12Object):
    IID = guids.IID_ID3D12Fence
    GetCompletedValue = Method(8, UINT64)
    SetEventOnCompletion = Method(9, CHECKED, UINT64, POINTER_SIZED)
    Signal = Method(10, CHECKED, UINT64)


class ID3D12Resource(ID3D12Object):
    IID = guids.IID_ID3D12Resource
    Map = Method(8, Fills(c_void_p), UINT, POINTER(D3D12_RANGE))
    Unmap = Method(9, None, UINT, POINTER(D3D12_RANGE))
    GetDesc = Method(10, D3D12_RESOURCE_DESC)
    GetGPUVirtualAddress = Method(11, UINT64)


class ID3D12DescriptorHeap(ID3D12Object):
    IID = guids.IID_ID3D12DescriptorHeap
    GetDesc = Method(8, D3D12_DESCRIPTOR_HEAP_DESC)
    GetCPUDescriptorHandleForHeapStart = Method(9, D3D12_CPU_DESCRIPTOR_HANDLE)
    GetGPUDescriptorHandleForHeapStart = Method(10, D3D12_GPU_DESCRIPTOR_HANDLE)


class ID3D12CommandAllocator(ID3D12Object):
    IID = guids.IID_ID3D12CommandAllocator
    Reset = Method(8, CHECKED)


class ID3D12CommandList(ID3D12Object):
    IID = guids.IID_ID3D12CommandList


class ID3D12GraphicsCommandList(ID3D12CommandList):
    """Of no type but that of its queue; its initial state is none."""

    IID = guids.IID_ID3D12GraphicsCommandList
    Close = Method(9, CHECKED)
    Reset = Method(10, CHECKED, ID3D12CommandAllocator, POINTER_SIZED)
    CopyBufferRegion = Method(
        15, None, ID3D12Resource, UINT64, ID3D12Resource, UINT64, UINT64
    )
    ResourceBarrier = Method(26, None, Array(D3D12_RESOURCE_BARRIER))
    SetDescriptorHeaps = Method(28, None, Array(ID3D12DescriptorHeap))


class ID3D12CommandQueue(ID3D12Object):
    IID = guids.IID_ID3D12CommandQueue
    ExecuteCommandLists = Method(10, None, Array(ID3D12CommandList))
    Signal = Method(14, CHECKED, ID3D12Fence, UINT64)
    Wait = Method(15, CHECKED, ID3D12Fence, UINT64)
    GetTimestampFrequency = Method(16, Fills(UINT64))
    GetDesc = Method(18, D3D12_COMMAND_QUEUE_DESC)


class ID3D12Device(ID3D12Object):
    IID = guids.IID_ID3D12Device
    CreateCommandQueue = Method(
        8, Creates(ID3D12CommandQueue), POINTER(D3D12_COMMAND_QUEUE_DESC)
    )
    CreateCommandAllocator = Method(9, Creates(ID3D12CommandAllocator), ENUM)
    CreateCommandList = Method(
        12,
        Creates(ID3D12GraphicsCommandList),
        UINT,
        ENUM,
        ID3D12CommandAllocator,
        POINTER_SIZED,
    )
    CheckFeatureSupport = Method(13, CHECKED, ENUM, DataThenSize())
    CreateDescriptorHeap = Method(
        14, Creates(ID3D12DescriptorHeap), POINTER(D3D12_DESCRIPTOR_HEAP_DESC)
    )
    GetDescriptorHandleIncrementSize = Method(15, UINT, ENUM)
    CreateCommittedResource = Method(
        27,
        Creates(ID3D12Resource),
        POINTER(D3D12_HEAP_PROPERTIES),
        FLAGS,
        POINTER(D3D12_RESOURCE_DESC),
        FLAGS,
        POINTER_SIZED,
    )
    CreateFence = Method(36, Creates(ID3D12Fence), UINT64, FLAGS)
    GetDeviceRemovedReason = Method(37, HRESULT)
    GetAdapterLuid = Method(43, LUID)

    @property
    def device(self) -> IUnknown:
        """Itself."""
        return self
