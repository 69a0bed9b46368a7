"""What tells the bytes of one model from all others without reading them.

A file is known by its place on the disk and the times that the system keeps of it, an
object in memory by its identity, if it never changes.
"""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from onnxplug.authoring.files import lasting_state
from onnxplug.authoring.locks import new_lock
from onnxplug.ep.weights import WeightSource


class Origin:
    """An object that bytes of a model are in.

    Args:
        owner: the object, which stays as it is; it is kept, and its identity with it.
        key: tells its bytes from those of all others; ``None`` if that is not known.
        path: the file that it is the content of.
    """

    __slots__ = ("__weakref__", "key", "owner", "path")

    def __init__(
        self, owner: Any, key: tuple[Hashable, ...] | None, path: str | None = None
    ) -> None:
        self.owner: Final = owner
        self.key: Final = key
        self.path: Final = path

    @classmethod
    def of_file(cls, owner: Any, path: str, status: os.stat_result) -> Origin:
        """That of the content of the file at *path*, just opened, with *status*.

        Of a file that is written to although it is mapped, nothing is promised; those
        who have it read are not to see any of that, so they share among themselves.
        """
        state = lasting_state(status)
        if state is None:
            return cls(owner, None, path)
        kind = "mapped" if isinstance(owner, mmap.mmap) else "read"
        return cls(owner, (kind, *state), path)

    @property
    def lasts(self) -> bool:
        """Whether the key tells the bytes from all others in other processes, too."""
        return self.path is not None and self.key is not None

    @classmethod
    def of_bytes(cls, data: bytes) -> Origin:
        """That of *data*, the same for as long as anybody has it."""
        with _lock:
            for number, reference in list(_known.items()):
                if reference() is None:
                    del _known[number]
            known = _known.get(id(data))
            origin = None if known is None else known()
            if origin is None:
                # id(data) may be another's some day
                origin = cls(data, ("bytes", next(_numbers)))
                _known[id(data)] = weakref.ref(origin)
            return origin

    def source(self, raw: memoryview, digest: Hashable | None = None) -> WeightSource:
        """Where *raw*, a part of the object, is from.

        Args:
            digest: of *raw*; needed where there is no key.
        """
        start, begin = (
            np.frombuffer(data, np.uint8).__array_interface__["data"][0]
            for data in (raw, self.owner)
        )
        place, nbytes = start - begin, raw.nbytes
        key = digest if self.key is None else (*self.key, place, nbytes)
        if self.path is None:
            return WeightSource(key, None, 0, nbytes)
        from pathlib import Path  # slow to import, and not needed without weights

        return WeightSource(key, Path(self.path), place, nbytes)


_numbers: Final = itertools.count()
_known: Final[dict[int, weakref.ref[Origin]]] = {}
_lock: Final = new_lock()
