"""DLPack's capsules: what their structures hold, and types that numpy has none for.

Source: ``dlpack.h`` of DLPack 1.1.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from onnxplug.ep import DataType
from onnxplug.errors import InvalidArgument, ValueTypeError

CODES: Final = {
    DataType.BFLOAT16: 4,
    DataType.FLOAT8_E4M3FN: 10,
    DataType.FLOAT8_E4M3FNUZ: 11,
    DataType.FLOAT8_E5M2: 12,
    DataType.FLOAT8_E5M2FNUZ: 13,
    DataType.FLOAT8_E8M0FNU: 14,
}
TYPES: Final = {(code, type.bits): type for type, code in CODES.items()}
WHOLE: Final = 1
"""DLPack's code of whole numbers without a sign: ``kDLUInt``."""

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


class Tensor(ctypes.Structure):
    """``DLTensor``: where an array is, and of what.

    Attributes:
        data: address of the memory; the first element is *byte_offset* behind it.
        device_type, device_id: of its device.
        ndim: how many axes.
        code, bits, lanes: of its element type.
        shape, strides: pointers to as many numbers; without strides it is in C order.
    """

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


def is_capsule(data: Any) -> bool:
    """Whether *data* is a capsule rather than what gives one."""
    return type(data).__name__ == "PyCapsule"


def tensor_of(capsule: Any) -> Tensor:
    """What a capsule that nobody has used says of its array, to be read and written.

    It is there as long as the capsule, or whoever used that.

    Raises:
        InvalidArgument: it is of another major version of DLPack.
        ValueTypeError: it is no capsule, or was used already.
    """
    for name, offset in _TENSORS.items():
        if is_capsule(capsule) and _is_valid(capsule, name):
            address = _get_pointer(capsule, name)
            if name == _VERSIONED:
                major, minor = (ctypes.c_uint32 * 2).from_address(address)
                if major != _VERSION:
                    raise InvalidArgument(
                        f"a capsule is of DLPack {major}.{minor}; expected {_VERSION}.x"
                    )
            return Tensor.from_address(address + offset)
    raise ValueTypeError(
        f"a value is made from {capsule!r}; expected a DLPack capsule that nobody has "
        "used"
    )


def export(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """The capsule of a host array, by the arguments of ``ndarray.__dlpack__``.

    Raises:
        BufferError: DLPack has no such element type, or the array cannot be shared.
    """
    try:
        code = CODES.get(DataType.from_numpy(array.dtype))
    except TypeError:
        code = None
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.dtype.itemsize}").__dlpack__(**options)
    tensor_of(capsule).code = code
    return capsule
