"""Checksums of large blobs, at the speed of memory.

They find damage, and tell one blob from another.  They are no protection against who
means harm: whoever writes the blob writes its checksum.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from typing import Final

from onnxplug.interruption import raise_interruption

try:  # hashlib loads OpenSSL, which takes longer than small blobs do
    from _blake2 import blake2b
except ImportError:  # pragma: no cover
    from hashlib import blake2b

_PIECE: Final = 1 << 20
_ALONE: Final = 16 << 20
"""Bytes up to which one thread does it."""

_MOST_THREADS: Final = 4
"""More wait for memory."""


class Checksum:
    """32 hexadecimal digits: the CRC-32 of each MiB, and BLAKE2b over these.

    Of what is large they are computed in the background from now on.

    Args:
        parts: of the data, one after the other, of single bytes.
    """

    def __init__(self, *parts: memoryview) -> None:
        self._parts: Final = parts
        self._length: Final = sum(map(len, parts))
        self._offsets: Final = range(0, self._length, _PIECE)
        self._found: Final = [0] * len(self._offsets)
        self._threads: list[threading.Thread] = []
        large = self._length > _ALONE
        self._count: Final = min(_MOST_THREADS, os.cpu_count() or 1) if large else 1
        for first in range(self._count if large else 0):
            arguments = first, self._count
            thread = threading.Thread(target=self._work, args=arguments, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more
                raise_interruption(error)
                break
            self._threads.append(thread)

    def _work(self, first: int, step: int) -> None:
        for number in range(first, len(self._offsets), step):
            start, found = self._offsets[number], 0
            for part in self._parts:
                # which releases the GIL
                found = zlib.crc32(part[max(start, 0) : max(start + _PIECE, 0)], found)
                start -= len(part)
            self._found[number] = found

    def digits(self) -> str:
        """The checksum, when it is there."""
        for first in range(len(self._threads), self._count):
            self._work(first, self._count)
        for thread in self._threads:
            thread.join()
        digest = blake2b(struct.pack("<Q", self._length), digest_size=16)
        digest.update(struct.pack(f"<{len(self._found)}I", *self._found))
        return str(digest.hexdigest())
