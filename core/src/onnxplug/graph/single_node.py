"""A node of constants as a graph of its own, which EPs compute ahead of runs."""

from __future__ import annotations

from collections.abc import Mapping

from onnxplug.graph import Graph, Node, Weight
from onnxplug.graph.scopes import outermost


def single_node_graph(graph: Graph, node: Node, weights: Mapping[str, Weight]) -> Graph:
    """A graph of a copy of *node* of *graph*, whose inputs are *weights*."""
    copy = Node(
        node.op_type,
        node.inputs,
        node.outputs,
        node.typed_attributes,
        domain=node.domain,
        name=node.name,
    )
    graph_ = Graph(
        graph.name,
        inputs=(),
        outputs=[name for name in node.outputs if name],
        nodes=[copy],
        constants=weights,
        opset_imports=graph.opset_imports,
    )
    root = outermost(graph)
    graph_.plugins, graph_.domains = root.plugins, root.domains
    return graph_
