"""Memory for machine code: written first, executed afterwards, never both at once.

Linux is what this has run on, for aarch64 in an emulator.  The ways of macOS and
Windows follow their documentation; tests look at the calls that they make.

No thread can have fetched instructions from where code is put, as nothing was
executable there before, so that flushing the instruction cache once is enough for all.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from onnxplug.ep import raise_interruption
from onnxplug_cpu.compiler.runtime.image import Image

REGION: Final = 1 << 20
"""Bytes asked of the system at a time."""

_MAP_JIT: Final = 0x800
_READ_WRITE, _READ_EXECUTE = 3, 5


class CodeMemory:
    """Where images are put; what is placed stays until the process ends.

    Code runs on threads that may outlive everything else in Python, so that nothing is
    ever unmapped.
    """

    def __init__(self) -> None:
        self._system = _system()
        self._next = self._end = 0
        self._tried = False
        self._problem: str | None = None

    def place(self, images: Sequence[Image]) -> list[int]:
        """Copy *images* to pages of their own and make these executable.

        Returns:
            The address of each image's entry.

        Raises:
            OSError: the system gives no memory, or none that may be executed.
        """
        if not images:  # there may be no region, and not all systems protect 0 bytes
            return []
        page = mmap.PAGESIZE
        size, offsets = 0, []
        for image in images:
            size = _up(size, max(image.alignment, 64))
            offsets.append(size)
            size += len(image.code)
        size = _up(size, page)
        if self._next + size > self._end:
            # pages follow the system's; images are aligned to no more than those
            region = max(REGION, size)
            self._next = self._system.reserve(region)
            self._end = self._next + region
        start = self._next
        self._next += size
        content = bytearray(size)
        for image, offset in zip(images, offsets, strict=True):
            content[offset : offset + len(image.code)] = image.code
        self._system.fill(start, bytes(content))
        return [
            start + offset + image.entry
            for image, offset in zip(images, offsets, strict=True)
        ]

    def problem(self) -> str | None:
        """Why nothing can be placed; ``None`` if it can.  Tries it, once."""
        if not self._tried:
            try:
                self.place([Image(b"\0", 1, 0)])
            except OSError as error:
                raise_interruption(error)
                self._problem = error.strerror or str(error)
            self._tried = True
        return self._problem


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _Posix:
    """mmap, then mprotect."""

    flags = mmap.MAP_PRIVATE | mmap.MAP_ANON if sys.platform != "win32" else 0
    protection = _READ_WRITE

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None, use_errno=True)
        self._mmap = self.library.mmap
        self._mmap.restype = ctypes.c_void_p
        self._mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        self._mprotect = self.library.mprotect
        self._mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._flush = _cache_flush()

    def reserve(self, size: int) -> int:
        address = self._mmap(None, size, self.protection, self.flags, -1, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise _error("no memory for machine code")
        return int(address)

    def fill(self, start: int, content: bytes) -> None:
        ctypes.memmove(start, content, len(content))
        if self._mprotect(start, len(content), _READ_EXECUTE):
            raise _error("the system lets no memory that was written be executed")
        if self._flush is not None:
            self._flush(ctypes.c_void_p(start), ctypes.c_void_p(start + len(content)))


class _AppleSilicon(_Posix):
    """MAP_JIT memory is writable or executable by thread, not by page."""

    flags = _Posix.flags | _MAP_JIT
    protection = _READ_WRITE | _READ_EXECUTE

    def fill(self, start: int, content: bytes) -> None:
        """By a thread of its own: while one may write it can execute none of the code
        that there is, which a signal's handler, on the main thread, might call."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, "onnxplug-cpu-code") as writer:
            try:
                written = writer.submit(self._write, start, content)
            except RuntimeError as error:
                raise OSError(f"no thread to write machine code: {error}") from error
            written.result()

    def _write(self, start: int, content: bytes) -> None:
        self.library.pthread_jit_write_protect_np(0)
        try:
            ctypes.memmove(start, content, len(content))
        finally:
            self.library.pthread_jit_write_protect_np(1)
        self.library.sys_icache_invalidate(
            ctypes.c_void_p(start), ctypes.c_size_t(len(content))
        )


class _Windows:
    """VirtualAlloc, then VirtualProtect."""

    def __init__(self) -> None:
        self._kernel32: Any = ctypes.WinDLL(  # type: ignore[attr-defined,unused-ignore]
            "kernel32", use_last_error=True
        )
        self._kernel32.VirtualAlloc.restype = ctypes.c_void_p
        self._kernel32.GetCurrentProcess.restype = ctypes.c_void_p

    def reserve(self, size: int) -> int:
        commit_and_reserve, read_write = 0x3000, 0x04
        address = self._kernel32.VirtualAlloc(
            None, ctypes.c_size_t(size), commit_and_reserve, read_write
        )
        if not address:
            raise self._error("no memory for machine code")
        return int(address)

    def fill(self, start: int, content: bytes) -> None:
        ctypes.memmove(start, content, len(content))
        execute_read, before = 0x20, ctypes.c_uint32()
        where, size = ctypes.c_void_p(start), ctypes.c_size_t(len(content))
        if not self._kernel32.VirtualProtect(
            where, size, execute_read, ctypes.byref(before)
        ):
            raise self._error("the system lets no memory that was written be executed")
        process = ctypes.c_void_p(self._kernel32.GetCurrentProcess())
        self._kernel32.FlushInstructionCache(process, where, size)

    @staticmethod
    def _error(message: str) -> OSError:
        number = ctypes.get_last_error()  # type: ignore[attr-defined,unused-ignore]
        return OSError(f"{message} (Windows error {number})")


def allowance() -> str:
    """By what this system can be told to let machine code be executed."""
    if sys.platform == "darwin":
        return (
            "by the entitlement com.apple.security.cs.allow-jit in the signature of "
            "the program that Python runs in"
        )
    if sys.platform == "win32":
        return "by not forbidding the process dynamic code (Arbitrary Code Guard)"
    return (
        "by MemoryDenyWriteExecute=no in a systemd unit or by SELinux's boolean for "
        "execmem"
    )


def _system() -> _Posix | _Windows:
    if sys.platform == "win32":
        return _Windows()
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return _AppleSilicon()
    return _Posix()


def _error(message: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{message}: {os.strerror(number)}")


def _cache_flush() -> Callable[..., object] | None:
    """``__clear_cache(begin, end)``, for aarch64, whose caches are not coherent.

    Where libgcc does not have it, Linux does what is needed itself when a page becomes
    executable for the first time.
    """
    if platform.machine() not in ("aarch64", "arm64"):
        return None
    for library in (None, "libgcc_s.so.1"):
        try:
            flush: Callable[..., object] = ctypes.CDLL(library).__clear_cache
        except (OSError, AttributeError):
            continue
        return flush
    return None
