"""What libraries find in the tables at the end of the process.

A library may call the host when nothing of Python is there any more: in destructors of
C++'s static objects, on threads of its own, in what it releases late.  So behind the
last function that :mod:`atexit` calls, every entry becomes a few instructions that
return a constant: releasing does nothing, texts are empty, and all else fails with a
status.

Owns: what is never freed, as libraries may look at it until the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from onnxplug import ep

_T = TypeVar("_T")


def lasting(thing: _T) -> _T:
    """*thing*, which is never freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def lasting_text(text: str) -> int:
    """The address of *text*, which is never freed."""
    return ctypes.addressof(lasting(ctypes.create_string_buffer(text.encode())))


EMPTY: Final = lasting_text("")
"""Where an empty text is."""

STATUS: Final = ctypes.addressof(lasting(ctypes.c_uint64()))
"""The status of all that fails at the end."""

MESSAGE: Final = lasting_text("the process is ending")
"""What it says."""


def _x86(constant: int) -> bytes:
    # endbr64; mov rax, constant; ret
    return b"\xf3\x0f\x1e\xfa\x48\xb8" + constant.to_bytes(8, "little") + b"\xc3"


def _arm(constant: int) -> bytes:
    # movz, then movk for each further 16 bits of x0; ret
    words = [
        (0xF2800000 if place else 0xD2800000)
        | place << 21
        | (constant >> 16 * place & 0xFFFF) << 5
        for place in range(4)
    ]
    return b"".join(word.to_bytes(4, "little") for word in (*words, 0xD65F03C0))


_CODE: Final[dict[str, Callable[[int], bytes]]] = {
    "x86_64": _x86,
    "amd64": _x86,
    "aarch64": _arm,
    "arm64": _arm,
}
_SLOT: Final = 32
_DRAINED: Final = 0.002
"""In how many seconds calls from libraries end that had begun."""

_LONGEST: Final = 5
"""How many seconds the end waits for calls of libraries, by threads that go on."""

_READ_EXECUTE: Final = 5


def functions_of(constants: Sequence[int]) -> list[int] | None:
    """The addresses of functions that return *constants*, whatever they are given.

    ``None`` where there can be none: on Windows, on other processors, and where the
    system lets nothing be executed that was written.
    """
    code = _CODE.get(platform.machine().lower())
    if code is None or os.name == "nt":
        return None
    places = {
        constant: i * _SLOT for i, constant in enumerate(dict.fromkeys(constants))
    }
    size = -(-len(places) * _SLOT // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = lasting(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for constant, place in places.items():
        written = code(constant)
        memory[place : place + len(written)] = written
    start = ctypes.addressof(lasting(ctypes.c_char.from_buffer(memory)))
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # pages that become executable are in no instruction cache yet
    if mprotect(start, size, _READ_EXECUTE):
        return None
    return [start + places[constant] for constant in constants]


def replace_at_the_end(pointers: Any, results: Sequence[int]) -> bool:
    """Let each of *pointers* be a function that returns one of *results* at the end.

    Args:
        pointers: a ``ctypes`` array, which is never freed.
        results: one for each.

    Returns:
        Whether there are such functions.
    """
    found = functions_of(results)
    if found is None:
        return False
    if not _REPLACED:
        atexit.register(_nothing, _End())
    _REPLACED.append((lasting(pointers), found))
    return True


_REPLACED: Final[list[tuple[Any, list[int]]]] = []
"""Pointers, and what they are at the end."""

_CALLS: Final[deque[None]] = deque()
"""The calls of libraries that go on, on any thread."""

_BEGUN: Final[list[bool]] = []
"""Not empty once it is the end."""


def is_the_end() -> bool:
    """Whether the process is ending, and libraries are called no more."""
    return bool(_BEGUN)


def call_begins() -> None:
    """Note that a library is called; what is called goes on to :func:`call_ends`.

    Raises:
        EPFail: it is the end, as for threads that go on when the program is over.
    """
    _CALLS.append(None)
    if _BEGUN:
        _CALLS.pop()
        raise ep.EPFail("a library was to be called while the process is ending")


call_ends: Final = _CALLS.pop
"""Note that a call is over."""


def _nothing(_: _End) -> None:
    """What is registered; its argument is let go of behind what others registered."""


class _End:
    """Replaces the pointers when nobody refers to it any more."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def __del__(self) -> None:
        # a process that was forked may forget what its parent registered, and goes on
        if os.getpid() != self._process:
            return
        _BEGUN.append(True)
        limit = time.monotonic() + _LONGEST
        while _CALLS and time.monotonic() < limit:
            time.sleep(_DRAINED)
        for pointers, found in _REPLACED:
            pointers[:] = found
        # threads of libraries that wait for Python now would never return from it
        time.sleep(_DRAINED)
