"""DLPack: checks of what other libraries describe, and types that numpy has none for.

Owns: what DLPack's structures hold.  Every capsule is looked at before an array is made
of it, as whoever reads it, numpy included, believes all that it says.  Host arrays of
element types without DLPack in numpy are exchanged as whole numbers of the same width;
their capsules are given the types' codes.

Source: ``dlpack.h`` of DLPack 1.1.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import MOST_AXES, MOST_ELEMENTS, OutOfBounds, sizes
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug.errors import InvalidArgument, ValueTypeError
from onnxplug.interruption import raise_interruption
from onnxplug.session.addresses import check_range

HOST: Final = {1, 3, 11}
"""DLPack's types of memory that the host reads: its own, and that pinned for CUDA and
ROCm."""

_CODES: Final = {
    DataType.BFLOAT16: 4,
    DataType.FLOAT8_E4M3FN: 10,
    DataType.FLOAT8_E4M3FNUZ: 11,
    DataType.FLOAT8_E5M2: 12,
    DataType.FLOAT8_E5M2FNUZ: 13,
    DataType.FLOAT8_E8M0FNU: 14,
}
_TYPES: Final = {(code, type.bits): type for type, code in _CODES.items()}
_WHOLE: Final = 1  # kDLUInt

_VERSIONED: Final = b"dltensor_versioned"
_TENSORS: Final = {b"dltensor": 0, _VERSIONED: 32}
"""What capsules are called, and where in their structures the ``DLTensor`` is, on
platforms with pointers of 8 bytes."""

_VERSION: Final = 1
"""The major version of DLPack whose structures are these."""

_get_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid: Final = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Source(Record):
    """What gives capsules, each of which is looked at, or a capsule, given once."""

    content: Any

    def __dlpack__(self, **options: Any) -> Any:
        content = self.content
        capsule = content if is_capsule(content) else content.__dlpack__(**options)
        _check(_tensor(capsule))
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        if not is_capsule(self.content):
            where, ordinal = map(int, self.content.__dlpack_device__())
            return where, ordinal
        tensor = _tensor(self.content)
        return tensor.device_type, tensor.device_id


def is_capsule(data: Any) -> bool:
    """Whether *data* is a capsule rather than what gives one."""
    return type(data).__name__ == "PyCapsule"


def is_of_bytes(capsule: Any) -> bool:
    """Whether a capsule has whole numbers of 8 bits, which booleans may be, too.

    Raises:
        ValueTypeError: it is no capsule, or was used already.
    """
    tensor = _tensor(capsule)
    return (tensor.code, tensor.bits, tensor.lanes) == (_WHOLE, 8, 1)


def as_source(data: Any) -> Source:
    """*data*, an array or a capsule.

    Raises:
        InvalidArgument: the capsule describes memory that cannot be.
        ValueTypeError: it is neither, or the capsule was used already.
    """
    if is_capsule(data):
        _check(_tensor(data))
    elif not (hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__")):
        raise ValueTypeError(
            f"a value is made from a {type(data).__name__}; expected an object with "
            "__dlpack__ and __dlpack_device__, or a DLPack capsule"
        )
    return Source(data)


def export(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """The capsule of a host array, by the arguments of ``ndarray.__dlpack__``.

    Raises:
        BufferError: DLPack has no such element type, or the array cannot be shared.
    """
    try:
        code = _CODES.get(DataType.from_numpy(array.dtype))
    except TypeError:
        code = None
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.dtype.itemsize}").__dlpack__(**options)
    _tensor(capsule).code = code
    return capsule


def import_host(source: Source) -> np.ndarray[Any, Any]:
    """The array of an object whose memory the host reads.

    Raises:
        InvalidArgument: its capsule describes memory that cannot be.
        Exception: whatever the library raises.
    """
    try:
        if not is_capsule(source.content) or _narrow(source.content) is None:
            return np.from_dlpack(source)
    except InvalidArgument:
        raise
    except Exception as error:  # of a library that has a type that numpy has not
        raise_interruption(error)
        capsule = source.__dlpack__()
        if _narrow(capsule) is None:
            raise
        source = Source(capsule)
    type = _narrow(source.content)
    assert type is not None
    _tensor(source.content).code = _WHOLE
    return np.from_dlpack(source).view(type.numpy)


def _narrow(capsule: Any) -> DataType | None:
    tensor = _tensor(capsule)
    return _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None


def _tensor(capsule: Any) -> _Tensor:
    for name, offset in _TENSORS.items():
        if is_capsule(capsule) and _is_valid(capsule, name):
            address = _get_pointer(capsule, name)
            if name == _VERSIONED:
                major, minor = (ctypes.c_uint32 * 2).from_address(address)
                if major != _VERSION:
                    raise InvalidArgument(
                        f"a capsule is of DLPack {major}.{minor}; expected {_VERSION}.x"
                    )
            return _Tensor.from_address(address + offset)
    raise ValueTypeError(
        f"a value is made from {capsule!r}; expected a DLPack capsule that nobody has "
        "used"
    )


def _check(tensor: _Tensor) -> None:
    """Check that there may be such a tensor.

    Whether its memory is there nobody can tell: for that its exporter vouches.

    Raises:
        InvalidArgument: its shape is none, or its elements have no address, or would
            lie where no process has memory.
    """
    rank = tensor.ndim
    if not 0 <= rank <= MOST_AXES:
        raise _wrong(f"has {rank} axes; expected 0 to {MOST_AXES}")
    if rank and not tensor.shape:
        raise _wrong(f"has {rank} axes and no sizes: its shape is null")
    itemsize = -(-tensor.bits * tensor.lanes // 8)
    try:
        shape = sizes(tensor.shape[:rank], itemsize=itemsize)
    except OutOfBounds as error:
        raise _wrong(f"has a shape that there is not: {error}") from error
    if 0 in shape:
        return
    if not tensor.data:
        raise _wrong(
            f"has shape {list(shape)} and no memory: its address is null; expected "
            "that of the first element"
        )
    steps = _steps(shape, tensor.strides[:rank] if tensor.strides else None)
    first = tensor.byte_offset + sum(step for step in steps if step < 0) * itemsize
    end = tensor.byte_offset + (sum(step for step in steps if step > 0) + 1) * itemsize
    if tensor.device_type in HOST:  # elsewhere it may be anything that is not null
        first, end = first + tensor.data, end + tensor.data
        what = f"a DLPack capsule of shape {list(shape)}"
        check_range(first, end - first, what)
    elif end - first > MOST_ELEMENTS or end > MOST_ELEMENTS:
        raise _wrong(f"has elements to byte {end}, beyond what int64 counts")


def _steps(shape: Sequence[int], strides: Sequence[int] | None) -> list[int]:
    """How many elements the last of each axis is after the first."""
    if strides is None:
        return [math.prod(shape) - 1]
    return [stride * (size - 1) for stride, size in zip(strides, shape, strict=True)]


def _wrong(what: str) -> InvalidArgument:
    return InvalidArgument(f"a DLPack capsule {what}")
