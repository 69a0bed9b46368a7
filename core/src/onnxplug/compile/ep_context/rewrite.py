"""A compiled graph as a graph whose compiled partitions are EPContext nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from onnxplug.graph import Attribute, AttributeType, Graph, Node
from onnxplug.operators import EP_CONTEXT
from onnxplug.run.compiled import CompiledGraph, CompiledUnit

MakeNode: TypeAlias = Callable[[CompiledUnit], Node | None]
"""The node that stands for a unit; ``None``: its own nodes do."""


def rewritten(compiled: CompiledGraph, stand_in: MakeNode) -> Graph:
    """A copy of the graph of *compiled*, with other nodes where *stand_in* gives some.

    Nothing of the graph is shared but weights.
    """
    nodes: list[Node] = []
    for unit in compiled.units:
        node = stand_in(unit)
        if node is not None:
            nodes.append(node)
            continue
        bodies = {name: rewritten(body, stand_in) for name, body in unit.bodies.items()}
        nodes += [_copy_node(node, bodies) for node in unit.partition.nodes]
    return _copy_graph(compiled.graph, nodes)


def _copy_graph(graph: Graph, nodes: list[Node]) -> Graph:
    return Graph(
        graph.name,
        inputs=graph.inputs,
        outputs=graph.outputs,
        nodes=nodes,
        constants=graph.constants,
        defaults=graph.defaults,
        types=graph.types,
        opset_imports={EP_CONTEXT[0]: 1, **graph.opset_imports},
        doc_string=graph.doc_string,
    )


def _copy_node(node: Node, bodies: Mapping[str, Graph]) -> Node:
    return Node(
        node.op_type,
        node.inputs,
        node.outputs,
        {
            name: _copy_attribute(name, attribute, bodies)
            for name, attribute in node.typed_attributes.items()
        },
        domain=node.domain,
        name=node.name,
        overload=node.overload,
    )


def _copy_attribute(
    name: str, attribute: Attribute, bodies: Mapping[str, Graph]
) -> Attribute:
    """An attribute; *bodies* take the place of those of these names."""

    def body(key: str, graph: Graph) -> Graph:
        if key in bodies:
            return bodies[key]
        return _copy_graph(graph, [_copy_node(node, {}) for node in graph.nodes])

    if attribute.value is None:
        return attribute
    if attribute.type is AttributeType.GRAPH:
        return attribute._replace(value=body(name, attribute.value))
    if attribute.type is AttributeType.GRAPHS:
        copies = [body(f"{name}[{i}]", each) for i, each in enumerate(attribute.value)]
        return attribute._replace(value=tuple(copies))
    return attribute
