"""What is known of the types of values."""

from __future__ import annotations

import ctypes
import math
from typing import Final

from onnxplug import ep
from onnxplug.authoring.bounds import MOST_AXES
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    put_all,
    put_int,
    put_pointer,
    put_pointers,
    put_size,
    sizes,
    texts,
)

# the numbers are ONNX's up to 23, and then the interface's own
_OTHER: Final = {
    ep.DataType.UINT2: 24,
    ep.DataType.INT2: 25,
    ep.DataType.FLOAT8_E8M0FNU: 26,
}
_ONNX_UP_TO: Final = 23


def element_number(dtype: ep.DataType | None) -> int:
    """The interface's number of an element type; 0 for those that it has not."""
    if dtype is None:
        return 0
    number = _OTHER.get(dtype, dtype.onnx)
    return number if dtype in _OTHER or number <= _ONNX_UP_TO else 0


_DTYPES: Final = {
    element_number(dtype): dtype for dtype in ep.DataType if element_number(dtype)
}


def element_type(number: int) -> ep.DataType:
    """The element type of the interface's number.

    Raises:
        InterfaceError: it is the number of none.
    """
    try:
        return _DTYPES[number]
    except KeyError:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"{number} is the number of no element type"
        ) from None


class ShapeInfo(Handle):
    """Element type and shape of a tensor.

    Attributes:
        dtype: the element type's number.
        dimensions: -1 for what is not known.
        symbols: the name of each dimension; empty for none.
        has_shape: whether the rank is known.
    """

    def __init__(self, dtype: int = 0, shape: ep.TensorType | None = None) -> None:
        super().__init__()
        self.dtype = dtype
        known = shape.shape if shape is not None else None
        self.has_shape = known is not None
        self.dimensions = [n if isinstance(n, int) else -1 for n in known or ()]
        self.symbols = [n if isinstance(n, str) else "" for n in known or ()]

    @classmethod
    def of(cls, dtype: int, shape: tuple[int, ...]) -> ShapeInfo:
        """Those of a tensor that is there."""
        info = cls(dtype)
        info.has_shape = True
        info.dimensions, info.symbols = list(shape), [""] * len(shape)
        return info


class TypeInfo(Handle):
    """The type of a value; map, sequence and optional types are their own views.

    Attributes:
        type: ``None`` when it is not known.
    """

    def __init__(self, type: ep.ValueType | None) -> None:
        super().__init__()
        self.type = type
        self.tensor: ShapeInfo | None = None
        if isinstance(type, ep.TensorType | ep.SparseTensorType):
            tensor = ep.TensorType(type.dtype, type.shape)
            self.tensor = ShapeInfo(element_number(type.dtype), tensor)

    @property
    def kind(self) -> int:
        """The interface's number of the kind of type."""
        for number, kind in _KINDS.items():
            if isinstance(self.type, kind):
                return number
        return 0

    def release(self) -> None:
        """Release it and what it says of a tensor."""
        if self.tensor is not None:
            self.tensor.release()
        super().release()


_KINDS: Final[dict[int, type]] = {
    1: ep.TensorType,
    2: ep.SequenceType,
    3: ep.MapType,
    5: ep.SparseTensorType,
    6: ep.OptionalType,
}


@implements("GetOnnxTypeFromTypeInfo")
def get_onnx_type(info: int, out: int) -> None:
    """The kind of type."""
    put_int(out, find(TypeInfo, info).kind)


@implements("CastTypeInfoToTensorInfo")
def cast_to_tensor_info(info: int, out: int) -> None:
    """What is known of a tensor, which lives as long; null for other types."""
    put_pointer(out, find(TypeInfo, info).tensor)


def _cast(number: int, info: int, out: int) -> None:
    found = find(TypeInfo, info)
    put_pointer(out, found if found.kind == number else None)


@implements("CastTypeInfoToSequenceTypeInfo")
def cast_to_sequence(info: int, out: int) -> None:
    """The type itself if it is one of sequences; else null."""
    _cast(2, info, out)


@implements("CastTypeInfoToMapTypeInfo")
def cast_to_map(info: int, out: int) -> None:
    """The type itself if it is one of maps; else null."""
    _cast(3, info, out)


@implements("CastTypeInfoToOptionalTypeInfo")
def cast_to_optional(info: int, out: int) -> None:
    """The type itself if it is an optional one; else null."""
    _cast(6, info, out)


@implements("GetSequenceElementType")
@implements("GetOptionalContainedTypeInfo")
def get_element_type(info: int, out: int) -> None:
    """The type of elements, which the library releases."""
    found = find(TypeInfo, info).type
    if not isinstance(found, ep.SequenceType | ep.OptionalType):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{found} has no elements")
    put_pointer(out, TypeInfo(found.element))


@implements("GetMapKeyType")
def get_map_key_type(info: int, out: int) -> None:
    """The element type of the keys."""
    found = find(TypeInfo, info).type
    if not isinstance(found, ep.MapType):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{found} is no type of maps")
    put_int(out, element_number(found.key))


@implements("GetMapValueType")
def get_map_value_type(info: int, out: int) -> None:
    """The type of the values, which the library releases."""
    found = find(TypeInfo, info).type
    if not isinstance(found, ep.MapType):
        raise InterfaceError(Code.INVALID_ARGUMENT, f"{found} is no type of maps")
    put_pointer(out, TypeInfo(found.value))


@implements("GetDenotationFromTypeInfo")
def get_denotation(info: int, out: int, length: int) -> None:
    """What a type denotes, which the host does not keep."""
    found = find(TypeInfo, info)
    put_pointer(out, found.text(""))
    put_size(length, 0)


@implements("CreateTensorTypeAndShapeInfo")
def create_shape_info(out: int) -> None:
    """Nothing known yet."""
    put_pointer(out, ShapeInfo())


@implements("SetTensorElementType")
def set_element_type(info: int, number: int) -> None:
    """Say the element type."""
    find(ShapeInfo, info).dtype = number


@implements("SetDimensions")
def set_dimensions(info: int, values: int, count: int) -> None:
    """Say the shape."""
    found = find(ShapeInfo, info)
    found.dimensions, found.has_shape = list(sizes(values, count)), True
    found.symbols = [""] * count


@implements("SetSymbolicDimensions")
def set_symbolic_dimensions(info: int, values: int, count: int) -> None:
    """Say the dimensions' names."""
    found = find(ShapeInfo, info)
    found.symbols = texts(values, count, MOST_AXES, "names of dimensions")


@implements("GetTensorElementType")
def get_tensor_element_type(info: int, out: int) -> None:
    """The element type."""
    put_int(out, find(ShapeInfo, info).dtype)


@implements("TensorTypeAndShape_HasShape")
def has_shape(info: int) -> bool:
    """Whether the rank is known."""
    return find(ShapeInfo, info).has_shape


@implements("GetDimensionsCount")
def get_dimensions_count(info: int, out: int) -> None:
    """The rank; 0 if it is not known."""
    put_size(out, len(find(ShapeInfo, info).dimensions))


@implements("GetDimensions")
def get_dimensions(info: int, out: int, count: int) -> None:
    """The dimensions, as many as there is room for; -1 for what is not known."""
    values = find(ShapeInfo, info).dimensions[:count]
    put_all(ctypes.c_int64, out, values, count, "dimensions")


@implements("GetSymbolicDimensions")
def get_symbolic_dimensions(info: int, out: int, count: int) -> None:
    """The dimensions' names, as many as there is room for."""
    found = find(ShapeInfo, info)
    names = [found.text(name) for name in found.symbols[:count]]
    put_pointers(out, names, count, "dimensions")


@implements("GetTensorShapeElementCount")
def get_element_count(info: int, out: int) -> None:
    """How many elements; -1, as it wraps around, where that is not known."""
    sizes = find(ShapeInfo, info).dimensions
    count = -1 if any(size < 0 for size in sizes) else math.prod(sizes)
    put_size(out, count & (1 << 64) - 1)
