"""Tensors as libraries see them.

Strings and element types of less than a byte lie elsewhere than numpy has them: they
are copied, where all others are used where they lie.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep
from onnxplug_native.functions.device_array import DeviceArray
from onnxplug_native.functions.devices import MemoryInfo, host_memory
from onnxplug_native.functions.types import (
    ShapeInfo,
    TypeInfo,
    element_number,
    element_type,
)
from onnxplug_native.interface.arena import placed
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import pointers as read_pointers
from onnxplug_native.interface.memory import (
    put_all,
    put_int,
    put_pointer,
    put_size,
    sizes,
    text_at,
)
from onnxplug_native.interface.structure import Structure

VALUE_TAG: Final = 0x6F6E6E78_76616C31
"""What the memory of a tensor begins with."""


READY: Final = 1
"""There is room for elements, or they are there."""

GIVEN: Final = 2
"""A library was told where the room of an output is."""


class TensorMemory(ctypes.Structure):
    """What lies at the address of a tensor, for compiled entries to read.

    Attributes:
        tag: :data:`VALUE_TAG` while the tensor lives.
        data: where its elements are; null for strings.
        shape: where its dimensions are.
        rank: how many these are.
        info: the address of what is known of where it is.
        nbytes: the size of the elements together.
        element_type: the interface's number.
        state: the sum of what is so of :data:`READY` and :data:`GIVEN`.
    """

    _fields_: ClassVar = [
        ("tag", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("rank", ctypes.c_size_t),
        ("info", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("element_type", ctypes.c_int32),
        ("state", ctypes.c_int32),
    ]


@functools.cache
def _host_address() -> int:
    return host_memory().address


_HEAD: Final = object.__basicsize__
"""Where numpy's arrays have the address of their elements, after Python's own head."""

_address: Final = ctypes.c_size_t.from_address


def _is_at_head(array: Any) -> bool:
    return bool(
        _address(id(array) + _HEAD).value == array.__array_interface__["data"][0]
    )


def address_of(array: Any) -> int:
    """Where the elements of *array*, of class ``numpy.ndarray``, are."""
    return _address(id(array) + _HEAD).value


# asking numpy takes ten times as long as reading what numpy's own header declares
if not all(map(_is_at_head, (np.empty(3), np.empty((2, 2), np.int8)[1:]))):

    def address_of(array: Any) -> int:
        """Where the elements of *array*, of class ``numpy.ndarray``, are."""
        return int(array.__array_interface__["data"][0])


class Value(Handle):
    """A tensor.

    Attributes:
        array: numpy's array, or one of a device; ``None`` while there is nothing.
        dtype: the element type.
        shape: the sizes.
        memory: what lies at its address.
        is_planned: its memory is kept for the next run of the same shapes.
    """

    is_planned = False

    def __init__(self, dtype: ep.DataType | None = None) -> None:
        self.memory = placed(TensorMemory, VALUE_TAG)
        self.memory.element_type = element_number(dtype)
        super().__init__(self.memory)
        self.dtype = dtype
        self.array: Any = None
        self.shape: tuple[int, ...] = ()
        self._bits = 8 if dtype is None else dtype.bits
        self._packed: Any = None
        self._is_host = False
        self._set_shape(())
        self._nbytes = -1

    @classmethod
    def of(cls, array: Any, dtype: ep.DataType) -> Value:
        """A tensor that is *array*."""
        value = cls(dtype)
        value.set(array)
        return value

    def release(self) -> None:
        """Release it, and the array."""
        self.memory.tag = 0
        self.array = self._packed = None
        super().release()

    def clear(self) -> None:
        """Let there be nothing."""
        self.array = self._packed = None
        self.memory.state = 0

    def set(self, array: Any) -> None:
        """Let it be *array*, C-contiguous if it is numpy's."""
        memory = self.memory
        self.array = array
        shape = array.shape
        if shape != self.shape or self._nbytes < 0:
            self._set_shape(tuple(shape))
            self._nbytes = memory.nbytes = array.nbytes if self._bits >= 8 else 0
        memory.state = READY
        if not isinstance(array, np.ndarray):
            memory.data = array.address
            memory.info = array.memory_info.address
            self._is_host = False
            return
        if not self._is_host:
            memory.info = _host_address()
            self._is_host = True
        if self._bits >= 8:
            memory.data = address_of(array)
        elif self._bits:
            self._packed = pack(array, self._bits)
            memory.data = address_of(self._packed)
            memory.nbytes = self._packed.nbytes
        else:
            memory.data = None

    def _set_shape(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._dimensions = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.memory.shape = ctypes.addressof(self._dimensions)
        self.memory.rank = len(shape)

    def result(self) -> Any:
        """The array, after a library has written to it."""
        if self._packed is not None and self.dtype is not None:
            unpack(self._packed, self.dtype.bits, self.array)
        return self.array

    @property
    def place(self) -> MemoryInfo:
        """Where it is."""
        return getattr(self.array, "memory_info", None) or host_memory()

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
    kind = _EMPTY.get(dtype)
    try:
        if kind is not None:
            return np.empty(shape, kind)
        made = np.zeros(shape, dtype.numpy)
    except (ValueError, MemoryError) as error:
        if any(size < 0 for size in shape):
            raise InterfaceError(
                Code.INVALID_ARGUMENT, f"{list(shape)} is no shape"
            ) from error
        raise MemoryError(
            f"a tensor of {dtype}{list(shape)} fits into no memory"
        ) from error
    if dtype is ep.DataType.STRING:
        made.fill("")
    return made


_EMPTY: Final = {dtype: dtype.numpy for dtype in ep.DataType if dtype.bits >= 8}
"""numpy's dtypes of what need not be filled."""


# Making and asking


@implements("CreateTensorAsOrtValue")
def create_tensor(
    allocator: int | None, shape: int, rank: int, number: int, out: int
) -> None:
    """A tensor where the allocator has its memory; on the host, numpy's own."""
    dtype = element_type(number)
    shaped = sizes(shape, rank)
    if allocator:
        own = Structure("OrtAllocator", allocator, "a library")
        info = find(MemoryInfo, own.call("Info"))
        if not info.place.is_host:
            array = _allocated(own, info, dtype, shaped)
            put_pointer(out, Value.of(array, dtype))
            return
    put_pointer(out, Value.of(new_array(dtype, shaped), dtype))


def _allocated(
    allocator: Structure, info: MemoryInfo, dtype: ep.DataType, shape: tuple[int, ...]
) -> DeviceArray:
    """An array of a library's allocator, which frees it."""
    if min(shape, default=0) < 0 or dtype.bits < 8:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"{info.name} holds no {dtype}{list(shape)}"
        )
    nbytes = math.prod(shape) * dtype.numpy.itemsize
    address = allocator.call("Alloc", nbytes)
    if nbytes and not address:
        raise MemoryError(f"{info.name} has no {nbytes} bytes")
    free = functools.partial(allocator.call, "Free")
    return DeviceArray(address or 0, shape, dtype.numpy, info, free)


@implements("CreateTensorWithDataAsOrtValue")
def create_tensor_with_data(
    info: int, data: int, size: int, shape: int, rank: int, number: int, out: int
) -> None:
    """A tensor on memory of a library's, which keeps it."""
    dtype = element_type(number)
    shaped = sizes(shape, rank)
    if any(each < 0 for each in shaped):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{list(shaped)} is no shape")
    needed = -(-math.prod(shaped) * dtype.bits // 8)
    if dtype is ep.DataType.STRING or needed > size or (needed and not data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"{dtype}{list(shaped)} takes {needed} bytes, and there are {size}",
        )
    memory = find(MemoryInfo, info)
    if not memory.place.is_host:
        foreign = DeviceArray(data or 0, shaped, dtype.numpy, memory)
        put_pointer(out, Value.of(foreign, dtype))
        return
    if needed:
        octets = np.ctypeslib.as_array((ctypes.c_uint8 * needed).from_address(data))
    else:
        octets = np.empty(0, np.uint8)
    if dtype.bits < 8:
        array = new_array(dtype, shaped)
        unpack(octets, dtype.bits, array)
    else:
        array = octets.view(dtype.numpy).reshape(shaped)
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
    put_int(out, find(Value, value).memory.state & READY)


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
    return find(Value, value).place.device.address


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
    _copy(data, out)
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
    _copy(data, out)


def _copy(data: bytes, out: int | None) -> None:
    if not data:
        return
    if not out:
        raise InterfaceError(Code.INVALID_ARGUMENT, "where to put the text is null")
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
    for place, address in enumerate(read_pointers(texts, count, size, "strings")):
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
