"""What callers say of a tensor that is to be made: element type, shape, device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring import bounds
from onnxplug.authoring.memory_limit import check_room
from onnxplug.ep import DataType
from onnxplug.errors import ArgumentTypeError, InvalidArgument, OutOfMemory
from onnxplug.guard import type_in_words

_OBJECTS: Final = {object, np.object_}
"""The classes of strings."""


def as_data_type(element_type: Any) -> DataType:
    """The element type meant by a numpy dtype or type, or by ONNX's number.

    Raises:
        InvalidArgument: there is none; ``ArgumentTypeError`` for what could mean none.
    """
    try:
        if isinstance(element_type, DataType):
            return element_type
        if isinstance(element_type, int | np.integer):
            return DataType.from_onnx(int(element_type))
        if element_type is not None:  # which numpy takes for float64
            dtype = np.dtype(element_type)
            # and any class that it does not know for that of objects
            is_known = dtype.kind != "O" or (
                not isinstance(element_type, type) or element_type in _OBJECTS
            )
            if is_known:
                return DataType.from_numpy(dtype)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    except TypeError:
        pass
    given = repr(element_type)
    if isinstance(element_type, type):
        given = f"the class {type_in_words(element_type)}"
    raise ArgumentTypeError(
        f"an element type is {given}; expected a dtype or type of numpy's "
        "that ONNX has, such as np.float32, or ONNX's number of one"
    )


def as_sizes(shape: Any, dtype: DataType) -> tuple[int, ...]:
    """The shape of a tensor of *dtype*.

    Raises:
        InvalidArgument: a size is negative, there are more than numpy has axes, or
            there is no room for so many elements; ``ArgumentTypeError`` for what is no
            list of sizes.
    """
    try:
        sizes = bounds.sizes(shape, itemsize=dtype.numpy.itemsize)
    except TypeError as error:
        raise ArgumentTypeError(
            f"a shape is {shape!r}; expected a list of whole numbers"
        ) from error
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if len(sizes) > bounds.MOST_AXES:
        raise InvalidArgument(
            f"a shape has {len(sizes)} sizes; numpy has at most {bounds.MOST_AXES}"
        )
    return sizes


def is_host(device_type: Any) -> bool:
    """Whether a device's name is that of the host.

    Raises:
        ArgumentTypeError: it is no name.
    """
    if type(device_type) is str and device_type == "cpu":
        return True
    if not isinstance(device_type, str):
        raise ArgumentTypeError(
            f"a device is {device_type!r}; expected the name of a memory, such as "
            "'cpu' or 'cuda'"
        )
    return device_type.lower() == "cpu"


def require_numbers(dtype: DataType, device_type: str) -> None:
    """Check that a device may hold elements of *dtype*.

    Raises:
        InvalidArgument: they are strings.
    """
    if dtype is DataType.STRING:
        raise InvalidArgument(
            f"strings are to be in {device_type!r} memory; only the host holds them"
        )


def new_array(shape: Sequence[int], dtype: DataType) -> np.ndarray[Any, Any]:
    """A new array of the host, of unspecified content; of strings, empty ones.

    Raises:
        OutOfMemory: it takes more memory than there is.
    """
    nbytes = math.prod(shape) * dtype.numpy.itemsize
    try:
        check_room(nbytes)
        if dtype is DataType.STRING:
            return np.full(shape, "", dtype.numpy)
        return np.empty(shape, dtype.numpy)
    except MemoryError as error:
        what = f"a tensor of {dtype}{list(shape)}"
        raise OutOfMemory.of(error, what, nbytes=nbytes) from error
