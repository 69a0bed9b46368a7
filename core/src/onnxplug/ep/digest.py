"""A digest of what is too large for one processor to read soon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

PIECE: Final = 8 << 20
"""Bytes that one digest is made of."""

_MOST_THREADS: Final = 4


def digest_of_pieces(parts: Sequence[memoryview]) -> bytes:
    """The SHA-256 digests of each :data:`PIECE` of *parts*, which follow one another.

    They are made in several threads at once.
    """
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    ends = list(accumulate(part.nbytes for part in parts))

    def digest(start: int) -> bytes:
        piece = hashlib.sha256()
        for part, end in zip(parts, ends, strict=True):
            place = start - (end - part.nbytes)
            piece.update(part[max(place, 0) : max(place + PIECE, 0)])
        return piece.digest()

    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        return b"".join(pool.map(digest, range(0, ends[-1], PIECE)))
