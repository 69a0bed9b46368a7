"""Where distributions keep on disk what they can make again, such as compiled code.

Each has a folder of its own below one root.  What is there may be code that is loaded
and run, and therefore belongs to the user alone: the folder, each file in it that is
read, and the way there, on which nobody else may rename anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.files import NO_LINK, open_regular

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY: Final = "ONNXPLUG_CACHE_DIR"

SIZE: Final = "ONNXPLUG_CACHE_SIZE"
"""How many bytes a distribution may keep; K, M and G are understood."""

TAG: Final = "CACHEDIR.TAG"
"""Marks a folder as one that may be deleted, and need not be in a backup
(https://bford.info/cachedir/)."""

TAG_TEXT: Final = """\
Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache of onnxplug: what is deleted here is made again when needed.
"""

_BY_DESCRIPTOR: Final = {
    os.open,
    os.rename,
    os.unlink,
} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether files can be named relative to an open folder.  On Windows they cannot; there
the access list of the user's own folder keeps others from replacing what is in it."""


_ABOVE: Final = "a folder above the cache's"


def cache_root() -> Path:
    """The folder above those of the distributions, which need not exist.

    ``ONNXPLUG_CACHE_DIR``, or else ``onnxplug`` where the system keeps caches of the
    user: ``$XDG_CACHE_HOME`` or ``~/.cache``; on macOS ``~/Library/Caches``; on
    Windows ``%LOCALAPPDATA%``, in ``cache`` there.

    Raises:
        OSError: the folder is relative, or the user has none.
    """
    from pathlib import Path

    return Path(_root())


def _root() -> str:
    chosen = os.environ.get(DIRECTORY)
    if chosen:
        root, source = os.path.expanduser(chosen), DIRECTORY
    else:
        root, source = _of_the_user(), "the user's home folder"
    if not os.path.isabs(root):
        raise OSError(
            errno.EINVAL,
            f"{source} gives no absolute path for a cache; set {DIRECTORY} to one",
            root,
        )
    return root


def _of_the_user() -> str:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.expanduser(
            "~\\AppData\\Local"
        )
        return os.path.join(local, "onnxplug", "cache")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/onnxplug")
    # a relative path is to be ignored (XDG Base Directory Specification, version 0.8)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "onnxplug")


def cache_directory(distribution: str) -> Path:
    """The folder where *distribution* keeps what it can make again; made if need be.

    It belongs to the user, and nobody else may enter it, or put another in its place.
    Files in it may vanish at any time, and ``onnxplug cache clear`` deletes them.

    Args:
        distribution: the name of the distribution, such as ``onnxplug-cpu``.

    Raises:
        OSError: the folder cannot be made, or is not safe: it is a link, belongs to
            somebody else, is open to others, or lies where others may rename it.
        ValueError: *distribution* cannot name a folder.
    """
    return CacheFolder(distribution).path


class CacheFolder:
    """The folder of :func:`cache_directory`, held open and used by its descriptor.

    So it stays the folder that was looked at, whatever is renamed afterwards.  Programs
    that this one starts do not have the descriptor; forks do.

    Args:
        distribution: as of :func:`cache_directory`; the same is raised.
        root: the folder above, an absolute path, in place of that of
            :func:`cache_root`; made if need be.

    Raises:
        ValueError: *root* is relative, or no path can be so.

    """

    def __init__(self, distribution: str, root: str | None = None) -> None:
        self._descriptor: int | None = None
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", distribution):
            raise ValueError(f"{distribution!r} is no name of a distribution")
        if root is None:
            root = _root()
        elif not os.path.isabs(root):
            raise ValueError(f"{root!r} is no absolute path")
        self._path: Final = os.path.join(root, distribution)
        self._place: Final = os.path.join(
            require_own_way(root, make=True), distribution
        )
        try:
            status = os.lstat(self._place)
        except FileNotFoundError:
            _make(self._place)
            status = os.lstat(self._place)
        _refuse_unsafe(self._path, status)
        if _BY_DESCRIPTOR:
            way = os.O_RDONLY | os.O_DIRECTORY | NO_LINK
            self._descriptor = os.open(self._place, way)
            self._is_lost = False
            status = os.fstat(self._descriptor)
            self._identity = status.st_dev, status.st_ino
            _refuse_unsafe(self._path, status)
        self._tag()

    @property
    def path(self) -> Path:
        """Where it was when it was opened."""
        from pathlib import Path

        return Path(self._path)

    def __del__(self) -> None:
        if self._descriptor is not None and self._status() is not None:
            os.close(self._descriptor)

    def _status(self) -> os.stat_result | None:
        """That of the open folder; ``None`` if the descriptor is another file's by now.

        A program that becomes a daemon closes all descriptors, and then opens others.
        """
        assert self._descriptor is not None
        if not self._is_lost:
            with contextlib.suppress(OSError):
                status = os.fstat(self._descriptor)
                if (status.st_dev, status.st_ino) == self._identity:
                    return status
            self._is_lost = True  # for good, as this folder may be opened there again
        return None

    @property
    def is_there(self) -> bool:
        """Whether it can be used: it is open, and was not deleted."""
        if self._descriptor is None:
            return os.path.isdir(self._place)
        status = self._status()
        return status is not None and status.st_nlink > 0

    def _name(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self._place, name)

    def open(self, name: str) -> tuple[int, os.stat_result]:
        """A descriptor of a file to read, and its status.

        Raises:
            FileNotFoundError: it is not there.
            OSError: it cannot be read, or nobody knows who wrote it: it is no regular
                file, a link, belongs to somebody else, may be written to by others, or
                has another name somewhere.
        """
        descriptor, status = open_regular(
            self._name(name), flags=NO_LINK, dir_fd=self._descriptor
        )
        fault = _fault_of_file(status)
        if fault:
            os.close(descriptor)
            raise OSError(errno.EPERM, f"it {fault}", name)
        return descriptor, status

    def create(self, name: str) -> int:
        """A descriptor of a new file to write, which only the user may read.

        Raises:
            OSError: it is there already, or cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.open(self._name(name), flags, 0o600, dir_fd=self._descriptor)
        if sys.platform != "win32":
            os.fchmod(file, 0o600)  # the umask may forbid even the user to read it
        return file

    def touch(self, descriptor: int, name: str) -> None:
        """Let an open file have been changed now.

        Raises:
            OSError: it may not be.
        """
        os.utime(descriptor if os.utime in os.supports_fd else self._name(name))

    def replace(self, name: str, other: str) -> None:
        """Rename the file *name*, in the place of *other* if that is there.

        Raises:
            OSError: it is not there, or cannot be renamed.
        """
        folder = self._descriptor
        os.replace(
            self._name(name), self._name(other), src_dir_fd=folder, dst_dir_fd=folder
        )

    def remove(self, name: str) -> None:
        """Delete a file.

        Raises:
            OSError: it is not there, or cannot be deleted.
        """
        os.unlink(self._name(name), dir_fd=self._descriptor)

    def files(self) -> list[tuple[str, os.stat_result]]:
        """The names of all that is in it, with what each is itself, not by links.

        Raises:
            OSError: it cannot be read.
        """
        found: list[tuple[str, os.stat_result]] = []
        opened: int | None = None
        try:
            if self._descriptor is not None:
                # a descriptor of its own, as one has one position in the list
                way = os.O_RDONLY | os.O_DIRECTORY
                opened = os.open(".", way, dir_fd=self._descriptor)
            with os.scandir(self._place if opened is None else opened) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # it is gone already
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        finally:
            if opened is not None:
                os.close(opened)
        return found

    def _tag(self) -> None:
        # it is there already, or the folder is read-only or full
        with contextlib.suppress(OSError):
            os.lstat(os.path.join(self._place, TAG))
            return
        with contextlib.suppress(OSError):
            file = self.create(TAG)
            try:
                os.write(file, TAG_TEXT.encode("ascii"))
            finally:
                os.close(file)


def require_own_way(folder: str, *, make: bool = False) -> str:
    """Refuse a folder in whose place others can put another.

    Args:
        folder: may be a link.
        make: it is made if it is not there, and folders above it, for the user alone.

    Returns:
        The folder, without links.

    Raises:
        OSError: a folder above it, or itself, belongs to somebody who is neither this
            user nor the system, or others may rename what is in it.
    """
    if sys.platform == "win32":
        if make:
            os.makedirs(folder, exist_ok=True)
        return os.path.realpath(folder)
    # who owns the first folder can replace Python itself; that need not be user 0 in a
    # container
    owners = {0, os.geteuid(), os.lstat("/").st_uid}
    # From the top: nobody else can rename a folder that is below one of ours, so what
    # was looked at stays where it is.
    real = os.path.realpath(folder) if ".." in folder.split("/") else folder
    reached = ""
    for name in filter(None, real.split("/")):
        reached = f"{reached}/{name}"
        try:
            status = os.lstat(reached)
        except FileNotFoundError:
            if not make:
                raise
            _make(reached)
            status = os.lstat(reached)
        if stat.S_ISLNK(
            status.st_mode
        ):  # the way it leads is another one, from the top
            target = os.path.realpath(real)
            if target == real:
                raise _unsafe(reached, "is a link to nowhere", "Remove it", _ABOVE)
            return require_own_way(target, make=make)
        _refuse_foreign(reached, status, owners)
    return real


def _refuse_foreign(folder: str, status: os.stat_result, owners: set[int]) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(folder, "is no folder", "Remove it", _ABOVE)
    if status.st_uid not in owners:
        raise _unsafe(folder, _of_another(status), "Give it to this user", _ABOVE)
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise _unsafe(
            folder,
            "lets other users rename what is in it "
            f"(mode {stat.S_IMODE(status.st_mode):04o})",
            f"chmod go-w {folder}",
            _ABOVE,
        )


def _make(folder: str) -> None:
    """Make a folder for the user alone; it may be there by now."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        if sys.platform != "win32":
            os.chmod(folder, 0o700)  # the umask may forbid even the user to enter


def _refuse_unsafe(folder: str, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(folder, "is no folder, or a link to one", "Remove it")
    if sys.platform == "win32":
        return  # its access list is that of the user's own folder
    if status.st_uid != os.geteuid():
        raise _unsafe(folder, _of_another(status), "Remove it")
    if status.st_mode & 0o077:
        raise _unsafe(
            folder,
            f"is open to other users (mode {stat.S_IMODE(status.st_mode):04o})",
            f"Remove it, or chmod 700 {folder} if nobody else wrote there",
        )


def _fault_of_file(status: os.stat_result) -> str:
    """Why others may have written a file; empty if they have not."""
    if sys.platform == "win32":
        return ""
    if status.st_uid != os.geteuid():
        return _of_another(status)
    if status.st_mode & 0o022:
        return (
            "may be written to by other users "
            f"(mode {stat.S_IMODE(status.st_mode):04o})"
        )
    # none: it was replaced just now
    return f"has {status.st_nlink} names" if status.st_nlink > 1 else ""


def _of_another(status: os.stat_result) -> str:
    return f"belongs to user {status.st_uid}, and this process to {os.geteuid()}"


def _unsafe(
    folder: str, fault: str, remedy: str, what: str = "the cache folder"
) -> OSError:
    return OSError(
        errno.EPERM,
        f"{what} {fault}; the cache may hold code that is run. {remedy}, or name "
        f"another folder, as {DIRECTORY} does for onnxplug's own caches",
        folder,
    )
