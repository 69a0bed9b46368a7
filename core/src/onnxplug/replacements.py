"""What a program gives in place of parts of a model: initializers, and files."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxplug.errors import OptionError, OptionTypeError
from onnxplug.names import as_names


class HostTensor(Protocol):
    """What gives a tensor as an array: an ``OrtValue``."""

    def numpy(self) -> Any:
        """The elements."""


def array_of(name: str, value: HostTensor) -> Any:
    """The array that is given for the initializer *name*.

    Raises:
        OptionTypeError: *value* is no ``OrtValue``.
    """
    if not callable(getattr(value, "numpy", None)):
        raise OptionTypeError(
            f"initializer {name!r} is given as a {type(value).__name__}; expected an "
            "OrtValue, such as OrtValue.ortvalue_from_numpy(array)"
        )
    return value.numpy()


def arrays_by_name(names: Any, values: Any) -> Mapping[str, Any]:
    """The arrays that are given for initializers.

    Raises:
        OptionError: the two are not of one length; ``OptionTypeError`` if one is no
            list, or has what is no name or no ``OrtValue``.
    """
    names = as_names(names, "names", OptionTypeError)
    values = _listed(values, "values")
    if len(names) != len(values):
        raise OptionError(
            f"{len(names)} names and {len(values)} values of external initializers are "
            "given; expected one value for each name"
        )
    given = zip(names, values, strict=True)
    return {name: array_of(name, value) for name, value in given}


def files_by_name(names: Any, buffers: Any, lengths: Any) -> Mapping[str, memoryview]:
    """The contents that are given for files.

    Raises:
        OptionError: the three are not of one length, or a buffer has not as many bytes;
            ``OptionTypeError`` if one is no list, or has what is no name, no buffer or
            no length.
    """
    names = as_names(names, "names", OptionTypeError)
    buffers = _listed(buffers, "buffers")
    lengths = _listed(lengths, "lengths")
    if not len(names) == len(buffers) == len(lengths):
        raise OptionError(
            f"{len(names)} names, {len(buffers)} buffers and {len(lengths)} lengths of "
            "files in memory are given; expected as many of each"
        )
    given = zip(names, buffers, lengths, strict=True)
    return {name: _content(name, buffer, length) for name, buffer, length in given}


def _content(name: str, buffer: Any, length: Any) -> memoryview:
    try:
        view, count = memoryview(buffer).cast("B"), operator.index(length)
    except TypeError as error:
        raise OptionTypeError(
            f"file {name!r} in memory is given as a {type(buffer).__name__} and length "
            f"{length!r}; expected a contiguous buffer and a whole number: {error}"
        ) from error
    if not 0 <= count <= len(view):
        raise OptionError(
            f"file {name!r} in memory is said to have {count} bytes; its buffer has "
            f"{len(view)}"
        )
    return view[:count]


def _listed(given: Any, what: str) -> Sequence[Any]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise OptionTypeError(
            f"{what} is given as a value of type {type(given).__name__}; expected a "
            "list"
        )
    return given
