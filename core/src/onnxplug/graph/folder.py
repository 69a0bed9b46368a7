"""Files beside a model: of weights, and of what EPs compiled.

Owns: the promise that a model reads nothing but regular files in its own folder,
whatever is renamed there meanwhile.  Each file is opened once, and shared by all that
names it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.files import NO_LINK, open_regular
from onnxplug.errors import InvalidModel
from onnxplug.graph.contents import Contents

if TYPE_CHECKING:
    from pathlib import Path

_BY_FOLDERS: Final = os.open in os.supports_dir_fd
"""Whether files can be opened relative to open folders, as Windows cannot."""


class ModelFolder:
    """The files that a model may name.

    Args:
        folder: where locations are relative to; ``None`` when there is none.
        model: the model's file, if it came from one.
        files: contents by location, which are used instead of files.
        contents: maps or reads the files; by default those of a model from memory.

    Attributes:
        contents: that, which knows where bytes are from.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        model: str | None = None,
        *,
        files: Mapping[str, memoryview] | None = None,
        contents: Contents | None = None,
    ) -> None:
        self._folder: Final = folder
        self._model: Final = model
        self._files: dict[str, memoryview] = dict(files or {})
        self.contents: Final = contents or Contents()
        for content in self._files.values():
            self.contents.given(content)
        self._opened: dict[Path, memoryview] = {}  # a file may have several locations

    @functools.cached_property
    def _roots(self) -> list[Path]:
        """The folders that the files must be in, without links."""
        from pathlib import Path

        roots = [] if self._folder is None else [Path(self._folder).resolve()]
        if self._model is not None:
            # A cache such as Hugging Face's keeps model and weights in one folder
            # and links to both from another.
            roots.append(Path(self._model).resolve().parent)
        return roots

    def content(
        self, location: str, whose: str, error: type[InvalidModel]
    ) -> memoryview:
        """The bytes of the file at *location*, mapped or read.

        Args:
            whose: what the file is for, in words that messages begin with.
            error: the class of errors that are raised.

        Raises:
            InvalidModel: it is missing, cannot be read, or is outside the folder.
        """
        if location not in self._files:
            root, path = self._resolve(location, whose, error)
            if path not in self._opened:
                self._opened[path] = self._open(root, path, whose, error)
            assert self._folder is not None
            name = os.path.abspath(os.path.join(self._folder, location))
            self.contents.named(name, str(path))
            self._files[location] = self._opened[path]
        return self._files[location]

    def _open(
        self, root: Path, path: Path, whose: str, kind: type[InvalidModel]
    ) -> memoryview:
        try:
            descriptor, status = _open_within(root, path)
            try:
                return self.contents.of(str(path), descriptor, status)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise kind(
                f"{whose} is missing: there is no file {str(path)!r}; put the model's "
                "other files beside the model"
            ) from error
        except OSError as error:
            raise kind(
                f"{whose}: {str(path)!r} cannot be read: {error.strerror or error}"
            ) from error

    def _resolve(
        self, location: str, whose: str, kind: type[InvalidModel]
    ) -> tuple[Path, Path]:
        """The folder that the file at *location* is in or below, and the file.

        Both are without links, when this looks."""
        from pathlib import Path, PurePosixPath, PureWindowsPath

        where = f"{whose} is at {location!r}"
        if not location or "\0" in location:
            raise kind(f"{where}, which is not a path")
        # both flavours, since a model is refused or accepted alike on every platform
        for flavour in (PurePosixPath(location), PureWindowsPath(location)):
            if flavour.anchor or ".." in flavour.parts:
                raise kind(f"{where}; only paths within the model's folder are allowed")
        if self._folder is None:
            raise kind(
                f"{where}, but the model was not loaded from a path; "
                "say where its files are with external_data_folder"
            )
        try:
            path = Path(self._folder, location).resolve()
        # a loop of links, or half of a surrogate pair
        except (OSError, RuntimeError, ValueError) as error:
            raise kind(f"{where}, which leads nowhere: {error}") from error
        for root in self._roots:
            if path == root:
                raise kind(f"{where}, which is the model's folder")
            if path.is_relative_to(root):
                return root, path
        raise kind(
            f"External data path validation failed: {where}, which links to "
            f"{str(path)!r}, outside the model's folder {str(self._roots[0])!r}; put "
            "the file there"
        )


def _open_within(root: Path, path: Path) -> tuple[int, os.stat_result]:
    """Open *path*, which has no links from *root* on, without following any.

    Raises:
        OSError: as of ``open_regular``, and if a part of the path is a link by now.
    """
    if not _BY_FOLDERS:
        descriptor, status = open_regular(path)
        # the name still leads to what was opened, and not by way of a link
        with contextlib.suppress(OSError):
            if path.resolve() == path and os.path.samestat(status, os.stat(path)):
                return descriptor, status
        os.close(descriptor)
        raise OSError(errno.ELOOP, "it was replaced while it was opened")
    *folders, name = path.relative_to(root).parts
    way = os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_PATH", 0)
    folder = os.open(root, way)
    try:
        for part in folders:
            below = os.open(part, way | NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = below
        return open_regular(name, flags=NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)
