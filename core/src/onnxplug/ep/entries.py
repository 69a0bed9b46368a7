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

from onnxplug.ep.cache import SIZE, CacheFolder
from onnxplug.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

try:  # hashlib loads OpenSSL, which takes longer than all that is done here
    from _blake2 import blake2b
except ImportError:  # pragma: no cover
    from hashlib import blake2b

DEFAULT_SIZE: Final = 256 << 20

_DAY: Final = 24 * 60 * 60
_DIGEST: Final = 16
_ENTRY, _TEMPORARY = ".entry", ".new"


class Cache:
    """Entries by name, in a folder for *distribution*.

    Args:
        limit: bytes that it may have, by default ``ONNXPLUG_CACHE_SIZE``; with 0
            nothing is read or written.

    Attributes:
        problem: why nothing is read or written although it should; ``None`` if all is
            well.
        refused: an entry that was not read although it is there, and why; ``None`` if
            there was none.
    """

    def __init__(self, distribution: str, limit: int | None = None) -> None:
        self.problem: str | None = None
        self.refused: str | None = None
        self._distribution = distribution
        self._limit = size_limit() if limit is None else limit
        self._opened = self._open()
        self._unlooked = self._limit  # bytes stored since the folder was looked at

    @property
    def folder(self) -> Path | None:
        """Where the entries are; ``None`` if there are none."""
        return None if self._opened is None else self._opened.path

    def _open(self) -> CacheFolder | None:
        if not self._limit:
            return None
        try:
            return CacheFolder(self._distribution)
        except OSError as error:
            self.problem = str(error)
            return None

    def _folder(self) -> CacheFolder | None:
        """The folder, made anew if it was deleted."""
        if self._opened is not None and not self._opened.is_there:
            self._opened = self._open()
        return self._opened

    def load(self, name: str) -> bytes | None:
        """The content of an entry; ``None`` if there is none that can be trusted."""
        folder = self._folder()
        if folder is None:
            return None
        try:
            file, status = folder.open(name + _ENTRY)
            try:
                # no entry is larger than all together may be
                if status.st_size > self._limit + _DIGEST:
                    return None
                content = os.read(file, status.st_size)
                # the time of the last change is that of the last use, to the day
                if time.time() - status.st_mtime > _DAY:
                    with contextlib.suppress(OSError):
                        folder.touch(file, name + _ENTRY)
            finally:
                os.close(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            path = str(folder.path / (name + _ENTRY))
            self.refused = f"{path!r} cannot be trusted: {error.strerror or error}"
            return None
        digest, content = content[:_DIGEST], content[_DIGEST:]
        return content if digest == _digest(name, content) else None

    def names(self) -> list[str]:
        """The names of all entries, latest first."""
        return [
            file.removesuffix(_ENTRY)
            for _, _, file in sorted(self._files(), reverse=True)
            if file.endswith(_ENTRY)
        ]

    def store(self, name: str, content: bytes) -> None:
        """Write an entry, all of it or nothing."""
        folder = self._folder()
        if folder is None:
            return
        temporary = f"{name}.{os.getpid():x}.{time.monotonic_ns():x}{_TEMPORARY}"
        try:
            self._write(folder, temporary, _digest(name, content) + content)
            folder.replace(temporary, name + _ENTRY)
            self._unlooked += len(content)
        except OSError:
            with contextlib.suppress(OSError):
                folder.remove(temporary)

    def _write(self, folder: CacheFolder, name: str, content: bytes) -> None:
        file = folder.create(name)
        try:
            written = 0
            while written < len(content):
                written += os.write(file, content[written:])
        finally:
            os.close(file)

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


def _digest(name: str, content: bytes) -> bytes:
    # the name is in it, so that an entry under another's name is none
    return bytes(blake2b(content, digest_size=_DIGEST, key=fingerprint(name)).digest())


def fingerprint(text: str) -> bytes:
    """32 bytes that tell *text* from every other."""
    return bytes(blake2b(text.encode(), digest_size=32).digest())


def size_limit() -> int:
    """The bytes that a cache may have; 0 for no cache.

    Raises:
        OptionError: ``ONNXPLUG_CACHE_SIZE`` is no size.
    """
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return DEFAULT_SIZE
    found = re.fullmatch(r"([0-9]+)\s*([KMG]?)", text, re.IGNORECASE)
    if not found:
        raise OptionError(
            f"{SIZE} is {text!r}; it is a number of bytes, such as 268435456 or 256M"
        )
    number, unit = found.groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit.upper()]
