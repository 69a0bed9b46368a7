"""Values with a place: arrays of host or device memory, sequences, maps, nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.device_memory import DeviceMemory, find_memory
from onnxplug.ep import HOST, DataType, MemoryLocation, SparseTensor
from onnxplug.errors import InvalidArgument, OutputMismatch
from onnxplug.model_info import type_name_of


class OrtValue:
    """A value and where it lives.

    Host arrays are shared, not copied: what is written to the array is seen through
    the value, and the value keeps the array alive.
    """

    def __init__(
        self,
        value: Any,
        location: MemoryLocation = HOST,
        memory: DeviceMemory | None = None,
    ) -> None:
        self._value = value
        self._location = location
        self._memory = memory

    # making

    @staticmethod
    def ortvalue_from_numpy(
        array: np.ndarray[Any, Any],
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A value of *array*: shared on the host, copied to a device.

        An array that is not C-contiguous or not of native byte order is copied.

        Raises:
            InvalidArgument: *array* is no numpy array, or there is no such device.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise InvalidArgument(
                f"a value is made from a {type(array).__name__}; expected a numpy array"
            )
        array = _as_stored(np.asarray(array))
        if device_type.lower() == "cpu":
            return OrtValue(array)
        memory = find_memory(device_type, device_id)
        return OrtValue(memory.from_host(array), memory.location, memory)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(
        array: np.ndarray[Any, Any], onnx_element_type: int
    ) -> OrtValue:
        """A value that reads the bytes of *array* as ONNX's element type of a number.

        Raises:
            InvalidArgument: the two differ in size.
        """
        dtype = DataType.from_onnx(onnx_element_type).numpy
        if array.dtype.itemsize != dtype.itemsize:
            raise InvalidArgument(
                f"elements of {array.dtype} have {array.dtype.itemsize} bytes, and "
                f"those of {dtype} {dtype.itemsize}; expected the same"
            )
        return OrtValue(_as_stored(array).view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor of unspecified content.

        Args:
            element_type: a numpy dtype or type, or ONNX's number of an element type.

        Raises:
            InvalidArgument: there is no such device.
        """
        dtype = as_data_type(element_type)
        if device_type.lower() == "cpu":
            return OrtValue(np.empty(tuple(shape), dtype.numpy))
        memory = find_memory(device_type, device_id)
        return OrtValue(memory.empty(tuple(shape), dtype), memory.location, memory)

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """A value that shares the memory of an object with ``__dlpack__``.

        Args:
            is_bool_tensor: take bytes as booleans, as exporters without booleans do.
        """
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    # asking

    def has_value(self) -> bool:
        """Whether there is anything; false for an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return hasattr(self._value, "shape") and hasattr(self._value, "dtype")

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._value, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of tensors."""
        return isinstance(self._value, list)

    def shape(self) -> list[int]:
        """The sizes of a tensor."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """The type in ONNX Runtime's words, ``tensor(float)``."""
        return type_name_of(self._value)

    def element_type(self) -> int:
        """ONNX's number of a tensor's element type."""
        return DataType.from_numpy(self._tensor().dtype).onnx

    def device_name(self) -> str:
        """Where it lives: ``cpu``, or the name of a device's memory."""
        return "cpu" if self._location == HOST else self._location.space

    @property
    def location(self) -> MemoryLocation:
        """Where it lives."""
        return self._location

    def tensor_size_in_bytes(self) -> int:
        """How many bytes a tensor's elements take."""
        tensor = self._tensor()
        return math.prod(map(int, tensor.shape)) * int(tensor.dtype.itemsize)

    def data_ptr(self) -> int:
        """The address of a host tensor's first element.

        Raises:
            InvalidArgument: the memory is a device's, which gives no address here.
        """
        tensor = self._tensor()
        if not isinstance(tensor, np.ndarray):
            raise InvalidArgument(
                f"a tensor in {self._location} has no address on the host; copy it "
                "with .numpy() first"
            )
        address: int = tensor.ctypes.data
        return address

    # reading and writing

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor as a numpy array, shared on the host and copied from a device.

        Raises:
            InvalidArgument: it is no tensor.
        """
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return tensor
        assert self._memory is not None
        array: np.ndarray[Any, Any] = self._memory.to_host(tensor)
        return array

    def to_list(self) -> list[Any]:
        """The tensors of a sequence."""
        if not isinstance(self._value, list):
            raise InvalidArgument(f"the value is a {self.data_type()}, not a sequence")
        return list(self._value)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._tensor().__dlpack_device__()
        return device

    def update_inplace(self, source: np.ndarray[Any, Any] | OrtValue) -> None:
        """Overwrite the tensor's elements with those of *source*.

        Raises:
            OutputMismatch: shape or element type differ; nothing was written.
        """
        array = source.numpy() if isinstance(source, OrtValue) else np.asarray(source)
        tensor = self._tensor()
        if tuple(array.shape) != tuple(tensor.shape) or (
            array.dtype.newbyteorder("=") != tensor.dtype
        ):
            raise OutputMismatch(
                f"a tensor of {tensor.dtype}{list(tensor.shape)} is updated with "
                f"{array.dtype}{list(array.shape)}; expected the same"
            )
        if isinstance(tensor, np.ndarray):
            np.copyto(tensor, array)
        else:
            assert self._memory is not None
            self._memory.write(_as_stored(array), tensor)

    @property
    def raw(self) -> Any:
        """The value as EPs take it."""
        return self._value

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise InvalidArgument(f"the value is a {self.data_type()}, not a tensor")
        return self._value

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self._location})"


def as_data_type(element_type: Any) -> DataType:
    """The element type meant by a numpy dtype or type, or by ONNX's number."""
    if isinstance(element_type, DataType):
        return element_type
    if isinstance(element_type, int):
        return DataType.from_onnx(element_type)
    return DataType.from_numpy(np.dtype(element_type))


def _as_stored(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """*array* with C layout and native byte order, itself when it has both."""
    native = array.dtype.newbyteorder("=")
    if array.dtype.kind in "US":
        raise InvalidArgument(
            "values of text are not made from numpy arrays; feed them to run() instead"
        )
    if array.dtype != native:
        return array.astype(native)
    return array if array.flags.c_contiguous else array.copy(order="C")
