"""Where distributions keep on disk what they can make again, such as compiled code.

Each has a folder of its own below one root.  What is there may be code that is loaded
and run, and therefore belongs to the user alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from pathlib import Path
from typing import Final

DIRECTORY: Final = "ONNXPLUG_CACHE_DIR"

SIZE: Final = "ONNXPLUG_CACHE_SIZE"
"""How many bytes a distribution may keep; read by those that know a limit."""

TAG: Final = "CACHEDIR.TAG"
"""Marks a folder as one that may be deleted, and need not be in a backup
(https://bford.info/cachedir/)."""

TAG_TEXT: Final = """\
Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache of onnxplug: what is deleted here is made again when needed.
"""


def cache_root() -> Path:
    """The folder above those of the distributions, which need not exist.

    ``ONNXPLUG_CACHE_DIR``, or else ``onnxplug`` where the system keeps caches of the
    user: ``$XDG_CACHE_HOME`` or ``~/.cache``; on macOS ``~/Library/Caches``; on
    Windows ``%LOCALAPPDATA%``, in ``cache`` there.

    Raises:
        OSError: the folder is relative, or the user has none.
    """
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
    return Path(root)


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

    It belongs to the user, and nobody else may enter it.  Files in it may vanish at any
    time, and ``onnxplug cache clear`` deletes them.

    Args:
        distribution: the name of the distribution, such as ``onnxplug-cpu``.

    Raises:
        OSError: the folder cannot be made, or is not safe: it is a link, belongs to
            somebody else, or is open to others.
        ValueError: *distribution* cannot name a folder.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", distribution):
        raise ValueError(f"{distribution!r} is no name of a distribution")
    folder = cache_root() / distribution
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    _refuse_unsafe(folder, status)
    _tag(folder / TAG)
    return folder


def _refuse_unsafe(folder: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(folder, "is no folder, or a link to one", "Remove it")
    if sys.platform == "win32":
        return  # its access list is that of the user's own folder
    if status.st_uid != os.geteuid():
        raise _unsafe(
            folder,
            f"belongs to user {status.st_uid}, and this process to {os.geteuid()}",
            "Remove it",
        )
    if status.st_mode & 0o077:
        raise _unsafe(
            folder,
            f"is open to other users (mode {stat.S_IMODE(status.st_mode):04o})",
            f"Remove it, or chmod 700 {folder} if nobody else wrote there",
        )


def _unsafe(folder: Path, fault: str, remedy: str) -> OSError:
    return OSError(
        errno.EPERM,
        f"the cache folder {fault}; it may hold code that is run. {remedy}, "
        f"or set {DIRECTORY} to another folder",
        str(folder),
    )


def _tag(path: Path) -> None:
    if path.exists():
        return
    try:
        with open(path, "x", encoding="ascii") as file:
            file.write(TAG_TEXT)
    except OSError:
        pass  # it is read-only or full, or another process was faster
