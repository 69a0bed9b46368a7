"""Interfaces of dxgi.h to dxgi1_6.h."""

from __future__ import annotations

import ctypes

from onnxplug_directml.abi import guids
from onnxplug_directml.abi.dxgi import (
    DXGI_ADAPTER_DESC1,
    DXGI_QUERY_VIDEO_MEMORY_INFO,
)
from onnxplug_directml.abi.types import ENUM, GUID, LUID, UINT
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import Creates, Fills
from onnxplug_directml.com.unknown import IUnknown


class IDXGIAdapter1(IUnknown):
    IID = guids.IID_IDXGIAdapter1
    CheckInterfaceSupport = Method(9, Fills(ctypes.c_int64), ctypes.POINTER(GUID))
    GetDesc1 = Method(10, Fills(DXGI_ADAPTER_DESC1))


class IDXGIAdapter3(IDXGIAdapter1):
    IID = guids.IID_IDXGIAdapter3
    QueryVideoMemoryInfo = Method(14, Fills(DXGI_QUERY_VIDEO_MEMORY_INFO), UINT, ENUM)


class IDXGIFactory4(IUnknown):
    IID = guids.IID_IDXGIFactory4
    EnumAdapters1 = Method(12, Creates(IDXGIAdapter1, by_interface=False), UINT)
    EnumAdapterByLuid = Method(26, Creates(IDXGIAdapter1), LUID)
    EnumWarpAdapter = Method(27, Creates(IDXGIAdapter1))


class IDXGIFactory6(IDXGIFactory4):
    IID = guids.IID_IDXGIFactory6
    EnumAdapterByGpuPreference = Method(29, Creates(IDXGIAdapter1), UINT, ENUM)
