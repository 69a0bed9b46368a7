"""Interfaces of dxcore_interface.h."""

from __future__ import annotations

import ctypes

from onnxplug_directml.abi import guids
from onnxplug_directml.abi.types import ENUM, GUID, LUID, SIZE_T, UINT
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import CHECKED, Array, Creates, Fills
from onnxplug_directml.com.unknown import IUnknown


class IDXCoreAdapter(IUnknown):
    IID = guids.IID_IDXCoreAdapter
    IsValid = Method(3, ctypes.c_bool)
    IsAttributeSupported = Method(4, ctypes.c_bool, ctypes.POINTER(GUID))
    IsPropertySupported = Method(5, ctypes.c_bool, ENUM)
    GetProperty = Method(6, CHECKED, ENUM, SIZE_T, ctypes.c_void_p)
    GetPropertySize = Method(7, Fills(SIZE_T), ENUM)


class IDXCoreAdapterList(IUnknown):
    IID = guids.IID_IDXCoreAdapterList
    GetAdapter = Method(3, Creates(IDXCoreAdapter), UINT)
    GetAdapterCount = Method(4, UINT)


class IDXCoreAdapterFactory(IUnknown):
    IID = guids.IID_IDXCoreAdapterFactory
    CreateAdapterList = Method(3, Creates(IDXCoreAdapterList), Array(GUID))
    GetAdapterByLuid = Method(4, Creates(IDXCoreAdapter), ctypes.POINTER(LUID))
