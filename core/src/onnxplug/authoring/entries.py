"""Entries on disk that outlast the process; losing any of them costs time only.

Entries are trusted with the user's rights: they are read from a folder that belongs to
the user alone and is held open, are files of the user that nobody else may write to,
and carry a checksum that also depends on their name.  Whatever else happens to them,
from a full disk to a folder that is deleted while the program runs, is as if they were
not there.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.cache import SIZE, CacheFolder
from onnxplug.errors import OptionError
from onnxplug.interruption import raise_interruption

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

try:  # hashlib loads OpenSSL, which takes longer than all that is done here
    from _blake2 import blake2b
except ImportError:  # pragma: no cover
    from hashlib import blake2b

DEFAULT_SIZE: Final = 256 << 20

MARSHAL: Final = 2
"""The format in which ``marshal`` writes equal bytes for equal values, whoever else
refers to them."""

_DAY: Final = 24 * 60 * 60
_DIGEST: Final = 16
_LARGE: Final = 16 << 20
_ENTRY, _TEMPORARY = ".entry", ".new"


class Cache:
    """Entries by name, in a folder for *distribution*.

    Args:
        limit: bytes that it may have, by default what :func:`size_limit` says; with
            0 nothing is read or written.
        root: the folder above that for *distribution*, an absolute path, in place of
            that of :func:`~.cache.cache_root`; made if need be, and as safe as that.

    Raises:
        ValueError: *root* is relative, or no path can be so.

    Attributes:
        problem: why nothing is read or written although it should; ``None`` if all is
            well.
        refused: an entry that was not read although it is there, and why; ``None`` if
            there was none.
    """

    def __init__(
        self, distribution: str, limit: int | None = None, root: str | None = None
    ) -> None:
        self.problem: str | None = None
        self.refused: str | None = None
        self._distribution = distribution
        self._root = root
        self._limit = size_limit() if limit is None else limit
        self._opened = self._open()
        self._unlooked = self._limit  # bytes stored since the folder was looked at

    @property
    def folder(self) -> Path | None:
        """Where the entries are; ``None`` if there are none."""
        return None if self._opened is None else self._opened.path

    @property
    def is_open(self) -> bool:
        """Whether entries are read and written, as far as that is known."""
        return self._opened is not None

    def _open(self) -> CacheFolder | None:
        if not self._limit:
            return None
        try:
            return CacheFolder(self._distribution, self._root)
        except OSError as error:
            raise_interruption(error)
            self.problem = str(error)
            return None

    def _folder(self) -> CacheFolder | None:
        """The folder, made anew if it was deleted."""
        if self._opened is not None and not self._opened.is_there:
            self._opened = self._open()
        return self._opened

    def load(self, name: str) -> bytes | None:
        """The content of an entry; ``None`` if there is none that can be trusted."""
        content = self._read(name, os.read)
        return None if content is None else bytes(content)

    def map(self, name: str) -> memoryview | None:
        """As :meth:`load`, mapped from the file, which may be deleted meanwhile."""
        return self._read(name, _map)

    def _read(
        self, name: str, read: Callable[[int, int], bytes | mmap.mmap]
    ) -> memoryview | None:
        folder = self._folder()
        if folder is None:
            return None
        try:
            file, status = folder.open(name + _ENTRY)
            try:
                # no entry is larger than all together may be
                if not _DIGEST <= status.st_size <= self._limit + _DIGEST:
                    return None
                content = memoryview(read(file, status.st_size))
                # the time of the last change is that of the last use, to the day
                if time.time() - status.st_mtime > _DAY:
                    with contextlib.suppress(OSError):
                        folder.touch(file, name + _ENTRY)
            finally:
                os.close(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise_interruption(error)
            path = str(folder.path / (name + _ENTRY))
            self.refused = f"{path!r} cannot be trusted: {error.strerror or error}"
            return None
        digest, content = content[:_DIGEST], content[_DIGEST:]
        return content if digest == _digest(name, [content]) else None

    def names(self) -> list[str]:
        """The names of all entries, latest first."""
        return [
            file.removesuffix(_ENTRY)
            for _, _, file in sorted(self._files(), reverse=True)
            if file.endswith(_ENTRY)
        ]

    def heads(self, nbytes: int) -> Iterator[tuple[str, os.stat_result, bytes]]:
        """Of each entry, latest first: name, status of its file, and the first
        *nbytes* of its content at most, whose digest is not looked at."""
        folder = self._folder()
        for name in self.names():
            with contextlib.suppress(OSError):
                assert folder is not None
                file, status = folder.open(name + _ENTRY)
                try:
                    start = os.read(file, _DIGEST + nbytes)
                finally:
                    os.close(file)
                yield name, status, start[_DIGEST:]

    def store(self, name: str, *parts: bytes | memoryview) -> str:
        """Write an entry, all of it or nothing.

        Args:
            name: the entry's.
            parts: its content, one after the other; views of bytes.

        Returns:
            Why it is not there now; empty if it is.
        """
        folder = self._folder()
        if folder is None:
            return self.problem or f"{SIZE} is 0"
        nbytes = sum(map(len, parts))
        if nbytes > self._limit:
            return (
                f"it takes {nbytes} bytes, and {self._limit} may be kept; {SIZE} "
                "sets another limit"
            )
        temporary = f"{name}.{os.getpid():x}.{time.monotonic_ns():x}{_TEMPORARY}"
        try:
            self._write(folder, temporary, _digest(name, parts), *parts)
            folder.replace(temporary, name + _ENTRY)
            self._unlooked += nbytes
        except OSError as error:
            raise_interruption(error)
            with contextlib.suppress(OSError):
                folder.remove(temporary)
            return str(error)
        return ""

    def _write(
        self, folder: CacheFolder, name: str, *parts: bytes | memoryview
    ) -> None:
        file = folder.create(name)
        try:
            for part in parts:
                view = memoryview(part)
                written = 0
                while written < len(view):
                    written += os.write(file, view[written:])
        finally:
            os.close(file)

    def remove(self, name: str) -> None:
        """Delete an entry, if it is there."""
        folder = self._folder()
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.remove(name + _ENTRY)

    def prune_if_due(self) -> None:
        """Prune the first time, and whenever a sixteenth of what is allowed was stored
        since: looking at thousands of entries takes longer than a kernel."""
        if self._unlooked >= max(1, self._limit // 16):
            self.prune()

    def prune(self) -> None:
        """Delete what was not used for longest, down to the size allowed; and what
        writers that ended early left behind."""
        folder = self._folder()
        if folder is None:
            return
        self._unlooked = 0
        yesterday = time.time() - _DAY
        total = 0
        for changed, size, file in sorted(self._files(), reverse=True):
            total += size
            stale = file.endswith(_TEMPORARY) and changed < yesterday
            if total > self._limit or stale:
                with contextlib.suppress(OSError):
                    folder.remove(file)

    def _files(self) -> list[tuple[float, int, str]]:
        """When each file was last used, its size and its name."""
        folder = self._folder()
        if folder is None:
            return []
        with contextlib.suppress(OSError):
            return [
                (status.st_mtime, status.st_size, name)
                for name, status in folder.files()
                if name.endswith((_ENTRY, _TEMPORARY))
            ]
        return []


def _map(file: int, size: int) -> mmap.mmap:
    import mmap

    return mmap.mmap(file, size, access=mmap.ACCESS_READ)


def _digest(name: str, parts: Sequence[bytes | memoryview]) -> bytes:
    if sum(map(len, parts)) > _LARGE:
        from onnxplug.authoring.checksum import Checksum

        views = [memoryview(part) for part in parts]
        content = Checksum(*views).digits().encode()
    else:
        content = b"".join(parts)
    # the name is in it, so that an entry under another's name is none
    return bytes(blake2b(content, digest_size=_DIGEST, key=fingerprint(name)).digest())


def fingerprint(content: str | bytes | memoryview) -> bytes:
    """32 bytes that tell a text, or bytes, from every other."""
    if isinstance(content, str):
        content = content.encode()
    return bytes(blake2b(content, digest_size=32).digest())


def size_limit(default: int = DEFAULT_SIZE) -> int:
    """The bytes that a cache may have; 0 for no cache.

    They are those of ``ONNXPLUG_CACHE_SIZE``, or *default*.

    Raises:
        OptionError: ``ONNXPLUG_CACHE_SIZE`` is no size.
    """
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return default
    found = re.fullmatch(r"([0-9]+)\s*([KMG]?)", text, re.IGNORECASE)
    if not found:
        raise OptionError(
            f"{SIZE} is {text!r}; it is a number of bytes, such as 268435456 or 256M"
        )
    number, unit = found.groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit.upper()]
