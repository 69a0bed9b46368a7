"""DLPack for host arrays of element types that numpy has no DLPack for.

Owns: where DLPack's structures have the element type.  numpy exchanges such an array as
one of whole numbers of the same width; its capsule is given the type's code.

Source: ``dlpack.h`` of DLPack 1.1.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug.ep import DataType
from onnxplug.errors import ValueTypeError
from onnxplug.interruption import raise_interruption

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

_TENSORS: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
"""What capsules are called, and where in their structures the ``DLTensor`` is, on
platforms with pointers of 8 bytes."""

_get_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid: Final = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Start(ctypes.Structure):
    """The beginning of ``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class Capsule(NamedTuple):
    """A capsule as an object with ``__dlpack__``, which gives it once."""

    content: Any

    def __dlpack__(self, **options: Any) -> Any:
        return self.content

    def __dlpack_device__(self) -> tuple[int, int]:
        start = _start(self.content)
        return start.device_type, start.device_id


def is_capsule(data: Any) -> bool:
    """Whether *data* is a capsule rather than what gives one."""
    return type(data).__name__ == "PyCapsule"


def is_of_bytes(capsule: Any) -> bool:
    """Whether a capsule has whole numbers of 8 bits, which booleans may be, too.

    Raises:
        ValueTypeError: it is no capsule, or was used already.
    """
    start = _start(capsule)
    return (start.code, start.bits, start.lanes) == (_WHOLE, 8, 1)


def as_source(data: Any) -> Any:
    """*data*, an array or a capsule, as an object with ``__dlpack__``.

    Raises:
        ValueTypeError: it is neither, or the capsule was used already.
    """
    if is_capsule(data):
        _start(data)
        return Capsule(data)
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        return data
    raise ValueTypeError(
        f"a value is made from a {type(data).__name__}; expected an object with "
        "__dlpack__ and __dlpack_device__, or a DLPack capsule"
    )


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
    _start(capsule).code = code
    return capsule


def import_host(source: Any) -> np.ndarray[Any, Any]:
    """The array of an object whose memory the host reads.

    Raises:
        Exception: whatever the library raises.
    """
    try:
        if not isinstance(source, Capsule) or _narrow(source.content) is None:
            return np.from_dlpack(source)
    except Exception as error:  # of a library that has a type that numpy has not
        raise_interruption(error)
        capsule = source.__dlpack__()
        if _narrow(capsule) is None:
            raise
        source = Capsule(capsule)
    type = _narrow(source.content)
    assert type is not None
    _start(source.content).code = _WHOLE
    return np.from_dlpack(source).view(type.numpy)


def _narrow(capsule: Any) -> DataType | None:
    start = _start(capsule)
    return _TYPES.get((start.code, start.bits)) if start.lanes == 1 else None


def _start(capsule: Any) -> _Start:
    for name, offset in _TENSORS.items():
        if is_capsule(capsule) and _is_valid(capsule, name):
            return _Start.from_address(_get_pointer(capsule, name) + offset)
    raise ValueTypeError(
        f"a value is made from {capsule!r}; expected a DLPack capsule that nobody has "
        "used"
    )
