"""Capsules of DLPack, made and read by ctypes.

Layout: ``DLManagedTensor`` of dlpack.h, without a version.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.storage import HostArray, Storage

EXTENSION_DEVICE: Final = 12
"""``kDLExtDev``: a device that DLPack knows nothing of."""


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _ElementType(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _ElementType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_CODES: Final = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_TYPES: Final = {
    (_CODES[match[1]], data_type.bits): data_type
    for data_type in ep.DataType
    if (match := re.fullmatch(r"(u?int|b?float|complex|bool)\d*", data_type))
    and data_type.bits >= 8
}
_NUMBERS: Final = {data_type: number for number, data_type in _TYPES.items()}

# names that capsules point to
_FRESH: Final = b"dltensor"
_USED: Final = b"used_dltensor"


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    # prototypes of our own: those in ctypes.pythonapi are shared by the whole process
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    function: Callable[..., Any] = prototype((name, ctypes.pythonapi))
    return function


_new = _function(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_is_valid = _function(
    "PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p
)
_pointer = _function(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)
_rename = _function(
    "PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p
)


@dataclass(frozen=True, slots=True)
class _Exported:
    # a destructor of Python's would run amid the exception of an importer that refuses
    # the capsule, and break it; so the capsule is kept until it is taken or abandoned
    needed: tuple[Any, ...]
    capsule: Any


_exported: dict[int, _Exported] = {}
"""What exported tensors need, by address, until their deleters are called."""


def _delete(address: int) -> None:
    _exported.pop(address, None)


_delete_callback: Final = _Deleter(_delete)


def release_abandoned() -> None:
    """Let go of what capsules keep that were dropped before anybody took them."""
    for address, exported in list(_exported.items()):
        fresh = _is_valid(exported.capsule, _FRESH)
        # one reference is the attribute's, and one the argument's
        if fresh and sys.getrefcount(exported.capsule) <= 2:
            _delete(address)


def export(storage: Storage, device: tuple[int, int], owner: Any) -> Any:
    """A capsule named ``dltensor`` of *storage* on *device*, which keeps *owner*.

    Raises:
        BufferError: DLPack has no such element type.
    """
    data_type = ep.DataType.from_numpy(storage.dtype)
    if data_type not in _NUMBERS:
        raise BufferError(f"DLPack has no element type {data_type}")
    shape = (ctypes.c_int64 * len(storage.shape))(*storage.shape)
    managed = _ManagedTensor()
    tensor = managed.tensor
    tensor.data = storage.address
    tensor.device = _Device(*device)
    tensor.ndim = len(storage.shape)
    tensor.dtype = _ElementType(*_NUMBERS[data_type], 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_delete_callback, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    release_abandoned()
    capsule = _new(address, _FRESH, None)
    _exported[address] = _Exported((managed, shape, owner), capsule)
    return capsule


def take(capsule: Any, device: tuple[int, int]) -> tuple[HostArray, Callable[[], None]]:
    """The memory of a *capsule* on *device*, and what to call when it is not needed.

    Raises:
        BufferError: it is no capsule of a tensor, was taken before, or is of another
            device or of an element type that ONNX has not.
    """
    if not _is_valid(capsule, _FRESH):
        raise BufferError(
            f"a {type(capsule).__name__} is no DLPack capsule, or was taken before"
        )
    address = _pointer(capsule, _FRESH)
    managed = _ManagedTensor.from_address(address)
    tensor = managed.tensor
    found = (tensor.device.type, tensor.device.id)
    if found != device:
        raise BufferError(f"the capsule is of device {found}; expected {device}")
    number = (tensor.dtype.code, tensor.dtype.bits)
    if number not in _TYPES or tensor.dtype.lanes != 1:
        raise BufferError(f"the capsule's element type, {number}, is none of ONNX's")
    dtype = _TYPES[number].numpy
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = [step * dtype.itemsize for step in tensor.strides[: tensor.ndim]]
        if strides != list(np.empty(shape, dtype).strides):
            raise BufferError("the capsule's tensor is not contiguous")
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if nbytes:
        start = tensor.data + tensor.byte_offset
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(start)
        content = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    else:
        content = np.empty(shape, dtype)
    _rename(capsule, _USED)
    deleter = managed.deleter
    return content, lambda: _Deleter(deleter)(address) if deleter else None
