"""dxcore_interface.h: adapters of which DXGI does not know, such as NPUs."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from onnxplug_directml.abi.types import UINT


class DXCoreAdapterProperty(IntEnum):
    InstanceLuid = 0
    DriverVersion = 1
    DriverDescription = 2
    DedicatedAdapterMemory = 7
    DedicatedSystemMemory = 8
    SharedSystemMemory = 9
    IsHardware = 11
    IsIntegrated = 12
    HardwareIDParts = 14


class DXCoreHardwareIDParts(ctypes.Structure):
    _fields_ = (
        ("vendorID", UINT),
        ("deviceID", UINT),
        ("subSystemID", UINT),
        ("subVendorID", UINT),
        ("revisionID", UINT),
    )
