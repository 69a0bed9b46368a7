"""Values with a place: arrays of host or device memory, sequences, maps, nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from onnxplug.authoring.arrays import is_masked, usual_form
from onnxplug.authoring.dlpack import export
from onnxplug.authoring.locks import new_rlock
from onnxplug.ep import HOST, DataType, MemoryLocation, SparseTensor, TensorType
from onnxplug.errors import (
    InvalidArgument,
    OnnxplugError,
    OutputMismatch,
    ValueTypeError,
)
from onnxplug.interruption import raise_interruption
from onnxplug.plugins import registry as registry_of_process
from onnxplug.session.described import (
    as_data_type,
    as_sizes,
    is_host,
    new_array,
    require_numbers,
)
from onnxplug.session.dlpack import HOST as DLPACK_HOST
from onnxplug.session.dlpack import as_source, import_host
from onnxplug.session.model_info import type_name, type_name_of

if TYPE_CHECKING:
    from onnxplug.run.device import Device
    from onnxplug.run.events import OwnedEvent


class OrtValue:
    """A value and where it lives.

    Host arrays are shared, not copied: what is written to the array is seen through
    the value, and the value keeps the array alive.

    The content of a value in a device's memory may still be computed, by work that a
    run left queued; whatever reads or overwrites the value here waits for it.
    """

    _written: Sequence[OwnedEvent] = ()
    _read: Sequence[OwnedEvent] = ()
    _is_shared = False
    """Whether others may read the memory without asking."""

    def __init__(
        self, value: Any, location: MemoryLocation = HOST, device: Device | None = None
    ) -> None:
        self._value = value
        self._location = location
        self._device = device
        # a session's own device lets go of its memory when the session is closed
        self._hold = None if device is None else device.hold

    # making

    @classmethod
    def ortvalue_from_numpy(
        cls,
        array: np.ndarray[Any, Any],
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> Self:
        """A value of *array*: shared on the host, copied to a device.

        An array that is not C-contiguous, not aligned or not of native byte order is
        copied.

        Raises:
            InvalidArgument: *array* is no numpy array of an element type that ONNX has,
                some of its elements are masked, or there is no such device.
        """
        array = _as_stored(array)
        if is_host(device_type):
            return cls(array)
        require_numbers(DataType.from_numpy(array.dtype), device_type)
        device = _find_device(device_type, device_id)
        return cls(device.from_host(array), device.location, device)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: np.ndarray[Any, Any], onnx_element_type: int
    ) -> Self:
        """A value that reads the bytes of *data* as ONNX's element type of a number.

        Raises:
            InvalidArgument: the two differ in size, one of them is of strings, or bytes
                other than 0 and 1 are to be truths.
        """
        data_type = as_data_type(onnx_element_type)
        dtype = data_type.numpy
        if DataType.STRING in (data_type, _data_type(data)):
            raise InvalidArgument("strings have no bytes that are another type's")
        if data.dtype.itemsize != dtype.itemsize:
            raise InvalidArgument(
                f"elements of {data.dtype} have {data.dtype.itemsize} bytes, and "
                f"those of {dtype} {dtype.itemsize}; expected the same"
            )
        stored = _as_stored(data)
        if data_type is DataType.BOOL:
            return cls(_as_truths(stored))
        return cls(stored.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> Self:
        """A tensor of unspecified content.

        Args:
            element_type: a numpy dtype or type, or ONNX's number of an element type.

        Raises:
            InvalidArgument: there is no such device, no such shape or no such element
                type, or strings are to be on a device.
            OutOfMemory: it takes more memory than there is.
        """
        dtype = as_data_type(element_type)
        sizes = as_sizes(shape, dtype)
        if is_host(device_type):
            return cls(new_array(sizes, dtype))
        require_numbers(dtype, device_type)
        device = _find_device(device_type, device_id)
        return cls(device.empty(sizes, dtype), device.location, device)

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> Self:
        """A value that shares the memory of an object with ``__dlpack__``, or that of
        a capsule.

        That of a device is there when the exporter's work is, for which no call waits.

        Args:
            is_bool_tensor: take bytes as booleans, as exporters without booleans do;
                for arrays of the host.

        Raises:
            InvalidArgument: the memory cannot be shared, no process has memory where it
                is said to be, or what is to be booleans is not bytes of 0 and 1;
                ``ValueTypeError`` for what has no DLPack.
        """
        source = as_source(data)
        # whatever the library raises
        try:
            where, ordinal = map(int, source.__dlpack_device__())
        except Exception as error:
            raise_interruption(error)
            raise _no_dlpack(data, error) from error
        if where not in DLPACK_HOST:
            return cls._imported(source, (where, ordinal))
        try:
            array = import_host(source)
        except InvalidArgument:
            raise
        except Exception as error:
            raise_interruption(error)
            raise _no_dlpack(data, error) from error
        return cls(_as_truths(array) if is_bool_tensor else array)

    @classmethod
    def _imported(cls, source: Any, where: tuple[int, int]) -> Self:
        """The value of an array that a library has in a device's memory."""
        from onnxplug.run.device import device_of_dlpack

        device = device_of_dlpack(where, registry_of_process)
        array, events = device.import_dlpack(source)
        value = cls(array, device.location, device)
        value.note_written(events)
        value._is_shared = True
        return value

    # asking

    def has_value(self) -> bool:
        """Whether there is anything; false for an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        value = self._value
        return hasattr(value, "shape") and not isinstance(value, SparseTensor)

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
        if self._device is not None and self.is_tensor():
            return type_name(TensorType(self.dtype))
        return type_name_of(self._value)

    def element_type(self) -> int:
        """ONNX's number of a tensor's element type."""
        return self.dtype.onnx

    @property
    def dtype(self) -> DataType:
        """A tensor's element type."""
        tensor = self._tensor()
        if self._device is not None and not isinstance(tensor, np.ndarray):
            return self._device.data_type(tensor)
        return DataType.from_numpy(tensor.dtype)

    def device_name(self) -> str:
        """Where it lives: ``cpu``, or the name of a device's memory."""
        return "cpu" if self._location == HOST else self._location.space

    @property
    def location(self) -> MemoryLocation:
        """Where it lives."""
        return self._location

    @property
    def device(self) -> Device | None:
        """What is where it lives; ``None`` for the host."""
        return self._device

    def tensor_size_in_bytes(self) -> int:
        """How many bytes a tensor's elements take."""
        return math.prod(map(int, self.shape())) * self.dtype.numpy.itemsize

    def data_ptr(self) -> int:
        """The address of a tensor's first element, on the host or on a device of CUDA.

        Raises:
            InvalidArgument: the memory is of a device that gives no addresses.
        """
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return int(tensor.ctypes.data)
        interface = getattr(tensor, "__cuda_array_interface__", None)
        if interface is None:
            raise InvalidArgument(
                f"a tensor in {self._location} has no address; copy it with .numpy() "
                "first"
            )
        return int(interface["data"][0])

    # reading and writing

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor as a numpy array, shared on the host and copied from a device.

        Raises:
            InvalidArgument: it is no tensor.
        """
        self.wait()
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return tensor
        assert self._device is not None
        array: np.ndarray[Any, Any] = self._device.to_host(tensor)
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

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """The tensor as a DLPack capsule.

        Args:
            stream: native handle of the consumer's stream, which waits for the content
                and for runs that read it; ``None``: they are waited for here; -1:
                nobody waits.

        Raises:
            InvalidArgument: it is no tensor, or its device has no DLPack.
        """
        tensor = self._tensor()
        if self._device is None:
            return export(tensor, stream=stream, **options)
        if not hasattr(tensor, "__dlpack__"):
            raise InvalidArgument(
                f"arrays in {self._location} are not exchanged by DLPack; copy it "
                "to the host with .numpy()"
            )
        if stream is None:
            self.wait()
            self._wait_for_readers()
        elif stream != -1:
            for event in self._written:
                if event.done():
                    event.synchronize()  # which raises its failure
            self._device.order_user_stream(stream, self.used)
        capsule = tensor.__dlpack__(stream=-1, **options)
        self._is_shared = True
        self._device.lend()
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._tensor().__dlpack_device__()
        return device

    def update_inplace(self, data: np.ndarray[Any, Any] | OrtValue) -> None:
        """Overwrite the tensor's elements with those of *data*.

        Raises:
            OutputMismatch: shape or element type differ, elements of *data* are
                masked, or the tensor cannot be written to; nothing was written.
            ValueTypeError: *data* is no array.
        """
        if is_masked(data):
            raise OutputMismatch(
                "a tensor is updated with a masked array; expected all elements, which "
                ".filled(value) gives"
            )
        if isinstance(data, OrtValue):
            array = data.numpy()
        elif hasattr(data, "__array__"):
            array = np.asarray(data)
        else:
            raise ValueTypeError(
                f"a tensor is updated with a {type(data).__name__}; expected a numpy "
                "array or an OrtValue"
            )
        tensor = self._tensor()
        dtype = self.dtype.numpy
        if tuple(array.shape) != tuple(tensor.shape) or (
            array.dtype.newbyteorder("=") != dtype
        ):
            raise OutputMismatch(
                f"a tensor of {dtype}{list(tensor.shape)} is updated with "
                f"{array.dtype}{list(array.shape)}; expected the same"
            )
        if not isinstance(tensor, np.ndarray):
            assert self._device is not None
            with contextlib.suppress(OnnxplugError):  # what was to make it before
                self.wait()
            self._wait_for_readers()
            self._device.copy(_as_stored(array), tensor)
            self._written = ()
            return
        if not tensor.flags.writeable:
            raise OutputMismatch(
                "a tensor is updated that is read-only; make the value from a copy of "
                "the array"
            )
        np.copyto(tensor, array)

    def _get_c_value(self) -> OrtValue:
        """The value itself: what programs written for ONNX Runtime exchange."""
        return self

    @property
    def raw(self) -> Any:
        """The value as EPs take it."""
        return self._value

    # the work of runs

    @property
    def ready(self) -> bool:
        """Whether the content is there, or can be no more as a run failed."""
        return all(event.done() for event in self._written)

    def wait(self) -> None:
        """Wait for the content.

        Raises:
            EpError: the run that was to make it failed.
        """
        written = self._written
        if written:
            for event in written:
                event.synchronize()
            with _noting:
                if self._written is written:  # no other run has begun to make it
                    self._written = ()

    def _wait_for_readers(self) -> None:
        """Wait for the work that reads the content."""
        for event in tuple(self._read):
            # the reader's failure is not this one's
            with contextlib.suppress(OnnxplugError):
                event.synchronize()
        self._forget_read()

    def _forget_read(self) -> None:
        done = {id(event) for event in tuple(self._read) if event.done()}
        with _noting:
            self._read = [event for event in self._read if id(event) not in done]

    @property
    def written(self) -> Sequence[OwnedEvent]:
        """The events after which the content is there."""
        return self._written

    @property
    def used(self) -> Sequence[OwnedEvent]:
        """The events after which the content may be overwritten."""
        return (*self._written, *self._read)

    @property
    def is_shared(self) -> bool:
        """Whether others may read or write the memory without asking."""
        return self._is_shared

    @property
    def is_replaceable(self) -> bool:
        """Whether nobody could tell if the content were in another array."""
        return not (
            self._device is None
            or self._is_shared
            or isinstance(self._value, np.ndarray)  # which numpy() gives
        )

    def replace(self, array: Any) -> None:
        """Have *array*, of the same shape and element type, instead of the one before.

        That is kept by whoever queued work on it.
        """
        self._value = array

    def note_read(self, events: Sequence[OwnedEvent]) -> None:
        """Note that the work before *events* reads the content."""
        with _noting:
            self._read = [*self._read, *events]
        if len(self._read) > _MANY:
            self._forget_read()

    def note_written(self, events: Sequence[OwnedEvent]) -> None:
        """Note that the work before *events* makes the content."""
        with _noting:
            self._written, self._read = tuple(events), []

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise InvalidArgument(f"the value is a {self.data_type()}, not a tensor")
        return self._value

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self._location})"


_noting: Final = new_rlock()
"""Held for moments, while runs in several threads note what they do with a value."""

_MANY: Final = 16
"""Events of runs above which those that are done are looked for."""


def _find_device(device_type: str, device_id: int) -> Device:
    from onnxplug.run.device import find_device  # few programs have one

    return find_device(device_type, device_id, registry_of_process)


def _no_dlpack(data: Any, error: Exception) -> InvalidArgument:
    return InvalidArgument(
        f"a {type(data).__name__} gives numpy no array by DLPack: {error}"
    )


def _data_type(array: Any) -> DataType:
    """The element type of a numpy array.

    Raises:
        InvalidArgument: it is no numpy array, or ONNX has no such element type.
    """
    if not isinstance(array, np.ndarray | np.generic):
        raise ValueTypeError(
            f"a value is made from a {type(array).__name__}; expected a numpy array"
        )
    try:
        return DataType.from_numpy(array.dtype)
    except TypeError as error:
        raise InvalidArgument(f"a value cannot be made: {error}") from error


_USUAL: Final = frozenset(id(each.numpy) for each in DataType)
"""Identities of the dtypes of EPs' arrays, which take the least time to compare."""


def _as_stored(array: Any) -> np.ndarray[Any, Any]:
    """*array* in the form that EPs take, itself when it has that."""
    if type(array) is np.ndarray and id(array.dtype) in _USUAL:
        flags = array.flags
        if flags.c_contiguous and flags.aligned:
            return array
    data_type = _data_type(array)
    if data_type is DataType.STRING and array.dtype.kind != "O":
        raise InvalidArgument(
            "values of text are not made from numpy arrays; feed them to run() instead"
        )
    if is_masked(array):
        raise InvalidArgument(
            "a value is made from a masked array with elements that are hidden; "
            "expected all elements, which .filled(value) gives"
        )
    return usual_form(array, data_type.numpy)


def _as_truths(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bytes as booleans, without a copy."""
    if array.dtype.itemsize != 1:
        raise InvalidArgument(
            f"elements of {array.dtype} have {array.dtype.itemsize} bytes, and those "
            "of bool 1; expected the same"
        )
    octets = array.view(np.uint8)
    if octets.max(initial=0) > 1:
        raise InvalidArgument(
            f"a byte is {octets.max()} that is to be a boolean; expected 0 or 1, which "
            "array != 0 gives"
        )
    return octets.view(np.bool_)
