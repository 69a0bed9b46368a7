"""Tensors as libraries see them.

Strings and element types of less than a byte lie elsewhere than numpy has them: they
are copied, where all others are used where they lie.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep
from onnxplug_native.functions.devices import HOST_PLACE, MemoryDevice, MemoryInfo
from onnxplug_native.functions.types import (
    ShapeInfo,
    TypeInfo,
    element_number,
    element_type,
)
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    longs,
    put_all,
    put_int,
    put_pointer,
    put_size,
    text_at,
)
from onnxplug_native.interface.memory import pointers as read_pointers
from onnxplug_native.interface.status import Code, InterfaceError

MAX_RANK: Final = 64
"""The most dimensions that arrays of numpy have."""

_MOST: Final = 1 << 47

VALUE_TAG: Final = 0x6F6E6E78_76616C31
"""What the memory of a tensor begins with."""


class TensorMemory(ctypes.Structure):
    """What lies at the address of a tensor, for compiled entries to read.

    Attributes:
        tag: :data:`VALUE_TAG` while the tensor lives.
        data: where its elements are; null for strings.
        shape: where its dimensions are.
        rank: how many these are.
        nbytes: the size of the elements together.
        element_type: the interface's number.
        is_ready: whether it has elements.
    """

    _fields_: ClassVar = [
        ("tag", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("rank", ctypes.c_size_t),
        ("nbytes", ctypes.c_size_t),
        ("element_type", ctypes.c_int32),
        ("is_ready", ctypes.c_int32),
    ]


class Value(Handle):
    """A tensor.

    Attributes:
        array: numpy's array, or one of a device; ``None`` while there is nothing.
        dtype: the element type.
        shape: the sizes.
        memory: what lies at its address.
    """

    def __init__(self, dtype: ep.DataType | None = None) -> None:
        self.memory = TensorMemory(tag=VALUE_TAG)
        super().__init__(self.memory)
        self.dtype = dtype
        self.array: Any = None
        self.shape: tuple[int, ...] = ()
        self._packed: Any = None
        self._dimensions = (ctypes.c_int64 * 1)()
        self._place: MemoryInfo | None = None

    @classmethod
    def of(cls, array: Any, dtype: ep.DataType) -> Value:
        """A tensor that is *array*."""
        value = cls(dtype)
        value.set(array)
        return value

    def release(self) -> None:
        """Release it, and the array."""
        self.memory.tag = 0
        if self._place is not None:
            self._place.release()
        self.array = self._packed = None
        super().release()

    def clear(self) -> None:
        """Let there be nothing."""
        self.array = self._packed = None
        self.memory.is_ready = 0
        self.memory.data = None

    def set(self, array: Any) -> None:
        """Let it be *array*, C-contiguous if it is numpy's."""
        memory = self.memory
        self.array = array
        shape = tuple(array.shape)
        if shape != self.shape or not memory.shape:
            self._set_shape(shape)
        memory.is_ready = 1
        if isinstance(array, np.ndarray):
            self._set_host(array)
        else:
            memory.data, memory.nbytes = array.address, array.nbytes
        memory.element_type = element_number(self.dtype)

    def _set_shape(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._dimensions = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.memory.shape = ctypes.addressof(self._dimensions)
        self.memory.rank = len(shape)

    def _set_host(self, array: Any) -> None:
        bits = self.dtype.bits if self.dtype is not None else 8
        if bits == 0:
            self.memory.data, self.memory.nbytes = None, 0
        elif bits < 8:
            self._packed = pack(array, bits)
            self.memory.data = self._packed.ctypes.data
            self.memory.nbytes = self._packed.nbytes
        else:
            self.memory.data = array.__array_interface__["data"][0]
            self.memory.nbytes = array.nbytes

    def result(self) -> Any:
        """The array, after a library has written to it."""
        if self._packed is not None and self.dtype is not None:
            unpack(self._packed, self.dtype.bits, self.array)
        return self.array

    @property
    def place(self) -> MemoryInfo:
        """Where it is."""
        if self._place is None:
            given = getattr(self.array, "memory_info", None)
            self._place = given.copy() if given else MemoryInfo("Cpu", HOST_PLACE)
        return self._place

    def strings(self) -> list[bytes]:
        """Its elements as UTF-8.

        Raises:
            InterfaceError: they are none of text.
        """
        if self.dtype is not ep.DataType.STRING or self.array is None:
            raise InterfaceError(Code.FAIL, f"a tensor of {self.dtype} has no strings")
        return [
            each if isinstance(each, bytes) else str(each).encode()
            for each in self.array.ravel()
        ]


def pack(array: Any, bits: int) -> Any:
    """The elements of less than a byte, the first in the lowest bits of each."""
    fields = np.ascontiguousarray(array).view(np.uint8).ravel() & ((1 << bits) - 1)
    group = 8 // bits
    padded = np.zeros(-(-fields.size // group) * group, np.uint8)
    padded[: fields.size] = fields
    packed = np.zeros(padded.size // group, np.uint8)
    for place in range(group):
        packed |= padded[place::group] << (place * bits)
    return packed


def unpack(packed: Any, bits: int, array: Any) -> None:
    """Fill *array*, which has a byte for each element, from what :func:`pack` gives."""
    group = 8 // bits
    fields = np.empty(packed.size * group, np.uint8)
    mask = (1 << bits) - 1
    for place in range(group):
        fields[place::group] = packed >> (place * bits) & mask
    fields = fields[: array.size]
    if np.issubdtype(array.dtype, np.integer) or str(array.dtype).startswith("int"):
        sign = 1 << (bits - 1)
        if array.dtype.name.startswith("int"):
            fields = ((fields ^ sign) - sign).astype(np.uint8)
    array.view(np.uint8)[...] = fields.reshape(array.shape)


def new_array(dtype: ep.DataType, shape: tuple[int, ...]) -> Any:
    """An array of unspecified content.

    Raises:
        InterfaceError: there can be no such shape.
        MemoryError: there is not enough memory.
    """
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{list(shape)} is no shape")
    if math.prod(shape) * dtype.numpy.itemsize > _MOST:
        raise MemoryError(f"a tensor of {dtype}{list(shape)} fits into no memory")
    if dtype is ep.DataType.STRING:
        return np.full(shape, "", dtype=object)
    if dtype.bits < 8:
        return np.zeros(shape, dtype.numpy)
    return np.empty(shape, dtype.numpy)


# Making and asking


@implements("CreateTensorAsOrtValue")
def create_tensor(_: int | None, shape: int, rank: int, number: int, out: int) -> None:
    """A tensor of the host's, wherever the allocator would have it."""
    dtype = element_type(number)
    sizes = longs(shape, min(rank, MAX_RANK + 1))
    put_pointer(out, Value.of(new_array(dtype, sizes), dtype))


@implements("CreateTensorWithDataAsOrtValue")
def create_tensor_with_data(
    info: int, data: int, size: int, shape: int, rank: int, number: int, out: int
) -> None:
    """A tensor on memory of a library's, which keeps it."""
    dtype = element_type(number)
    sizes = longs(shape, min(rank, MAX_RANK + 1))
    if len(sizes) > MAX_RANK or any(each < 0 for each in sizes):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{list(sizes)} is no shape")
    needed = -(-math.prod(sizes) * dtype.bits // 8)
    if dtype is ep.DataType.STRING or needed > size or (needed and not data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"{dtype}{list(sizes)} takes {needed} bytes, and there are {size}",
        )
    if not find(MemoryInfo, info).place.is_host:
        raise InterfaceError(
            Code.NOT_IMPLEMENTED, "tensors are made on memory of the host only"
        )
    if needed:
        octets = np.ctypeslib.as_array((ctypes.c_uint8 * needed).from_address(data))
    else:
        octets = np.empty(0, np.uint8)
    if dtype.bits < 8:
        array = new_array(dtype, sizes)
        unpack(octets, dtype.bits, array)
    else:
        array = octets.view(dtype.numpy).reshape(sizes)
    put_pointer(out, Value.of(array, dtype))


@implements("IsTensor")
def is_tensor(value: int, out: int) -> None:
    """Yes: others are never given to libraries."""
    find(Value, value)
    put_int(out, 1)


@implements("IsSparseTensor")
def is_sparse_tensor(value: int, out: int) -> None:
    """No."""
    find(Value, value)
    put_int(out, 0)


@implements("HasValue")
def has_value(value: int, out: int) -> None:
    """Whether there is something."""
    put_int(out, bool(find(Value, value).memory.is_ready))


@implements("GetValueType")
def get_value_type(value: int, out: int) -> None:
    """That of tensors."""
    find(Value, value)
    put_int(out, 1)


@implements("GetTensorTypeAndShape")
def get_tensor_type_and_shape(value: int, out: int) -> None:
    """Element type and shape, which the library releases."""
    found = find(Value, value)
    put_pointer(out, ShapeInfo.of(element_number(found.dtype), found.shape))


@implements("GetTypeInfo")
def get_type_info(value: int, out: int) -> None:
    """The type, which the library releases."""
    found = find(Value, value)
    put_pointer(out, TypeInfo(ep.TensorType(found.dtype, found.shape)))


@implements("GetTensorElementTypeAndShapeDataReference")
def get_element_type_and_shape(value: int, number: int, shape: int, rank: int) -> None:
    """Element type and shape, which live as long as the tensor."""
    memory = find(Value, value).memory
    put_int(number, memory.element_type)
    put_pointer(shape, memory.shape if memory.rank else None)
    put_size(rank, memory.rank)


@implements("GetTensorData")
@implements("GetTensorMutableData")
def get_tensor_data(value: int, out: int) -> None:
    """Where the elements are."""
    found = find(Value, value)
    if found.dtype is ep.DataType.STRING:
        raise InterfaceError(
            Code.NOT_IMPLEMENTED,
            "strings have no address; GetStringTensorElement has them",
        )
    put_pointer(out, found.memory.data)


@implements("GetTensorSizeInBytes")
def get_tensor_size(value: int, out: int) -> None:
    """The size of the elements together."""
    put_size(out, find(Value, value).memory.nbytes)


@implements("GetTensorMemoryInfo")
def get_tensor_memory_info(value: int, out: int) -> None:
    """Where it is, which lives as long."""
    put_pointer(out, find(Value, value).place)


@implements("Value_GetMemoryDevice", "OrtEpApi")
def value_get_memory_device(value: int) -> int:
    """Where it is, which lives as long."""
    device: MemoryDevice = find(Value, value).place.device
    return device.address


# Strings


@implements("GetStringTensorDataLength")
def get_string_data_length(value: int, out: int) -> None:
    """The bytes of all strings, without ends."""
    put_size(out, sum(map(len, find(Value, value).strings())))


@implements("GetStringTensorContent")
def get_string_content(
    value: int, out: int, room: int, offsets: int, count: int
) -> None:
    """All strings, one after the other, and where each begins."""
    strings = find(Value, value).strings()
    data = b"".join(strings)
    if room < len(data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"the strings take {len(data)} bytes, and there is room for {room}",
        )
    starts, start = [], 0
    for each in strings:
        starts.append(start)
        start += len(each)
    if data:
        ctypes.memmove(out, data, len(data))
    put_all(ctypes.c_size_t, offsets, starts, count, "strings")


def _string(value: int, index: int) -> bytes:
    strings = find(Value, value).strings()
    if index >= len(strings):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no string {index} of {len(strings)}"
        )
    return strings[index]


@implements("GetStringTensorElementLength")
def get_string_length(value: int, index: int, out: int) -> None:
    """The bytes of one string."""
    put_size(out, len(_string(value, index)))


@implements("GetStringTensorElement")
def get_string(value: int, room: int, index: int, out: int) -> None:
    """The bytes of one string, without an end."""
    data = _string(value, index)
    if room < len(data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"the string takes {len(data)} bytes, and there is room for {room}",
        )
    if data:
        ctypes.memmove(out, data, len(data))


@implements("FillStringTensor")
def fill_strings(value: int, texts: int, count: int) -> None:
    """Write all strings."""
    found = find(Value, value)
    size = len(found.strings())
    if count != size:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"{count} strings were given for {size} elements"
        )
    flat = found.array.reshape(-1)
    for place, address in enumerate(read_pointers(texts, count)):
        flat[place] = text_at(address)


@implements("FillStringTensorElement")
def fill_string(value: int, text: bytes | None, index: int) -> None:
    """Write one string."""
    found = find(Value, value)
    size = len(found.strings())
    if index >= size:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no string {index} of {size}"
        )
    found.array.reshape(-1)[index] = (text or b"").decode("utf-8", "replace")
