"""Values and bindings with all methods that ONNX Runtime's have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug.errors import InvalidArgument
from onnxplug.session.dlpack import is_of_bytes
from onnxplug_onnxruntime.memory import OrtDevice, OrtMemoryInfo
from onnxplug_onnxruntime.sparse import SparseTensor


class OrtValue(onnxplug.OrtValue):
    """A value and where it lives; see :class:`onnxplug.OrtValue`."""

    def __init__(self, value: Any, *place: Any) -> None:
        if isinstance(value, onnxplug.OrtValue):
            self.__dict__ = value.__dict__
        else:
            super().__init__(value, *place)

    @classmethod
    def of(cls, value: onnxplug.OrtValue) -> OrtValue:
        """*value* with the methods of this class; both are of one state."""
        return cls(value)

    @classmethod
    def ortvalue_from_numpy(
        cls,
        array: np.ndarray[Any, Any],
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A value of *array*: shared on the host, copied to a device."""
        if isinstance(device_type, OrtDevice):
            device = device_type
            return super().ortvalue_from_numpy(array, device.name, device.device_id())
        return super().ortvalue_from_numpy(array, device_type, device_id, vendor_id)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor of unspecified content, in the memory of *memory_info* if given."""
        if memory_info is not None:
            device_type = memory_info.name.lower()
            device_id = memory_info.device_id
        return super().ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A value that is a sparse tensor."""
        return cls(sparse_tensor.coordinates)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor that it is.

        Raises:
            InvalidArgument: it is none.
        """
        if not isinstance(self.raw, ep.SparseTensor):
            raise InvalidArgument(f"the value is a {self.data_type()}, not sparse")
        return SparseTensor(self.raw)

    def to_dlpack(self) -> Any:
        """The DLPack capsule of the value."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        return self


class OrtValueVector(list[OrtValue]):
    """A list of values."""

    def push_back(self, value: OrtValue) -> None:
        """Append *value*."""
        self.append(value)

    def push_back_batch(
        self, tensors: Iterable[Any], *described: Sequence[Any]
    ) -> None:
        """Append the values of arrays that give DLPack; what else describes them, they
        say themselves."""
        self.extend(OrtValue.from_dlpack(tensor) for tensor in tensors)

    def reserve(self, size: int) -> None:
        """Does nothing: a list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Does nothing: a list has no room to give back."""

    def element_type_at(self, index: int) -> int:
        """ONNX's number of the element type of a value."""
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Which values are booleans."""
        return [
            index for index, value in enumerate(self) if value.dtype is ep.DataType.BOOL
        ]

    def dlpack_at(self, index: int) -> Any:
        """The DLPack capsule of a value."""
        return self[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """The DLPack capsules of all values, or what *to_tensor* makes of them."""
        capsules = [value.__dlpack__() for value in self]
        return capsules if to_tensor is None else [*map(to_tensor, capsules)]


class IOBinding(onnxplug.IOBinding):
    """Inputs and outputs bound for many runs; see :class:`onnxplug.IOBinding`."""

    def get_outputs(self) -> list[onnxplug.OrtValue]:
        """The outputs of the last run, in the order they were bound."""
        return [OrtValue.of(value) for value in super().get_outputs()]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """As :meth:`get_outputs`."""
        return OrtValueVector(OrtValue.of(value) for value in super().get_outputs())


def copy_tensors(
    src: Sequence[onnxplug.OrtValue],
    dst: Sequence[onnxplug.OrtValue],
    stream: object = None,
) -> None:
    """Overwrite each of *dst* with that of *src*, wherever the two are.

    Args:
        stream: ``None``: the tensors are copied when this returns.

    Raises:
        InvalidArgument: the two are not of one length, or there is a stream.
        OutputMismatch: a shape or an element type differs.
    """
    if len(src) != len(dst) or stream is not None:
        raise InvalidArgument(
            f"{len(src)} tensors are copied to {len(dst)}, on stream {stream!r}; "
            "expected as many of each, and no stream"
        )
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


is_dlpack_uint8_tensor = is_of_bytes
