"""Files of shared models on a node: written once, held while they are used, and deleted
when there are too many.

They are in the user's own cache.  Each model has a folder there, and a lock: who
writes or deletes the folder has it alone, who uses it has it with others, and whoever
ends, however that is, gives it back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from onnxplug.authoring.cache import cache_directory
from onnxplug.authoring.entries import size_limit
from onnxplug.errors import RequirementMissing
from onnxplug_ray.errors import ModelNotShared
from onnxplug_ray.node import this_node

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DISTRIBUTION: Final = "onnxplug-ray"

DEFAULT_SIZE: Final = 64 << 30
"""Bytes that models may take where ``ONNXPLUG_CACHE_SIZE`` does not say; those in use
are never deleted."""

_LOCK, _NEW = ".lock", ".new"
_PAUSE: Final = 0.05


class KeptFiles:
    """The files of one model on this node, held until it is closed.

    Args:
        name: of the folder.
        seconds: to wait for who writes them.

    Raises:
        ModelNotShared: the node cannot keep files.
        RequirementMissing: the system has no locks of files.
    """

    def __init__(self, name: str, seconds: float) -> None:
        if fcntl is None:
            raise RequirementMissing(
                "shared models need locks of files, which Windows has not; put the "
                "model where all nodes find it, and name its path"
            )
        self._seconds = seconds
        try:
            self._root = cache_directory(DISTRIBUTION)
            self.folder = self._root / name
            self._lock = os.open(self._root / f"{name}{_LOCK}", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._cannot(error) from error

    def _cannot(self, error: object) -> ModelNotShared:
        return ModelNotShared(
            f"node {this_node()} cannot keep a shared model: {error}; have "
            "ONNXPLUG_CACHE_DIR name a folder there that is the user's alone"
        )

    def fill(self, write: Callable[[Path], None]) -> None:
        """Have the files there, written by *write* if nobody did before.

        Raises:
            ModelNotShared: they cannot be written, or whoever writes them takes too
                long.
        """
        self._acquire(fcntl.LOCK_SH)
        while not self.folder.is_dir():
            # two that keep what they have would wait for each other
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._acquire(fcntl.LOCK_EX)
            if not self.folder.is_dir():
                self._write(write)
            # others may come between, who delete what nobody holds
            self._acquire(fcntl.LOCK_SH)
        os.utime(self._lock)

    def _write(self, write: Callable[[Path], None]) -> None:
        new = self.folder.with_suffix(_NEW)
        try:
            # of a process that ended early, as this one has the lock
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(mode=0o700)
            write(new)
            os.rename(new, self.folder)
        except OSError as error:
            if isinstance(error, ModelNotShared):
                raise
            raise self._cannot(error) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self._prune()

    def _acquire(self, how: int) -> None:
        end = time.monotonic() + self._seconds
        while True:
            try:
                fcntl.flock(self._lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ModelNotShared(
                        f"node {this_node()} waited {self._seconds:.0f} s for another "
                        f"process that writes {str(self.folder)!r}; end that"
                    ) from None
                time.sleep(_PAUSE)
            else:
                return

    def _prune(self) -> None:
        """Delete the models that were not used for longest, but for those in use."""
        left = size_limit(DEFAULT_SIZE)
        used = []
        for lock in self._root.glob(f"*{_LOCK}"):
            with contextlib.suppress(OSError):
                used.append((lock.stat().st_mtime, lock))
        for _, lock in sorted(used, reverse=True):
            folder = lock.with_suffix("")
            left -= sum(
                each.stat().st_size for each in folder.rglob("*") if each.is_file()
            )
            if left < 0 and folder != self.folder:
                _delete_unused(lock, folder)

    def close(self) -> None:
        """Let them be deleted, if need be."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()


def _delete_unused(lock: Path, folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(descriptor)
