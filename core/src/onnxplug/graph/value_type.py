"""``TypeProto`` and ``ValueInfoProto``: the types of values, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.ep import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.errors import InvalidModel
from onnxplug.graph import tags
from onnxplug.graph.wire import Message, signed

if TYPE_CHECKING:
    import onnx


def read_value_info(message: Message) -> tuple[str, ValueType | None]:
    """A value's name, and its type; ``None`` when unknown or opaque."""
    name = ""
    value_type: ValueType | None = None
    for tag, start, end in message.fields():
        match tag:
            case tags.VALUE_INFO_NAME:
                name = message.text(start, end)
            case tags.VALUE_INFO_TYPE:
                value_type = read_type(message.child(start, end))
    return name, value_type


def read_type(message: Message) -> ValueType | None:
    """The type in a ``TypeProto``; ``None`` when it has none, or an opaque one."""
    value_type: ValueType | None = None
    for tag, start, end in message.fields():  # of a oneof, the last one counts
        match tag:
            case tags.TYPE_TENSOR:
                value_type = TensorType(*_tensor_type(message.child(start, end)))
            case tags.TYPE_SPARSE_TENSOR:
                value_type = SparseTensorType(*_tensor_type(message.child(start, end)))
            case tags.TYPE_SEQUENCE:
                value_type = SequenceType(_element_type(message.child(start, end)))
            case tags.TYPE_OPTIONAL:
                value_type = OptionalType(_element_type(message.child(start, end)))
            case tags.TYPE_MAP:
                value_type = _map_type(message.child(start, end))
            case tags.TYPE_OPAQUE:
                value_type = None
    return value_type


def read_data_type(number: int, owner: str) -> DataType:
    """ONNX's element type *number*, as *owner* says in the model.

    Raises:
        InvalidModel: there is none.
    """
    try:
        return DataType.from_onnx(signed(number))
    except ValueError as error:
        raise InvalidModel(f"{owner}: {error}") from error


def type_to_proto(value_type: ValueType) -> onnx.TypeProto:
    """*value_type* as an ``onnx.TypeProto``; what is unknown is left unset."""
    import onnx

    proto = onnx.TypeProto()
    match value_type:
        case TensorType(dtype, shape):
            _write_tensor_type(proto.tensor_type, dtype, shape)
        case SparseTensorType(dtype, shape):
            _write_tensor_type(proto.sparse_tensor_type, dtype, shape)
        case SequenceType(element):
            proto.sequence_type.SetInParent()
            if element is not None:
                proto.sequence_type.elem_type.CopyFrom(type_to_proto(element))
        case OptionalType(element):
            proto.optional_type.SetInParent()
            if element is not None:
                proto.optional_type.elem_type.CopyFrom(type_to_proto(element))
        case MapType(key, value):
            proto.map_type.key_type = key.onnx
            if value is not None:
                proto.map_type.value_type.CopyFrom(type_to_proto(value))
    return proto


def _tensor_type(
    message: Message,
) -> tuple[DataType | None, tuple[Dimension, ...] | None]:
    dtype: DataType | None = None
    shape: tuple[Dimension, ...] | None = None
    for tag, start, end in message.fields():
        match tag:
            case tags.TENSOR_TYPE_ELEM_TYPE:
                # 0 is ONNX's "undefined"
                dtype = read_data_type(start, "a type") if start else None
            case tags.TENSOR_TYPE_SHAPE:
                shape = _shape(message.child(start, end))
    return dtype, shape


def _shape(message: Message) -> tuple[Dimension, ...]:
    return tuple(
        _dimension(message.child(start, end))
        for tag, start, end in message.fields()
        if tag == tags.SHAPE_DIM
    )


def _dimension(message: Message) -> Dimension:
    dimension: Dimension = None
    for tag, start, end in message.fields():
        match tag:
            case tags.DIMENSION_DIM_VALUE:
                # exporters write -1 for a size that is not known
                dimension = start if signed(start) >= 0 else None
            case tags.DIMENSION_DIM_PARAM:
                dimension = message.text(start, end) or None
    return dimension


def _element_type(message: Message) -> ValueType | None:
    element: ValueType | None = None
    for tag, start, end in message.fields():
        if tag == tags.ELEMENT_TYPE_ELEM_TYPE:
            element = read_type(message.child(start, end))
    return element


def _map_type(message: Message) -> MapType:
    key = 0
    value: ValueType | None = None
    for tag, start, end in message.fields():
        match tag:
            case tags.MAP_TYPE_KEY_TYPE:
                key = start
            case tags.MAP_TYPE_VALUE_TYPE:
                value = read_type(message.child(start, end))
    return MapType(read_data_type(key, "the key of a map type"), value)


def _write_tensor_type(
    proto: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor,
    dtype: DataType | None,
    shape: tuple[Dimension, ...] | None,
) -> None:
    proto.SetInParent()
    if dtype is not None:
        proto.elem_type = dtype.onnx
    if shape is None:
        return
    proto.shape.SetInParent()
    for size in shape:
        dimension = proto.shape.dim.add()
        if isinstance(size, str):
            dimension.dim_param = size
        elif size is not None:
            dimension.dim_value = size
