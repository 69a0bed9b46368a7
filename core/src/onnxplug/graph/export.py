"""Graphs, and parts of them, as ONNX's own protobuf classes.

Owns: what makes a part of a graph a model of its own, and how its weights travel.
onnx is imported when something is exported, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from onnxplug.authoring.record import Record
from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.errors import ModelError
from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.graph import Function, Graph, Model, Node
from onnxplug.graph.value_type import type_to_proto
from onnxplug.graph.weight import Weight

if TYPE_CHECKING:
    import onnx

__all__ = ["describe", "export_graph", "node_to_proto", "type_to_proto"]

# Protobuf writes messages of less than 2 GiB; what is not weights fits in the rest.
_INLINE_LIMIT: Final = (1 << 31) - (1 << 24)

# Engines want shapes, axes and the like while they read a model, so small weights
# stay inside it even when the others are external.
_INLINE_UP_TO: Final = 1024

# The IR version that introduced an element type, where it is newer than the default.
_IR_VERSIONS: Final = {
    DataType.FLOAT4_E2M1FN: 11,
    DataType.FLOAT8_E8M0FNU: 12,
    DataType.UINT2: 13,
    DataType.INT2: 13,
    DataType.FLOAT6_E2M3FN: 14,
    DataType.FLOAT6_E3M2FN: 14,
}


class ExportedGraph(Record):
    """A graph as a model, and what was left out of it.

    Attributes:
        model: an ``onnx.ModelProto``.
        weights: by the ``location`` that the model's external data names; they are not
            read before somebody does.
    """

    model: Any
    weights: Mapping[str, Weight]


def export_graph(
    graph: Graph,
    *,
    nodes: Sequence[Node] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    functions: Iterable[Function] = (),
    weights: Literal["inline", "external"] = "inline",
    inline_up_to: int = _INLINE_UP_TO,
    ir_version: int = 10,
    recomputes: bool = False,
) -> ExportedGraph:
    """*graph*, or a part of it, as a self-contained model.

    Constants that the nodes and their bodies use become initializers, wherever around
    the nodes they are; everything else that is used becomes an input.

    Args:
        nodes: the part, in topological order; the whole graph unless given.
        inputs: the model's inputs, in order; by default those of the graph and what
            the nodes use and do not make, where an input with a default keeps it as
            an initializer.
        outputs: the model's outputs, in order; by default those of the graph, or what
            is used outside the part.
        functions: model-local functions to include.
        weights: ``external`` leaves tensors above *inline_up_to* bytes out of the
            model, as external data whose files :attr:`ExportedGraph.weights` stand for.
        ir_version: raised where an element type needs it, and to 4 at least.
        recomputes: constants that are computed by nodes are these nodes, and not what
            they make.

    Raises:
        ModelError: inline weights are beyond protobuf's limit of 2 GiB.
    """
    import onnx

    part = graph.nodes if nodes is None else nodes
    used = _used(part)
    if outputs is None:
        outputs = graph.outputs if nodes is None else _needed_outside(graph, part)
    made = {name for node in part for name in node.outputs}
    defaults: dict[str, Weight] = {}
    if inputs is None:
        declared = [] if nodes is not None else [*graph.inputs, *graph.defaults]
        missing = [
            name
            for name in (*used, *outputs)
            if name not in made and graph.weight(name) is None
        ]
        inputs = list(dict.fromkeys((*declared, *missing)))
        defaults = {n: graph.defaults[n] for n in inputs if n in graph.defaults}
    elsewhere = {*made, *inputs}

    constants = {
        name: weight
        for name in dict.fromkeys((*used, *outputs))
        if name not in elsewhere and (weight := graph.weight(name)) is not None
    }
    writer = _Writer(weights, ir_version, inline_up_to, recomputes)
    model = onnx.ModelProto(producer_name="onnxplug")
    model.graph.name = graph.name or "graph"
    constants = writer.computed(model.graph, constants)
    for node in part:
        writer.node(model.graph.node.add(), node)
    for name in inputs:
        writer.value_info(model.graph.input.add(), name, graph.value(name).type)
    for name, weight in constants.items():
        writer.constant(model.graph, name, weight)
    for name, weight in defaults.items():
        writer.tensor(model.graph.initializer.add(), name, weight)
    for name in outputs:
        writer.value_info(model.graph.output.add(), name, graph.value(name).type)
    writer.intermediates(model.graph, graph, part, outputs)
    for function in functions:
        writer.function(model.functions.add(), function)
    _write_opset_imports(model, graph.opset_imports)
    model.ir_version = writer.ir_version
    return ExportedGraph(model, writer.external)


def describe(proto: onnx.ModelProto, model: Model) -> None:
    """Let *proto*, made of *model*, say of itself what that says."""
    proto.producer_name = model.producer_name
    proto.producer_version = model.producer_version
    proto.domain = model.domain
    proto.model_version = model.model_version
    proto.doc_string = model.doc_string
    proto.graph.doc_string = model.graph.doc_string
    for key, value in model.metadata.items():
        proto.metadata_props.add(key=key, value=value)


def node_to_proto(node: Node) -> onnx.NodeProto:
    """*node* with its attributes and bodies, weights inline."""
    import onnx

    proto = onnx.NodeProto()
    _Writer("inline", 0).node(proto, node)
    return proto


class _Writer:
    """Fills protobuf messages, and keeps what one export has gathered so far.

    Messages are filled in place, since appending one to another copies it.

    Attributes:
        external: weights that are left out, by location.
        ir_version: the lowest that has every element type written.
    """

    def __init__(
        self,
        weights: Literal["inline", "external"],
        ir_version: int,
        inline_up_to: int = _INLINE_UP_TO,
        recomputes: bool = False,
    ) -> None:
        self._inline_up_to: Final = inline_up_to
        self._external: Final = weights == "external"
        self._recomputes: Final = recomputes
        self._inline_bytes = 0
        self.external: dict[str, Weight] = {}
        # before version 4 initializers had to be inputs, which constants are not
        self.ir_version = max(ir_version, 4)

    # nodes

    def node(self, proto: onnx.NodeProto, node: Node) -> None:
        proto.op_type = node.op_type
        proto.input.extend(name or "" for name in node.inputs)
        proto.output.extend(name or "" for name in node.outputs)
        if node.name:
            proto.name = node.name
        if node.domain:
            proto.domain = node.domain
        if node.overload:
            proto.overload = node.overload
        for name, attribute in node.typed_attributes.items():
            self.attribute(proto.attribute.add(), name, attribute)

    def attribute(
        self, proto: onnx.AttributeProto, name: str, attribute: Attribute
    ) -> None:
        proto.name = name
        number: Any = int(attribute.type)  # which onnx's stubs take for no enum
        proto.type = number
        if attribute.reference:
            proto.ref_attr_name = attribute.reference
            return
        value = attribute.value
        match attribute.type:
            case AttributeType.FLOAT:
                proto.f = value
            case AttributeType.INT:
                proto.i = value
            case AttributeType.STRING:
                proto.s = _encoded(value)
            case AttributeType.TENSOR:
                self.tensor(proto.t, "", value)
            case AttributeType.GRAPH:
                self.body(proto.g, value)
            case AttributeType.SPARSE_TENSOR:
                self.sparse_tensor(proto.sparse_tensor, value)
            case AttributeType.TYPE_PROTO:
                self.type(proto.tp, value)
            case AttributeType.FLOATS:
                proto.floats.extend(value)
            case AttributeType.INTS:
                proto.ints.extend(value)
            case AttributeType.STRINGS:
                proto.strings.extend(map(_encoded, value))
            case AttributeType.TENSORS:
                for each in value:
                    self.tensor(proto.tensors.add(), "", each)
            case AttributeType.GRAPHS:
                for each in value:
                    self.body(proto.graphs.add(), each)
            case AttributeType.SPARSE_TENSORS:
                for each in value:
                    self.sparse_tensor(proto.sparse_tensors.add(), each)
            case AttributeType.TYPE_PROTOS:
                for each in value:
                    self.type(proto.type_protos.add(), each)

    def body(self, proto: onnx.GraphProto, graph: Graph) -> None:
        """A control-flow body, with its own constants."""
        proto.name = graph.name or "body"
        used = {*_used(graph.nodes), *graph.outputs}
        constants = {n: w for n, w in graph.constants.items() if n in used}
        constants = self.computed(proto, constants)
        for node in graph.nodes:
            self.node(proto.node.add(), node)
        for name in (*graph.inputs, *graph.defaults):
            self.value_info(proto.input.add(), name, graph.value(name).type)
        for name in graph.outputs:
            self.value_info(proto.output.add(), name, graph.value(name).type)
        for name, weight in constants.items():
            self.constant(proto, name, weight)
        for name, weight in graph.defaults.items():
            self.tensor(proto.initializer.add(), name, weight)
        self.intermediates(proto, graph, graph.nodes, graph.outputs)

    def function(self, proto: onnx.FunctionProto, function: Function) -> None:
        body = function.body
        proto.name = function.name
        proto.domain = function.domain
        if function.overload:
            proto.overload = function.overload
        proto.input.extend(body.inputs)
        proto.output.extend(body.outputs)
        proto.attribute.extend(function.attributes)
        for name, attribute in function.attribute_defaults.items():
            self.attribute(proto.attribute_proto.add(), name, attribute)
        for node in body.nodes:
            self.node(proto.node.add(), node)
        for name, value_type in body.types.items():
            if _is_known(value_type):
                self.value_info(proto.value_info.add(), name, value_type)
        _write_opset_imports(proto, body.opset_imports)

    # types

    def value_info(
        self, proto: onnx.ValueInfoProto, name: str, value_type: ValueType | None
    ) -> None:
        """A value's name, and its type as far as that is known."""
        proto.name = name
        if _is_known(value_type):
            self.type(proto.type, value_type)

    def intermediates(
        self,
        proto: onnx.GraphProto,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
    ) -> None:
        """The known types of what *nodes* make, other than *outputs*."""
        listed = set(outputs)
        for node in nodes:
            for name in filter(None, node.outputs):
                value_type = graph.types.get(name)
                if name not in listed and _is_known(value_type):
                    self.value_info(proto.value_info.add(), name, value_type)

    def type(self, proto: onnx.TypeProto, value_type: ValueType | None) -> None:
        proto.SetInParent()
        if value_type is not None:
            for dtype in _data_types(value_type):
                self._require(dtype)
            proto.CopyFrom(type_to_proto(value_type))

    # weights

    def computed(
        self, proto: onnx.GraphProto, constants: Mapping[str, Weight]
    ) -> dict[str, Weight]:
        """Write the nodes that compute *constants*, if they are to be written.

        Returns:
            What of *constants* no node computes, and what these nodes read.
        """
        left: dict[str, Weight] = {}
        waiting = [*reversed([*constants.items()])]
        written: set[str] = set()
        while waiting:
            name, weight = waiting.pop()
            maker = weight.maker if self._recomputes else None
            if maker is None:
                left[name] = weight
                continue
            missing = [
                (n, w)
                for n, w in maker.constants.items()
                if n not in left and n not in written
            ]
            if missing:
                waiting += [(name, weight), *missing]
            elif name not in written:
                self.node(proto.node.add(), cast(Node, maker.node))
                written.add(name)
        return left

    def constant(
        self,
        proto: onnx.GraphProto,
        name: str,
        weight: Weight,
    ) -> None:
        """A constant as the kind of weight that is asked for."""
        if (
            self._external
            and weight.nbytes > self._inline_up_to
            and weight.dtype is not DataType.STRING
        ):
            self._external_tensor(proto.initializer.add(), name, weight)
        else:
            self.tensor(proto.initializer.add(), name, weight)

    def tensor(self, proto: onnx.TensorProto, name: str, weight: Weight) -> None:
        """A tensor with its content."""
        self._inline_bytes += weight.nbytes
        if self._inline_bytes > _INLINE_LIMIT:
            raise ModelError(
                f"weights take {self._inline_bytes} bytes and more, up to "
                f"{name or 'an attribute'!r}, and protobuf has at most 2 GiB for a "
                'message; export with weights="external"'
            )
        self._describe(proto, name, weight)
        if weight.dtype is DataType.STRING:
            proto.string_data.extend(map(_encoded, weight.array.reshape(-1)))
        else:
            proto.raw_data = weight.raw().tobytes()

    def sparse_tensor(
        self, proto: onnx.SparseTensorProto, sparse: SparseTensor
    ) -> None:
        proto.dims.extend(sparse.shape)
        self.tensor(proto.values, "", Weight.from_array(sparse.values))
        self.tensor(proto.indices, "", Weight.from_array(sparse.indices))

    def _external_tensor(
        self, proto: onnx.TensorProto, name: str, weight: Weight
    ) -> None:
        self._describe(proto, name, weight)
        location = f"weight-{len(self.external)}"
        self.external[location] = weight
        proto.data_location = proto.EXTERNAL
        entries = {"location": location, "offset": "0", "length": str(weight.nbytes)}
        for key, value in entries.items():
            proto.external_data.add(key=key, value=value)

    def _describe(self, proto: onnx.TensorProto, name: str, weight: Weight) -> None:
        self._require(weight.dtype)
        if name:
            proto.name = name
        proto.data_type = weight.dtype.onnx
        proto.dims.extend(weight.shape)

    def _require(self, dtype: DataType | None) -> None:
        if dtype is not None:
            self.ir_version = max(self.ir_version, _IR_VERSIONS.get(dtype, 0))


def _used(nodes: Iterable[Node]) -> dict[str, None]:
    """Names that *nodes* and their bodies use and that none of them makes, in order."""
    made: set[str] = set()
    names: dict[str, None] = {}
    for node in nodes:
        wanted = (*filter(None, node.inputs), *node.captures)
        names.update((name, None) for name in wanted if name not in made)
        made.update(filter(None, node.outputs))
    return names


def _needed_outside(graph: Graph, part: Sequence[Node]) -> list[str]:
    """What *part* makes and the graph's other nodes, or its outputs, need."""
    members = {id(node) for node in part}
    others = [node for node in graph.nodes if id(node) not in members]
    needed = {*_used(others), *graph.outputs}
    return [name for node in part for name in node.outputs if name in needed]


def _is_known(value_type: ValueType | None) -> bool:
    """Engines refuse a tensor without element type, but not a value without type."""
    if isinstance(value_type, TensorType | SparseTensorType):
        return value_type.dtype is not None
    return value_type is not None


def _data_types(value_type: ValueType | None) -> Iterator[DataType | None]:
    match value_type:
        case TensorType(dtype) | SparseTensorType(dtype):
            yield dtype
        case SequenceType(element) | OptionalType(element):
            yield from _data_types(element)
        case MapType(key, value):
            yield key
            yield from _data_types(value)


def _encoded(text: str | bytes) -> bytes:
    """As it was in the model's file: text that is not UTF-8 was read with escapes."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _write_opset_imports(
    proto: onnx.ModelProto | onnx.FunctionProto, imports: Mapping[str, int]
) -> None:
    for domain, version in imports.items():
        proto.opset_import.add(domain=domain, version=version)
