"""Nodes and their attributes as libraries see them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.layout import NHWC_DOMAIN
from onnxplug_native.functions.graph import GraphView, ValueInfo, ep_contiguous
from onnxplug_native.functions.tensor import Value
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    put_int,
    put_pointer,
    put_pointers,
    put_size,
)


class AttributeType(IntEnum):
    """The interface's numbers of kinds of attributes."""

    UNDEFINED = 0
    INT = 1
    INTS = 2
    FLOAT = 3
    FLOATS = 4
    STRING = 5
    STRINGS = 6
    GRAPH = 7
    TENSOR = 8


class Attribute(Handle):
    """An attribute of a node.

    Attributes:
        name: the attribute's.
        type: its kind.
        value: as :data:`onnxplug.ep.AttributeValue`.
    """

    def __init__(self, name: str, type: AttributeType, value: Any) -> None:
        super().__init__()
        self.name = name
        self.type = type
        self.value = value


class NodeView(Handle):
    """A node of a graph, or a fused one.

    Attributes:
        node: the host's.
        graph: the view that it is in.
        name: the node's own, which for a fused one is the host's.
    """

    def __init__(self, node: ep.Node, graph: GraphView) -> None:
        super().__init__()
        self.node = node
        self.graph = graph
        self.name = node.name
        self._attributes: dict[str, Attribute] | None = None
        self._bodies: dict[str, GraphView] | None = None

    @property
    def since_version(self) -> int:
        """The version at which the operator last changed; 1 for unknown ones.

        Those with channels last change as ONNX's own do.
        """
        node = self.node
        if node.domain == NHWC_DOMAIN:
            opset = self.graph.source.opset()
            schema = schema_of(node.op_type, node.domain, opset)
            return 1 if schema is None else int(schema.since_version)
        return node.since_version or 1

    @property
    def inputs(self) -> list[ValueInfo | None]:
        """The inputs; ``None`` for one that is left out."""
        return [self._value(name) for name in self.node.inputs]

    @property
    def outputs(self) -> list[ValueInfo | None]:
        """The outputs; ``None`` for one that nobody wants."""
        return [self._value(name) for name in self.node.outputs]

    def _value(self, name: str | None) -> ValueInfo | None:
        return None if name is None else self.graph.value(name)

    @property
    def bodies(self) -> dict[str, GraphView]:
        """The attributes that are graphs."""
        if self._bodies is None:
            self._bodies = {
                name: GraphView(body, self.graph.model, parent=self)
                for name, body in self.node.subgraphs.items()
            }
        return self._bodies

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes that it sets, and the defaults of the others."""
        if self._attributes is None:
            node = self.node
            schema = schema_of(node.op_type, node.domain, self.since_version)
            values = {**_defaults(schema), **node.attributes}
            self._attributes = {
                name: Attribute(name, _type_of(name, value, schema), value)
                for name, value in values.items()
            }
        return self._attributes

    def may_have(self, name: str) -> bool:
        """Whether the operator has an attribute *name*."""
        node = self.node
        schema = schema_of(node.op_type, node.domain, self.since_version)
        return schema is not None and name in schema.attributes

    def release(self) -> None:
        """Release it, its attributes and its bodies."""
        for each in (self._attributes or {}).values():
            each.release()
        for body in (self._bodies or {}).values():
            body.release()
        super().release()


@functools.cache
def schema_of(op_type: str, domain: str, version: int) -> Any:
    """ONNX's schema, of an operator with channels last, too; ``None`` if none."""
    from onnx import defs

    domain = "" if domain == NHWC_DOMAIN else domain
    try:
        return defs.get_schema(op_type, version, domain) if version else None
    except defs.SchemaError:
        return None


def _defaults(schema: Any) -> Mapping[str, Any]:
    """The attributes that have a default."""
    if schema is None:
        return {}
    import onnx

    values = {}
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        if default.type in (
            onnx.AttributeProto.INT,
            onnx.AttributeProto.FLOAT,
            onnx.AttributeProto.STRING,
            onnx.AttributeProto.INTS,
            onnx.AttributeProto.FLOATS,
            onnx.AttributeProto.STRINGS,
        ):
            value = onnx.helper.get_attribute_value(default)
            values[name] = tuple(value) if isinstance(value, list) else value
    return values


_SINGLE = {
    int: AttributeType.INT,
    float: AttributeType.FLOAT,
    str: AttributeType.STRING,
    bytes: AttributeType.STRING,
}


def _type_of(name: str, value: Any, schema: Any) -> AttributeType:
    if isinstance(value, np.ndarray):
        return AttributeType.TENSOR
    if isinstance(value, tuple):
        if value:
            single = _SINGLE.get(type(value[0]))
            return (
                AttributeType.UNDEFINED if single is None else AttributeType(single + 1)
            )
        return _declared(name, schema)
    if type(value) in _SINGLE:
        return _SINGLE[type(value)]
    return AttributeType.GRAPH if hasattr(value, "nodes") else AttributeType.UNDEFINED


def _declared(name: str, schema: Any) -> AttributeType:
    """The kind of a list without elements."""
    if schema is not None and name in schema.attributes:
        word = schema.attributes[name].type.name
        if word in AttributeType.__members__:
            return AttributeType[word]
    return AttributeType.INTS


def texts_of(value: Any) -> list[bytes]:
    """The texts of an attribute as bytes, without ends."""
    texts = value if isinstance(value, tuple) else (value,)
    return [each if isinstance(each, bytes) else str(each).encode() for each in texts]


@implements("Node_GetId")
def node_get_id(node: int, out: int) -> None:
    """A number, unique in the graph."""
    put_size(out, find(NodeView, node).node.index)


@implements("Node_GetName")
def node_get_name(node: int, out: int) -> None:
    """The node's name."""
    found = find(NodeView, node)
    put_pointer(out, found.text(found.name))


@implements("Node_GetOperatorType")
def node_get_operator(node: int, out: int) -> None:
    """The operator's name."""
    found = find(NodeView, node)
    put_pointer(out, found.text(found.node.op_type))


@implements("Node_GetDomain")
def node_get_domain(node: int, out: int) -> None:
    """The operator's domain."""
    found = find(NodeView, node)
    put_pointer(out, found.text(found.node.domain))


@implements("Node_GetSinceVersion")
def node_get_since_version(node: int, out: int) -> None:
    """The version at which the operator last changed; 1 for unknown ones."""
    put_int(out, find(NodeView, node).since_version)


@implements("Node_GetNumInputs")
def node_get_input_count(node: int, out: int) -> None:
    """How many inputs."""
    put_size(out, len(find(NodeView, node).node.inputs))


@implements("Node_GetInputs")
def node_get_inputs(node: int, out: int, count: int) -> None:
    """The inputs; null for one that is left out."""
    put_pointers(out, find(NodeView, node).inputs, count, "inputs")


@implements("Node_GetNumOutputs")
def node_get_output_count(node: int, out: int) -> None:
    """How many outputs."""
    put_size(out, len(find(NodeView, node).node.outputs))


@implements("Node_GetOutputs")
def node_get_outputs(node: int, out: int, count: int) -> None:
    """The outputs; null for one that nobody wants."""
    put_pointers(out, find(NodeView, node).outputs, count, "outputs")


@implements("Node_GetNumImplicitInputs")
def node_get_implicit_count(node: int, out: int) -> None:
    """How many values the bodies take from around."""
    put_size(out, len(find(NodeView, node).node.captures))


@implements("Node_GetImplicitInputs")
def node_get_implicit(node: int, out: int, count: int) -> None:
    """The values that the bodies take from around."""
    found = find(NodeView, node)
    values = [found.graph.value(name) for name in found.node.captures]
    put_pointers(out, values, count, "implicit inputs")


@implements("Node_GetNumAttributes")
def node_get_attribute_count(node: int, out: int) -> None:
    """How many attributes."""
    put_size(out, len(find(NodeView, node).attributes))


@implements("Node_GetAttributes")
def node_get_attributes(node: int, out: int, count: int) -> None:
    """The attributes."""
    values = [*find(NodeView, node).attributes.values()]
    put_pointers(out, values, count, "attributes")


@implements("Node_GetAttributeByName")
def node_get_attribute(node: int, name: bytes | None, out: int) -> None:
    """An attribute; null if it is not set, with a status if there can be none."""
    text = (name or b"").decode("utf-8", "replace")
    view = find(NodeView, node)
    found = view.attributes.get(text)
    put_pointer(out, found)
    if found is None and not view.may_have(text):
        raise InterfaceError(Code.NOT_FOUND, f"the node has no attribute {text!r}")


@implements("Node_GetNumSubgraphs")
def node_get_body_count(node: int, out: int) -> None:
    """How many bodies."""
    put_size(out, len(find(NodeView, node).bodies))


@implements("Node_GetSubgraphs")
def node_get_bodies(node: int, out: int, count: int, names: int | None) -> None:
    """The bodies, and the attributes that they are."""
    found = find(NodeView, node)
    put_pointers(out, [*found.bodies.values()], count, "bodies")
    if names:
        texts = [found.text(name) for name in found.bodies]
        put_pointers(names, texts, count, "bodies")


@implements("Node_GetGraph")
def node_get_graph(node: int, out: int) -> None:
    """The graph that it is in."""
    put_pointer(out, find(NodeView, node).graph)


@implements("Node_GetEpName")
def node_get_ep(node: int, out: int) -> None:
    """The EP that has the node already; empty if none has, as in ONNX Runtime."""
    found = find(NodeView, node)
    name = found.graph.source.assigned_to(found.node)
    put_pointer(out, found.text(name or ""))


@implements("OpAttr_GetType")
def attribute_get_type(attribute: int, out: int) -> None:
    """The attribute's kind."""
    put_int(out, find(Attribute, attribute).type)


@implements("OpAttr_GetName")
def attribute_get_name(attribute: int, out: int) -> None:
    """The attribute's name."""
    found = find(Attribute, attribute)
    put_pointer(out, found.text(found.name))


@implements("OpAttr_GetTensorAttributeAsOrtValue")
def attribute_get_tensor(attribute: int, out: int) -> None:
    """The tensor that an attribute is, which the library releases."""
    found = find(Attribute, attribute)
    if found.type is not AttributeType.TENSOR:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"attribute {found.name!r} is no tensor"
        )
    array = found.value
    dtype = ep.DataType.from_numpy(array.dtype)
    put_pointer(out, Value.of(ep_contiguous(array), dtype))


@implements("ReadOpAttr")
def attribute_read(
    attribute: int, kind: int, data: int | None, room: int, out: int
) -> None:
    """The bytes of an attribute; their number in any case.

    A text has no end; each of several has one.
    """
    found = find(Attribute, attribute)
    if kind != found.type:
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"attribute {found.name!r} is of type {found.type.name}, not {kind}",
        )
    content = attribute_bytes(found)
    put_size(out, len(content))
    if len(content) > room or (content and not data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"attribute {found.name!r} takes {len(content)} bytes, and there is room "
            f"for {room}",
        )
    if content and data:
        ctypes.memmove(data, content, len(content))


def attribute_bytes(attribute: Attribute) -> bytes:
    """What :func:`attribute_read` gives.

    Raises:
        InterfaceError: the attribute is a graph or a tensor.
    """
    value = attribute.value
    match attribute.type:
        case AttributeType.INT | AttributeType.INTS:
            return np.atleast_1d(np.array(value, np.int64)).tobytes()
        case AttributeType.FLOAT | AttributeType.FLOATS:
            return np.atleast_1d(np.array(value, np.float32)).tobytes()
        case AttributeType.STRING:
            return texts_of(value)[0]
        case AttributeType.STRINGS:
            return b"".join(each + b"\0" for each in texts_of(value))
    raise InterfaceError(
        Code.INVALID_ARGUMENT,
        f"attribute {attribute.name!r} is of type {attribute.type.name}, which has no "
        "bytes",
    )
