"""The file beside a specification that holds its weights.

The format is MIL's blob storage, version 2: 64 bytes of header, then entries of 64
bytes, each of which tells where its data are.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import numpy as np

_HEADER: Final = struct.Struct("<II")  # entries, version
_ENTRY: Final = struct.Struct("<IIQQ")  # sentinel, type, bytes, offset of the data
_SENTINEL: Final = 0xDEADBEEF
_TYPES: Final = {
    1: np.dtype(np.float16),
    2: np.dtype(np.float32),
    3: np.dtype(np.uint8),
    4: np.dtype(np.int8),
    6: np.dtype(np.int16),
    7: np.dtype(np.uint16),
    14: np.dtype(np.int32),
    15: np.dtype(np.uint32),
}


class BlobFile:
    """The weights of a package.

    Raises:
        ValueError: it is no blob storage of version 2.
    """

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, np.uint8, "r")
        self.entries, version = _HEADER.unpack(self._bytes[: _HEADER.size])
        if version != 2:
            raise ValueError(f"{path} is blob storage of version {version}, not 2")

    def read(self, offset: int) -> np.ndarray[Any, Any]:
        """The data, flat, whose entry is at *offset*."""
        entry = self._bytes[offset : offset + _ENTRY.size]
        sentinel, kind, size, start = _ENTRY.unpack(entry)
        if sentinel != _SENTINEL:
            raise ValueError(f"there is no entry of a blob storage at {offset}")
        if start + size > len(self._bytes):
            raise ValueError(f"the entry at {offset} ends after its file")
        return self._bytes[start : start + size].view(_TYPES[kind])
