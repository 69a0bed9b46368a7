"""What a session reports of its model, in ONNX Runtime's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug.ep import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    ValueType,
)

if TYPE_CHECKING:
    from onnxplug.graph import Model

_TYPE_NAMES: Final = {
    DataType.FLOAT32: "float",
    DataType.FLOAT64: "double",
    DataType.FLOAT8_E4M3FN: "float8e4m3fn",
    DataType.FLOAT8_E4M3FNUZ: "float8e4m3fnuz",
    DataType.FLOAT8_E5M2: "float8e5m2",
    DataType.FLOAT8_E5M2FNUZ: "float8e5m2fnuz",
    DataType.FLOAT8_E8M0FNU: "float8e8m0",
    DataType.FLOAT4_E2M1FN: "float4e2m1",
    DataType.FLOAT6_E2M3FN: "float6e2m3",
    DataType.FLOAT6_E3M2FN: "float6e3m2",
}


class NodeArg(Record):
    """An input or output of a model.

    Attributes:
        name: its name.
        type: ``tensor(float)``, ``seq(tensor(int64))`` …
        shape: sizes, symbolic names, and ``None`` for what is unknown; empty for a
            scalar, and for a value that is no tensor or of unknown rank.
        rank_is_known: distinguishes a scalar from a tensor of unknown rank.
    """

    name: str
    type: str
    shape: list[Dimension]
    rank_is_known: bool = True

    def copy(self) -> NodeArg:
        """The same with a list of sizes of its own."""
        return NodeArg(self.name, self.type, [*self.shape], self.rank_is_known)

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


class ModelMetadata:
    """What the model says of itself."""

    def __init__(self, model: Model) -> None:
        self.producer_name = model.producer_name
        self.producer_version = model.producer_version
        self.graph_name = model.graph.name
        self.domain = model.domain
        self.description = model.doc_string
        self.graph_description = model.graph.doc_string
        self.version = model.model_version
        self.custom_metadata_map = dict(model.metadata)


def node_arg(name: str, value_type: ValueType | None) -> NodeArg:
    """The description of a value named *name*."""
    shape = getattr(value_type, "shape", None)
    return NodeArg(name, type_name(value_type), list(shape or ()), shape is not None)


def type_name(value_type: ValueType | None) -> str:
    """ONNX Runtime's name of a type."""
    match value_type:
        case TensorType(dtype=DataType() as dtype):
            return f"tensor({_TYPE_NAMES.get(dtype, dtype)})"
        case SparseTensorType(dtype=DataType() as dtype):
            return f"sparse_tensor({_TYPE_NAMES.get(dtype, dtype)})"
        case SequenceType(element=element):
            return f"seq({type_name(element)})"
        case OptionalType(element=element):
            return f"optional({type_name(element)})"
        case MapType(key=key, value=value):
            return f"map({_TYPE_NAMES.get(key, key)},{type_name(value)})"
    return "unknown"


def type_name_of(value: Any) -> str:
    """ONNX Runtime's name of the type of a value at hand."""
    if value is None:
        return "optional()"
    if isinstance(value, list):
        return f"seq({type_name_of(value[0]) if value else 'unknown'})"
    if isinstance(value, dict):
        return "map"
    if isinstance(value, SparseTensor):
        return type_name(SparseTensorType(DataType.from_numpy(value.values.dtype)))
    return type_name(TensorType(DataType.from_numpy(value.dtype)))
