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

try:  # hashlib loads OpenSSL, which takes longer than small blobs do
    from _blake2 import blake2b
except ImportError:  # pragma: no cover
    from hashlib import blake2b

_PIECE: Final = 1 << 20
_ALONE: Final = 16 << 20
"""Bytes up to which one thread does it."""

_MOST_THREADS: Final = 4
"""More wait for memory."""


def checksum(data: memoryview) -> str:
    """32 hexadecimal digits: the CRC-32 of each MiB, and BLAKE2b over these.

    Args:
        data: of single bytes.
    """
    offsets = range(0, len(data), _PIECE)
    found = [0] * len(offsets)
    threads = min(_MOST_THREADS, os.cpu_count() or 1) if len(data) > _ALONE else 1

    def work(first: int) -> None:
        for number in range(first, len(offsets), threads):
            start = offsets[number]
            # which releases the GIL
            found[number] = zlib.crc32(data[start : start + _PIECE])

    others = [
        threading.Thread(target=work, args=(first,), daemon=True)
        for first in range(1, threads)
    ]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    digest = blake2b(struct.pack("<Q", len(data)), digest_size=16)
    digest.update(struct.pack(f"<{len(found)}I", *found))
    return str(digest.hexdigest())
