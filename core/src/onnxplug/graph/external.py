"""Weights in files beside the model.

Owns: the promise that a model reads nothing but regular files in its own folder, and
nothing beyond their ends, whatever is renamed there meanwhile.  Each file is opened
once, and shared by its weights.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep import DataType
from onnxplug.ep.arrays import usual_form
from onnxplug.ep.files import NO_LINK, open_regular
from onnxplug.errors import ExternalDataError
from onnxplug.graph.contents import Contents

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

_BY_FOLDERS: Final = os.open in os.supports_dir_fd
"""Whether files can be opened relative to open folders, as Windows cannot."""


class ExternalData:
    """The files that a model's external data may lie in.

    Args:
        folder: where locations are relative to; ``None`` when there is none.
        model: the model's file, if it came from one.
        files: contents by location, which are used instead of files.
        arrays: weights by the tensor's name, whose files are not looked at.
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
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
        contents: Contents | None = None,
    ) -> None:
        self._folder: Final = folder
        self._model: Final = model
        self._files: dict[str, memoryview] = dict(files or {})
        self._arrays: Final = dict(arrays or {})
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

    def read(self, entries: Mapping[str, str], nbytes: int, tensor: str) -> memoryview:
        """The *nbytes* bytes of *tensor*, which its ``external_data`` describes.

        Raises:
            ExternalDataError: they are missing, outside the model's folder, or not
                as many.
        """
        if tensor in self._arrays:
            return self._given(tensor, nbytes)
        location = entries.get("location", "")
        if location not in self._files:
            self._files[location] = self._load(location, tensor)
        data = self._files[location]
        offset = _number(entries, "offset", 0, tensor)
        length = _number(entries, "length", nbytes, tensor)
        if length != nbytes:
            raise ExternalDataError(
                f"tensor {tensor!r} says that its external data has {length} bytes, "
                f"but its shape and element type need {nbytes}"
            )
        if offset + length > len(data):
            raise ExternalDataError(
                f"tensor {tensor!r} is at bytes {offset} to {offset + length} of "
                f"external data file {location!r}, which has only {len(data)} bytes; "
                "the file is truncated or belongs to another model"
            )
        return data[offset : offset + length]

    def _given(self, tensor: str, nbytes: int) -> memoryview:
        from onnxplug.graph.packing import to_raw

        array = self._arrays[tensor]
        try:
            dtype = DataType.from_numpy(array.dtype)
        except TypeError as error:
            raise ExternalDataError(
                f"tensor {tensor!r} is given as an array that is no tensor: {error}"
            ) from error
        if dtype is DataType.STRING:
            raise ExternalDataError(
                f"tensor {tensor!r} is given as strings, which cannot be external data"
            )
        raw = to_raw(usual_form(array, dtype.numpy), dtype)
        if raw.nbytes != nbytes:
            raise ExternalDataError(
                f"tensor {tensor!r} is given as {array.dtype}{list(array.shape)} of "
                f"{raw.nbytes} bytes; the model needs {nbytes}.  Replacement "
                "tensor's dimensions do not match."
            )
        return raw.data.toreadonly()

    def _load(self, location: str, tensor: str) -> memoryview:
        root, path = self._resolve(location, tensor)
        if path not in self._opened:
            self._opened[path] = self._open(root, path, tensor)
        return self._opened[path]

    def _open(self, root: Path, path: Path, tensor: str) -> memoryview:
        try:
            descriptor, status = _open_within(root, path)
            try:
                return self.contents.of(str(path), descriptor, status)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise ExternalDataError(
                f"external data of tensor {tensor!r} is missing: there is no file "
                f"{str(path)!r}; put the model's weight files beside the model"
            ) from error
        except OSError as error:
            raise ExternalDataError(
                f"external data of tensor {tensor!r}: {str(path)!r} cannot be read: "
                f"{error.strerror or error}"
            ) from error

    def _resolve(self, location: str, tensor: str) -> tuple[Path, Path]:
        """The folder that the file at *location* is in or below, and the file.

        Both are without links, when this looks."""
        from pathlib import Path, PurePosixPath, PureWindowsPath

        where = f"external data of tensor {tensor!r} is at {location!r}"
        if not location or "\0" in location:
            raise ExternalDataError(f"{where}, which is not a path")
        # both flavours, since a model is refused or accepted alike on every platform
        for flavour in (PurePosixPath(location), PureWindowsPath(location)):
            if flavour.anchor or ".." in flavour.parts:
                raise ExternalDataError(
                    f"{where}; only paths within the model's folder are allowed"
                )
        if self._folder is None:
            raise ExternalDataError(
                f"{where}, but the model was not loaded from a path; "
                "say where its files are with external_data_folder"
            )
        try:
            path = Path(self._folder, location).resolve()
        # a loop of links, or half of a surrogate pair
        except (OSError, RuntimeError, ValueError) as error:
            raise ExternalDataError(f"{where}, which leads nowhere: {error}") from error
        for root in self._roots:
            if path == root:
                raise ExternalDataError(f"{where}, which is the model's folder")
            if path.is_relative_to(root):
                return root, path
        raise ExternalDataError(
            f"{where}, which links to {str(path)!r}, outside the model's folder "
            f"{str(self._roots[0])!r}; put the file there"
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


def _number(entries: Mapping[str, str], key: str, default: int, tensor: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    # decimal digits only: int() would also take signs, spaces, "1_0" and other scripts
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ExternalDataError(
            f"external data of tensor {tensor!r} has {key} {text[:40]!r}; "
            "expected a number of bytes, 0 or more"
        )
    return int(text)
