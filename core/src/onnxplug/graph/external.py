"""Weights in files beside the model.

Owns: the promise that a model reads nothing but regular files in its own folder, and
nothing beyond their ends.  Each file is mapped once, and shared by its weights.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep import DataType
from onnxplug.ep.arrays import usual_form
from onnxplug.errors import ExternalDataError

if TYPE_CHECKING:
    import numpy as np


class ExternalData:
    """The files that a model's external data may lie in.

    Args:
        folder: where locations are relative to; ``None`` when there is none.
        model: the model's file, if it came from one.
        files: contents by location, which are used instead of files.
        arrays: weights by the tensor's name, whose files are not looked at.
    """

    def __init__(
        self,
        folder: Path | None,
        model: Path | None = None,
        *,
        files: Mapping[str, memoryview] | None = None,
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self._folder: Final = folder
        roots = [] if folder is None else [folder.resolve()]
        if model is not None:
            # A cache such as Hugging Face's keeps model and weights in one folder
            # and links to both from another.
            roots.append(model.resolve().parent)
        self._roots: Final = roots
        self._files: dict[str, memoryview] = dict(files or {})
        self._arrays: Final = dict(arrays or {})

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
            self._files[location] = self._map(location, tensor)
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

    def _map(self, location: str, tensor: str) -> memoryview:
        path = self._resolve(location, tensor)
        try:
            # a FIFO would block, so whatever it is must open at once
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise ExternalDataError(
                        f"external data of tensor {tensor!r}: {str(path)!r} is not a "
                        "regular file"
                    )
                return map_file(descriptor, status.st_size)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise ExternalDataError(
                f"external data of tensor {tensor!r} is missing: there is no file "
                f"{str(path)!r}; put the model's weight files beside the model"
            ) from error
        except OSError as error:
            raise ExternalDataError(
                f"external data of tensor {tensor!r} cannot be read: {error}"
            ) from error

    def _resolve(self, location: str, tensor: str) -> Path:
        """The file at *location*, once it is known to be in the folder."""
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
            path = (self._folder / location).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise ExternalDataError(f"{where}, which leads nowhere: {error}") from error
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ExternalDataError(
                f"{where}, which links to {str(path)!r}, outside the model's folder "
                f"{str(self._roots[0])!r}; put the file there"
            )
        return path


def map_file(descriptor: int, size: int) -> memoryview:
    """The bytes of an open file, read-only, without reading them yet."""
    if size == 0:  # which mmap refuses
        return memoryview(b"")
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))


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
