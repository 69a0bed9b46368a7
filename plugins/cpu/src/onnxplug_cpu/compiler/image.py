"""Position-independent machine code as it is kept and as it is loaded."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<II")


class Image(NamedTuple):
    """Position-independent machine code and its constants.

    Attributes:
        code: the bytes, to be put at a multiple of *alignment*.
        alignment: in bytes, a power of two.
        entry: where the function begins, in bytes from the start.
    """

    code: bytes
    alignment: int
    entry: int

    def to_bytes(self) -> bytes:
        """The image for a file."""
        return _HEADER.pack(self.alignment, self.entry) + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        """What :meth:`to_bytes` gave."""
        return cls(data[_HEADER.size :], *_HEADER.unpack_from(data))
