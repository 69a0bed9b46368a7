"""The bytes that a model is in: of files, mapped or read, or in memory.

Owns: which of the two, and that no file changed while the model was loaded.  What is
mapped is the file itself, so that whoever makes it shorter afterwards ends the process
(SIGBUS), and whoever writes into it changes the weights; what is read is a copy.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

from onnxplug.authoring.files import Identity, read_descriptor
from onnxplug.errors import InvalidModel
from onnxplug.graph.origin import Origin

MAPPED_FROM: Final = 1 << 20
"""Bytes from which on files are mapped.  Reading fewer takes less than a millisecond,
and then what happens to the file does not matter."""


class Contents:
    """The files of one model, and what else its bytes are in.

    Args:
        mapped: large files are mapped; otherwise all are read.

    Attributes:
        files: what each file was when it was opened, by its path without links, and by
            the name that led there.
    """

    def __init__(self, *, mapped: bool = True) -> None:
        self._mapped: Final = mapped
        self.files: dict[str, Identity] = {}
        self._maps: list[str] = []
        self._origins: dict[int, Origin] = {}

    def of(self, path: str, descriptor: int, status: os.stat_result) -> memoryview:
        """The bytes of the file that was just opened at *path* and has *status*.

        Raises:
            OSError: they cannot be mapped or read.
        """
        # of the descriptor, so that nothing that happens to the name matters
        self.files[path] = Identity.of(status)
        if not self._mapped or status.st_size < MAPPED_FROM:
            content = read_descriptor(descriptor, status)
        else:
            try:
                mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
            except (ValueError, OverflowError) as error:  # it has become shorter
                raise OSError(f"it cannot be mapped: {error}") from error
            self._maps.append(path)
            content = memoryview(mapping)
        owner = content.obj
        self._origins[id(owner)] = Origin.of_file(owner, path, status)
        return content

    def given(self, content: memoryview) -> None:
        """Note that bytes of the model may be in *content*, which is in memory."""
        owner = content.obj
        # others may be written to, whatever a view of them says
        if isinstance(owner, bytes):
            self._origins[id(owner)] = Origin.of_bytes(owner)

    def origin(self, raw: memoryview) -> Origin | None:
        """What *raw* is a part of, if that was opened or given."""
        return self._origins.get(id(raw.obj))

    def named(self, name: str, path: str) -> None:
        """Note the *name* that led to the file at *path*, maybe through links."""
        self.files[name] = self.files[path]

    def require_unchanged(self) -> None:
        """Refuse files that are mapped and were written to since.

        A file that another one was moved over is as it was, and its bytes stay.

        Raises:
            InvalidModel: one was.
        """
        for path in self._maps:
            before = self.files[path]
            try:
                now = Identity.of(os.stat(path))
            except OSError:
                continue
            if now[:2] == before[:2] and now != before:
                raise InvalidModel(
                    f"{path!r} was written to while it was loaded: it had "
                    f"{before.size} bytes, and has {now.size}; load it when it is "
                    "complete, and replace models by moving others over them"
                )
