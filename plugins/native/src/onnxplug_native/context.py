"""Compiled partitions as bytes: the ``EPContext`` nodes that libraries make of them.

A library makes such a node when it compiles, if the session asks for it when its EP is
created.  So what is serialised is compiled once more, by an EP of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx

from onnxplug import ep
from onnxplug_native.functions.editor import MadeNode

OPERATOR: Final = "EPContext"
DOMAIN: Final = "com.microsoft"

ENTRIES: Final[Mapping[str, str]] = {
    "ep.context_enable": "1",
    "ep.context_embed_mode": "1",
}
"""What a session's config says to a library that is to make such nodes."""


class NotOfUse(ValueError):
    """The bytes are none of a compiled partition."""


class ContextNode:
    """An ``EPContext`` node, as libraries are shown it."""

    index = 0
    op_type = OPERATOR
    domain = DOMAIN
    since_version = 1
    captures: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.inputs: tuple[str | None, ...] = tuple(inputs)
        self.outputs: tuple[str | None, ...] = tuple(outputs)
        self.attributes = attributes
        self.subgraphs: Mapping[str, ep.Graph] = {}


class ContextGraph:
    """A graph of one such node, around a partition's values."""

    parent = None

    def __init__(self, node: ContextNode, partition: ep.Partition) -> None:
        self.name = partition.graph.name
        self.nodes: Sequence[ep.Node] = [node]
        self.inputs = tuple(partition.inputs)
        self.outputs = tuple(partition.outputs)
        self._partition = partition

    def opset(self, domain: str = "") -> int:
        """That of the graph that the partition is of, and 1 of the node's domain."""
        return 1 if domain == DOMAIN else self._partition.graph.opset(domain)

    def value(self, name: str) -> ep.ValueInfo:
        """What is known of a value."""
        return self._partition.value(name)

    def constant(self, name: str) -> None:
        """There are none."""

    def assigned_to(self, node: ep.Node) -> None:
        """Nobody has the node."""


def pack(made: MadeNode, partition: ep.Partition, compatibility: str) -> bytes:
    """The node that a library made, with what it says of its compatibility.

    Raises:
        NotOfUse: it is another node than it has to be.
    """
    if (made.op_type, made.domain) != (OPERATOR, DOMAIN):
        raise NotOfUse(f"it made a node {made.domain}.{made.op_type}, no {OPERATOR}")
    sides: list[list[str]] = []
    for what, names, known in (
        ("input", made.inputs, list(partition.inputs)),
        ("output", made.outputs, list(partition.outputs)),
    ):
        foreign = [name for name in names if name not in known]
        if foreign:
            raise NotOfUse(f"the node has the {what} {foreign[0]!r}, a weight")
        sides.append([f"{what} {known.index(name)}" for name in names])
    node = onnx.helper.make_node(
        OPERATOR,
        inputs=sides[0],
        outputs=sides[1],
        name=made.name,
        domain=DOMAIN,
        doc_string=compatibility,
    )
    for name, value in made.attributes.items():
        items = list(value) if isinstance(value, tuple) else value
        node.attribute.append(onnx.helper.make_attribute(name, items))
    data: bytes = node.SerializeToString()
    return data


def unpack(data: memoryview, partition: ep.Partition) -> tuple[ContextNode, str]:
    """The node that :func:`pack` has written, for *partition*, and what was said of its
    compatibility.

    Raises:
        NotOfUse: the bytes are none of such a node, or of one of other ports.
    """
    proto = onnx.NodeProto()
    try:
        proto.ParseFromString(bytes(data))
        attributes = {
            each.name: _plain(onnx.helper.get_attribute_value(each))
            for each in proto.attribute
        }
    except Exception as error:  # protobuf's own class is not typed
        raise NotOfUse(f"the bytes are no node: {error}") from error
    if (proto.op_type, proto.domain) != (OPERATOR, DOMAIN):
        raise NotOfUse(f"it is a node {proto.domain}.{proto.op_type}, no {OPERATOR}")
    inputs = _ports(proto.input, "input", partition.inputs)
    outputs = _ports(proto.output, "output", partition.outputs)
    return ContextNode(proto.name, inputs, outputs, attributes), proto.doc_string


def _ports(written: Sequence[str], what: str, names: Sequence[str]) -> list[str]:
    known = {f"{what} {place}": name for place, name in enumerate(names)}
    for each in written:
        if each not in known:
            raise NotOfUse(f"it has {each!r}, and the partition {len(names)} {what}s")
    return [known[each] for each in written]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
