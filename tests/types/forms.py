"""Arrays of the same numbers whose memory, dtype object or class is another.

numpy's own functions take them all alike.  What reads memory natively, or asks a dtype
for its identity, may not.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension

from .formats import Array


class Subclass(np.ndarray[Any, np.dtype[Any]]):
    """An array by another name, whose results have that name, too."""


def unpickled(x: Array) -> Array:
    """As it comes from another process: the dtype is a copy, but for ml_dtypes'."""
    copied: Array = pickle.loads(pickle.dumps(x))
    return copied


def with_metadata(x: Array) -> Array:
    """Of a dtype that is equal to the usual one, and more."""
    return x.view(np.dtype(x.dtype, metadata={"of": "a test"}))


def strided(x: Array) -> Array:
    """Every other element of a row twice as long."""
    wide = np.empty((*x.shape, 2), x.dtype)
    wide[...] = x.reshape(*x.shape, 1)
    return wide[..., 0]


def reversed_(x: Array) -> Array:
    """Of negative strides."""
    every = (slice(None, None, -1),) * x.ndim
    backward: Array = np.array(x[every], copy=True)
    return backward[every] if x.ndim else backward


def misaligned(x: Array) -> Array:
    """At an odd address."""
    if x.dtype.hasobject:  # which no memory of bytes may be taken for
        packed = np.dtype([("before", np.uint8), ("x", x.dtype)])
        moved = np.empty(x.shape, packed)["x"]
    else:
        memory = np.empty(x.nbytes + 2, np.uint8)
        start = (memory.ctypes.data + 1) % 2
        moved = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def byte_swapped(x: Array) -> Array:
    """In the other byte order."""
    return x.astype(x.dtype.newbyteorder("S"))


def read_only(x: Array) -> Array:
    """Not to be written to."""
    x = x.copy()
    x.flags.writeable = False
    return x


def mapped(x: Array) -> Array:
    """In a file."""
    with tempfile.TemporaryFile() as file:
        memory = np.memmap(file, x.dtype, "w+", shape=x.shape)
    memory[...] = x
    return memory


def odd_strides(x: Array) -> Array:
    """Contiguous, with strides that nothing reads: those of axes of one element."""
    strides = [
        12345 if size == 1 or not x.size else step
        for size, step in zip(x.shape, x.strides, strict=True)
    ]
    return np.ndarray(x.shape, x.dtype, x.copy(), strides=strides)


def longlong(x: Array) -> Array:
    """Of C's ``long long``, or ``long``, where numpy's usual type is the other one."""
    for code in "lLqQiI":
        if np.dtype(code) == x.dtype and np.dtype(code) is not x.dtype:
            return x.view(code)
    return x


FORMS: Final[dict[str, Callable[[Array], Any]]] = {
    "unpickled": unpickled,
    "metadata": with_metadata,
    "longlong": longlong,
    "strided": strided,
    "reversed": reversed_,
    "misaligned": misaligned,
    "byte-swapped": byte_swapped,
    "read-only": read_only,
    "fortran": lambda x: np.array(x, order="F"),
    "odd strides": odd_strides,
    "subclass": lambda x: x.view(Subclass),
    "masked": np.ma.MaskedArray,
    "recarray": lambda x: x.view(np.recarray),
    "memmap": mapped,
    "matrix": lambda x: x.view(np.matrix),
}
"""Each makes an array of the same elements; a matrix has two dimensions always."""


def forms(x: Array) -> Iterator[tuple[str, Any]]:
    """*x* in every form that an array of its type and shape can have."""
    for name, make in FORMS.items():
        if name == "byte-swapped" and is_extension(x.dtype):
            continue
        if name == "matrix" and x.ndim != 2:
            continue
        yield name, make(x)
