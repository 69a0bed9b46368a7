"""A part of a graph as a graph of its own, whose types are then nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnxplug.ep import ValueType
from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.graph import Graph, Node
from onnxplug.graph.scopes import outermost
from onnxplug.graph.weight import Weight


def part_of(
    source: Graph,
    members: Sequence[Node],
    *,
    inputs: Sequence[str],
    types: Mapping[str, ValueType | None],
    retyped: Callable[[ValueType | None], ValueType | None],
) -> Graph:
    """A main graph of copies of *members*, without outputs.

    Bodies are copied too; constants are those of *source* and of the graphs around it.

    Args:
        members: nodes of *source*, in topological order.
        inputs: what they are given, constants excluded.
        types: what is to be known of values outside bodies.
        retyped: what is to be known of a value in a body, given what is now.
    """
    copy = _Copy(source, retyped)
    made = {name for node in members for name in node.outputs}
    used = {name for node in members for name in (*node.inputs, *node.captures)}
    constants: dict[str, Weight] = {}
    for name in used - made - {*inputs, None}:
        weight = None if name is None else source.weight(name)
        if name is not None and weight is not None:
            constants[name] = weight
    part = Graph(
        source.name,
        inputs=inputs,
        outputs=(),
        nodes=[copy.node(node) for node in members],
        constants=constants,
        types=types,
        opset_imports=source.opset_imports,
        doc_string=source.doc_string,
    )
    root = outermost(source)
    part.plugins, part.domains = root.plugins, root.domains
    return part


class _Copy:
    def __init__(
        self, source: Graph, retyped: Callable[[ValueType | None], ValueType | None]
    ) -> None:
        self._opset_imports = source.opset_imports
        self._retyped = retyped

    def node(self, node: Node) -> Node:
        attributes = node.typed_attributes
        if node.subgraphs:
            attributes = {
                name: self._attribute(attribute)
                for name, attribute in attributes.items()
            }
        return Node(
            node.op_type,
            node.inputs,
            node.outputs,
            attributes,
            domain=node.domain,
            name=node.name,
            overload=node.overload,
            made_of=(node,),
        )

    def _attribute(self, attribute: Attribute) -> Attribute:
        if attribute.value is None:
            return attribute
        if attribute.type is AttributeType.GRAPH:
            return attribute._replace(value=self._body(attribute.value))
        if attribute.type is AttributeType.GRAPHS:
            return attribute._replace(value=tuple(map(self._body, attribute.value)))
        return attribute

    def _body(self, body: Graph) -> Graph:
        return Graph(
            body.name,
            inputs=body.inputs,
            outputs=body.outputs,
            nodes=[self.node(node) for node in body.nodes],
            constants=body.constants,
            defaults=body.defaults,
            types={name: self._retyped(type) for name, type in body.types.items()},
            opset_imports=self._opset_imports,
            doc_string=body.doc_string,
        )
