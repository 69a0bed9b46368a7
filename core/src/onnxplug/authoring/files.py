"""Opening files to read them: regular ones, and no others.

A pipe waits for a writer, a terminal for its user, and ``/dev/zero`` has no end.  What
a path leads to is therefore asked of the file that was opened, not of its name, which
may lead elsewhere a moment later.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from onnxplug.authoring.record import Record

_READ: Final = (
    os.O_RDONLY
    # Windows has the last only, and no pipes or devices in the way of a path
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
"""A flag of ``os.open``: the last part of the path is no link; 0 on Windows."""

_AT_ONCE: Final = 1 << 20
"""Bytes that are read by one call, which gives them all or comes to the end."""

_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_Path = str | os.PathLike[str]


class Identity(Record):
    """What distinguishes a state of a file from every other, short of its bytes.

    Attributes:
        size: in bytes.
        modified: when it was last written to, in ns since 1970.
    """

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """That of the file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def open_regular(
    path: _Path, *, flags: int = 0, dir_fd: int | None = None
) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file, to read, and the status of what it is of.

    It is closed in programs that this one starts.

    Args:
        path: the file; what it links to unless *flags* have :data:`NO_LINK`.
        flags: more flags of ``os.open``.
        dir_fd: the folder that *path* is relative to, where the system knows that.

    Raises:
        IsADirectoryError: it is a folder.
        OSError: it is not there, may not be read, or is no file.
    """
    try:
        descriptor = os.open(path, _READ | flags, dir_fd=dir_fd)
    except PermissionError as error:
        if dir_fd is None and os.path.isdir(path):  # Windows opens no folders
            raise _is_folder(path) from error
        raise
    try:
        status = os.fstat(descriptor)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            raise _is_folder(path)
        if kind != stat.S_IFREG:
            raise OSError(
                errno.EINVAL,
                f"it is {_KINDS.get(kind, 'something else')}; expected a regular file",
                os.fspath(path),
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _is_folder(path: _Path) -> OSError:
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))


_TICK: Final = 100_000_000
"""ns after which a file that is written to again has surely another time of change.
Linux takes that from a clock that ticks every 10 ms or sooner."""

_COARSE_TICK: Final = 2_000_000_000
"""The same where whole seconds are noted only: FAT has every other one."""


def lasting_state(status: os.stat_result) -> tuple[int, ...] | None:
    """What no other state of any file has in common with that of a file whose status
    was just asked; ``None`` if it may be written to once more without a sign of it."""
    # The time of the last change is another one's in a file that was copied or
    # unpacked, and its inode may have been that one's.  Nobody sets the status's time.
    times = status.st_mtime_ns, status.st_ctime_ns
    tick = _TICK if status.st_mtime_ns % 1_000_000_000 else _COARSE_TICK
    if time.time_ns() - max(times) < tick:
        return None
    return *Identity.of(status), status.st_ctime_ns


@contextmanager
def opened(path: _Path) -> Iterator[BinaryIO]:
    """A regular file, open to read.

    Raises:
        OSError: as of :func:`open_regular`.
    """
    descriptor, _ = open_regular(path)
    with open(descriptor, "rb") as file:
        yield file


def read_file(path: _Path) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: as of :func:`open_regular` and :func:`read_descriptor`.
    """
    descriptor, status = open_regular(path)
    try:
        return bytes(read_descriptor(descriptor, status))
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, status: os.stat_result) -> memoryview:
    """The content, read-only, of a file that was just opened and has *status*.

    Raises:
        OSError: it cannot be read, is larger than memory, or was written to meanwhile.
    """
    if status.st_size <= _AT_ONCE:
        content = memoryview(os.read(descriptor, status.st_size))
        found = len(content)
    else:
        content, found = _read_in_parts(descriptor, status.st_size)
    after = os.fstat(descriptor)
    if found < status.st_size or Identity.of(after) != Identity.of(status):
        raise OSError(
            errno.EIO,
            f"it was written to while it was read: {found} of {status.st_size} bytes "
            f"were there, and it has {after.st_size} now; read it again when it is "
            "complete",
        )
    return content


def _read_in_parts(descriptor: int, size: int) -> tuple[memoryview, int]:
    """*size* bytes of a file, and how many of them are from it."""
    try:
        content = memoryview(bytearray(size))
    except (MemoryError, OverflowError) as error:
        raise OSError(
            errno.ENOMEM, f"its {size} bytes are more than there is memory"
        ) from error
    found = 0
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while found < size:
            count = file.readinto(content[found:])
            if not count:  # 0 at the end, None if there is nothing yet
                break
            found += count
    return content.toreadonly(), found
