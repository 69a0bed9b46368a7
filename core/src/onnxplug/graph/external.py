"""Weights in files beside the model, or given in their place.

Owns: that a weight has as many bytes as its type and shape need, and nothing beyond the
end of its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.arrays import usual_form
from onnxplug.ep import DataType
from onnxplug.errors import ExternalDataError
from onnxplug.graph.contents import Contents
from onnxplug.graph.folder import ModelFolder
from onnxplug.graph.packing import to_raw

if TYPE_CHECKING:
    import numpy as np


class ExternalData:
    """The external data of a model's tensors.

    Args:
        folder: the files that they may lie in; by default there are none.
        arrays: weights by the tensor's name, whose files are not looked at.
    """

    def __init__(
        self,
        folder: ModelFolder | None = None,
        *,
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self._folder: Final = folder or ModelFolder(None)
        self._arrays: Final = dict(arrays or {})

    @property
    def contents(self) -> Contents:
        """What knows where the bytes are from."""
        return self._folder.contents

    def read(self, entries: Mapping[str, str], nbytes: int, tensor: str) -> memoryview:
        """The *nbytes* bytes of *tensor*, which its ``external_data`` describes.

        Raises:
            ExternalDataError: they are missing, outside the model's folder, or not
                as many.
        """
        if tensor in self._arrays:
            return self._given(tensor, nbytes)
        location = entries.get("location", "")
        whose = f"external data of tensor {tensor!r}"
        data = self._folder.content(location, whose, ExternalDataError)
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
