"""A model's graphs as they were, to go back to."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs

_OF_NODE: Final = (
    "op_type",
    "domain",
    "name",
    "overload",
    "inputs",
    "outputs",
    "made_of",
)
"""What of a node may be assigned to, beside its attributes."""


class Snapshot:
    """*graph* and the bodies within, as they are now.

    Nodes, weights and bodies are the same objects when it is restored.
    """

    def __init__(self, graph: Graph) -> None:
        self._graphs = [_State(each) for each in all_graphs(graph)]

    def restore(self) -> None:
        """Let the graphs be as they were."""
        for state in self._graphs:
            state.restore()


class _State:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inputs = list(graph.inputs)
        self._outputs = list(graph.outputs)
        self._tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (table, dict(table))
            for table in (graph.constants, graph.defaults, graph.opset_imports)
        ]
        self._constants, self._defaults = graph.constants, graph.defaults
        self._types = dict(graph.types)
        self._parent = graph.parent
        self._nodes: list[tuple[Node, tuple[Any, ...], dict[str, Any]]] = [
            (
                node,
                tuple(getattr(node, name) for name in _OF_NODE),
                dict(node.typed_attributes),
            )
            for node in graph.nodes
        ]

    def restore(self) -> None:
        graph = self._graph
        for node, values, attributes in self._nodes:
            for name, value in zip(_OF_NODE, values, strict=True):
                setattr(node, name, value)
            node.typed_attributes = dict(attributes)
            node._attributes = None
        graph.inputs, graph.outputs = list(self._inputs), list(self._outputs)
        for table, content in self._tables:
            table.clear()
            table.update(content)
        graph.constants, graph.defaults = self._constants, self._defaults
        graph.types = dict(self._types)
        graph.replace_nodes([node for node, _, _ in self._nodes])
        graph.parent = self._parent
