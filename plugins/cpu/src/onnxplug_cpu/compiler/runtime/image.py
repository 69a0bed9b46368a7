"""Position-independent machine code as it is kept and as it is loaded."""

from __future__ import annotations

import struct
from typing import Final

from onnxplug.authoring.record import Record

_HEADER: Final = struct.Struct("<II")
_MOST_ALIGNED: Final = 1 << 16  # the largest page of any processor


class Image(Record):
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
    def from_bytes(cls, data: bytes) -> Image | None:
        """What :meth:`to_bytes` gave; ``None`` if that cannot be it."""
        if len(data) < _HEADER.size:
            return None
        image = cls(data[_HEADER.size :], *_HEADER.unpack_from(data))
        fits = image.entry < len(image.code) and image.alignment.bit_count() == 1
        return image if fits and image.alignment <= _MOST_ALIGNED else None
