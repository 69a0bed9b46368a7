"""What lies at addresses that libraries give, if anything does."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Final

_END: Final = 1 << 63
"""What no process has memory beyond."""

_MOST: Final = 4096
"""The bytes that are asked about at once; a pipe has room for more."""


@functools.cache
def _pipe() -> tuple[int, int, Any] | None:
    """A pipe, and what writes to it; ``None`` where that does not tell."""
    if os.name != "posix":
        return None
    write = ctypes.CDLL(None).write
    write.restype = ctypes.c_ssize_t
    write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    return (*os.pipe(), write)


def is_readable(address: int, nbytes: int = 1) -> bool:
    """Whether *nbytes* can be read at *address*.

    The system says so, as it refuses to write from where nothing is.  Yes on Windows,
    where that is not known.
    """
    found = _pipe()
    if found is None:
        return True
    reader, writer, write = found
    end = address + nbytes
    if end > _END:
        return False
    while address < end:
        size = min(end - address, _MOST)
        written = write(writer, address, size)
        if written > 0:
            os.read(reader, written)
        if written != size:
            return False
        address += size
    return True


def text_at(address: int) -> str | None:
    """The C string at *address*; ``None`` if nothing is there, or it does not end."""
    parts: list[bytes] = []
    while True:
        # up to the end of a page, as the next one may be nobody's
        size = _MOST - address % _MOST
        if not is_readable(address, size):
            return None
        part = ctypes.string_at(address, size)
        head, end, _ = part.partition(b"\0")
        parts.append(head)
        if end:
            return b"".join(parts).decode("utf-8", "replace")
        address += size
