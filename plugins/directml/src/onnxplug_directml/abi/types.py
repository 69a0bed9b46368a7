"""C's types by the names that Windows' headers have for them."""

from __future__ import annotations

import ctypes
from typing import Final

BOOL: Final = ctypes.c_int32
BYTE: Final = ctypes.c_uint8
INT: Final = ctypes.c_int32
UINT: Final = ctypes.c_uint32
UINT16: Final = ctypes.c_uint16
UINT64: Final = ctypes.c_uint64
FLOAT: Final = ctypes.c_float
SIZE_T: Final = ctypes.c_size_t
HRESULT: Final = ctypes.c_int32
ENUM: Final = ctypes.c_int32
"""An enumeration: C's ``int``."""
FLAGS: Final = ctypes.c_uint32
"""Bits of an enumeration."""
POINTER_SIZED: Final = ctypes.c_void_p
"""An address: of an object, of what a type beside it tells, or on the device."""


class GUID(ctypes.Structure):
    """A globally unique identifier, from its usual spelling."""

    _fields_ = (
        ("Data1", UINT),
        ("Data2", UINT16),
        ("Data3", UINT16),
        ("Data4", BYTE * 8),
    )

    def __init__(self, text: str = "00000000-0000-0000-0000-000000000000") -> None:
        first, second, third, fourth, fifth = text.split("-")
        tail = (BYTE * 8)(*bytes.fromhex(fourth + fifth))
        super().__init__(int(first, 16), int(second, 16), int(third, 16), tail)

    def __str__(self) -> str:
        tail = bytes(self.Data4).hex()
        head = f"{self.Data1:08x}-{self.Data2:04x}-{self.Data3:04x}"
        return f"{head}-{tail[:4]}-{tail[4:]}"


class LUID(ctypes.Structure):
    """A locally unique identifier: of an adapter, until the next boot."""

    _fields_ = (("LowPart", UINT), ("HighPart", INT))
