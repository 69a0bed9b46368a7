"""Memory of the host that callers know by its address.

Owns: which addresses there can be.  Whether memory is there nobody can tell, nor how
much of it: for that the caller vouches.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import MOST_ELEMENTS
from onnxplug.ep import DataType
from onnxplug.errors import ArgumentTypeError, InvalidArgument

_FIRST: Final = 1 << 12
"""The lowest address of memory: every system keeps the page before it unused, for what
is at null to fail."""


def check_range(address: int, nbytes: int, what: str) -> None:
    """Check that a process may have *nbytes* at *address*, for *what*, in words.

    Raises:
        InvalidArgument: it has none there.
    """
    if not _FIRST <= address <= MOST_ELEMENTS - nbytes:
        raise InvalidArgument(
            f"{what} is at address {address:#x}, and has {nbytes} bytes there; no "
            "process has memory there"
        )


def array_at(
    address: Any, data_type: DataType, shape: Sequence[int]
) -> np.ndarray[Any, Any]:
    """The array of host memory at *address*, which has to outlive it.

    Args:
        shape: sizes that were checked.

    Raises:
        InvalidArgument: there is no such address, or the elements are strings.
    """
    if data_type is DataType.STRING:
        raise InvalidArgument("strings have no address; feed them to run() instead")
    try:
        number = operator.index(address)
    except TypeError:
        number = None
    if number is None or isinstance(address, bool):
        raise ArgumentTypeError(
            f"an address is {address!r}, a {type(address).__name__}; expected a whole "
            "number, as array.ctypes.data or OrtValue.data_ptr() give it"
        )
    if not 0 <= number <= MOST_ELEMENTS:
        raise InvalidArgument(
            f"an address is {number:#x}; expected one of this process's memory, "
            "as array.ctypes.data or OrtValue.data_ptr() give it"
        )
    dtype = data_type.numpy
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.empty(shape, dtype)
    check_range(number, nbytes, f"a bound array, {data_type}{list(shape)},")
    memory = memoryview((ctypes.c_char * nbytes).from_address(number))
    flat: np.ndarray[Any, Any] = np.frombuffer(memory, dtype=dtype)
    return flat.reshape(shape)
