"""Graphs of operators, from the bytes of ``DML_GRAPH_DESC``, checked as documented."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import definitions
from .decoding import OWNED_BY_DML, Operator, pointer
from .operators import Rejected, Tensor

OPERATOR_NODE = 1
INPUT_EDGE, OUTPUT_EDGE, INTERMEDIATE_EDGE = 1, 2, 3

Place = tuple[int, int]
"""A node, and one of its inputs or outputs."""


@dataclass
class GraphInput:
    """An input of a graph, as the operators see it that are connected to it."""

    tensors: list[Tensor] = field(default_factory=list)

    @property
    def owned(self) -> bool:
        """Whether DirectML makes a copy of it at initialisation."""
        return any(t.flags & OWNED_BY_DML for t in self.tensors)

    @property
    def size(self) -> int:
        """Bytes that have to be bound; 0 if nothing is connected."""
        return max((t.total_bytes for t in self.tensors), default=0)

    @property
    def alignment(self) -> int:
        """What the offset of a binding is a multiple of."""
        return max((t.alignment for t in self.tensors), default=0)


@dataclass
class Graph:
    """A graph.

    Attributes:
        nodes: operators, in the order of the description.
        names: of the nodes, for messages.
        inputs: of the graph.
        from_input: the graph's input for an input of a node.
        from_node: the output of a node for an input of another.
        outputs: for each output of the graph, the output of a node.
        order: the nodes, each behind those whose outputs it reads.
    """

    nodes: list[Operator]
    names: list[str]
    inputs: list[GraphInput]
    from_input: dict[Place, int] = field(default_factory=dict)
    from_node: dict[Place, Place] = field(default_factory=dict)
    outputs: list[Place] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def output(self, place: Place) -> Tensor:
        """The tensor of an output of a node."""
        tensor = self.nodes[place[0]].outputs[place[1]]
        assert tensor is not None
        return tensor


def single(operator: Operator) -> Graph:
    """A graph of one operator, whose inputs and outputs are the graph's."""
    graph = Graph([operator], [operator.name], [GraphInput() for _ in operator.inputs])
    for i, tensor in enumerate(operator.inputs):
        if tensor is not None:
            graph.inputs[i].tensors.append(tensor)
            graph.from_input[0, i] = i
    graph.outputs = [(0, i) for i in range(len(operator.outputs))]
    graph.order = [0]
    return graph


def decode_graph(desc: Any, operator_at: Callable[[int | None], Operator]) -> Graph:
    """A graph from a ``DML_GRAPH_DESC``.

    Args:
        desc: the structure.
        operator_at: the operator of a pointer to an ``IDMLOperator``.

    Raises:
        Rejected: a rule of graphs is broken.
    """
    if not desc.NodeCount or not desc.Nodes:
        raise Rejected("a graph has at least one node")
    if not desc.OutputCount:
        raise Rejected("a graph has at least one output")
    graph = Graph([], [], [GraphInput() for _ in range(desc.InputCount)])
    for i in range(desc.NodeCount):
        _add_node(graph, i, desc.Nodes[i], operator_at)
    _inputs(graph, desc)
    _intermediates(graph, desc)
    _outputs(graph, desc)
    _connected(graph)
    graph.order = _topological(graph)
    return graph


def _add_node(
    graph: Graph, index: int, node: Any, operator_at: Callable[[int | None], Operator]
) -> None:
    if node.Type != OPERATOR_NODE or not node.Desc:
        raise Rejected(f"node {index} is no operator with a description")
    found = pointer(node.Desc, definitions.find("DML_OPERATOR_GRAPH_NODE_DESC"))
    operator = operator_at(found.Operator.value)
    graph.nodes.append(operator)
    name = found.Name
    label = f" {name.decode(errors='replace')!r}" if name else ""
    graph.names.append(f"node {index}{label} ({operator.name})")


def _edges(count: int, edges: Any, kind: int, name: str) -> Iterator[Any]:
    if count and not edges:
        raise Rejected(f"there are {count} edges of which the array is null")
    structure = definitions.find(name)
    for i in range(count):
        if edges[i].Type != kind or not edges[i].Desc:
            raise Rejected(f"edge {i} of {name} has the type {edges[i].Type}")
        yield pointer(edges[i].Desc, structure)


def _input_of(graph: Graph, node: int, index: int) -> Tensor:
    if node >= len(graph.nodes):
        raise Rejected(f"an edge leads to node {node} of {len(graph.nodes)}")
    inputs = graph.nodes[node].inputs
    if index >= len(inputs):
        raise Rejected(f"an edge leads to input {index} of {graph.names[node]}")
    tensor = inputs[index]
    if tensor is None:
        raise Rejected(
            f"an edge leads to input {index} of {graph.names[node]}, which is null"
        )
    if (node, index) in graph.from_input or (node, index) in graph.from_node:
        raise Rejected(f"two edges lead to input {index} of {graph.names[node]}")
    return tensor


def _output_of(graph: Graph, node: int, index: int) -> Tensor:
    if node >= len(graph.nodes):
        raise Rejected(f"an edge comes from node {node} of {len(graph.nodes)}")
    outputs = graph.nodes[node].outputs
    if index >= len(outputs) or outputs[index] is None:
        raise Rejected(
            f"an edge comes from output {index} of {graph.names[node]}, which lacks it"
        )
    return graph.output((node, index))


def _inputs(graph: Graph, desc: Any) -> None:
    for edge in _edges(
        desc.InputEdgeCount, desc.InputEdges, INPUT_EDGE, "DML_INPUT_GRAPH_EDGE_DESC"
    ):
        tensor = _input_of(graph, edge.ToNodeIndex, edge.ToNodeInputIndex)
        if edge.GraphInputIndex >= len(graph.inputs):
            raise Rejected(
                f"an edge comes from the graph's input {edge.GraphInputIndex}"
            )
        found = graph.inputs[edge.GraphInputIndex]
        if found.tensors and found.owned != bool(tensor.flags & OWNED_BY_DML):
            raise Rejected(
                f"input {edge.GraphInputIndex} of the graph is OWNED_BY_DML for some "
                f"operators and not for {graph.names[edge.ToNodeIndex]}"
            )
        found.tensors.append(tensor)
        place = edge.ToNodeIndex, edge.ToNodeInputIndex
        graph.from_input[place] = edge.GraphInputIndex


def _intermediates(graph: Graph, desc: Any) -> None:
    for edge in _edges(
        desc.IntermediateEdgeCount,
        desc.IntermediateEdges,
        INTERMEDIATE_EDGE,
        "DML_INTERMEDIATE_GRAPH_EDGE_DESC",
    ):
        source = _output_of(graph, edge.FromNodeIndex, edge.FromNodeOutputIndex)
        target = _input_of(graph, edge.ToNodeIndex, edge.ToNodeInputIndex)
        names = graph.names[edge.FromNodeIndex], graph.names[edge.ToNodeIndex]
        if target.flags & OWNED_BY_DML:
            raise Rejected(
                f"input {edge.ToNodeInputIndex} of {names[1]} is OWNED_BY_DML and not "
                "connected to an input of the graph"
            )
        if source.total_bytes != target.total_bytes:
            raise Rejected(
                f"output {edge.FromNodeOutputIndex} of {names[0]} has "
                f"TotalTensorSizeInBytes of {source.total_bytes}, and input "
                f"{edge.ToNodeInputIndex} of {names[1]} of {target.total_bytes}"
            )
        place = edge.ToNodeIndex, edge.ToNodeInputIndex
        graph.from_node[place] = edge.FromNodeIndex, edge.FromNodeOutputIndex


def _outputs(graph: Graph, desc: Any) -> None:
    found: dict[int, Place] = {}
    for edge in _edges(
        desc.OutputEdgeCount,
        desc.OutputEdges,
        OUTPUT_EDGE,
        "DML_OUTPUT_GRAPH_EDGE_DESC",
    ):
        _output_of(graph, edge.FromNodeIndex, edge.FromNodeOutputIndex)
        index = edge.GraphOutputIndex
        if index >= desc.OutputCount:
            raise Rejected(f"an edge leads to the graph's output {index}")
        if index in found:
            raise Rejected(f"two edges lead to the graph's output {index}")
        found[index] = edge.FromNodeIndex, edge.FromNodeOutputIndex
    for index in range(desc.OutputCount):
        if index not in found:
            raise Rejected(f"no edge leads to the graph's output {index}")
    graph.outputs = [found[i] for i in range(desc.OutputCount)]


def _connected(graph: Graph) -> None:
    used = {*graph.from_node.values(), *graph.outputs}
    for n, operator in enumerate(graph.nodes):
        of_inputs, of_outputs = operator.optional
        for i, tensor in enumerate(operator.inputs):
            linked = (n, i) in graph.from_input or (n, i) in graph.from_node
            if tensor is not None and not linked and not of_inputs[i]:
                raise Rejected(f"no edge leads to input {i} of {graph.names[n]}")
            if tensor is not None and not linked:
                raise Rejected(
                    f"no edge leads to input {i} of {graph.names[n]}, though it is "
                    "described"
                )
        for i in range(len(operator.outputs)):
            if (n, i) not in used and not of_outputs[i]:
                raise Rejected(f"no edge comes from output {i} of {graph.names[n]}")


def _topological(graph: Graph) -> list[int]:
    waiting = {
        n: {source for (node, _), (source, _) in graph.from_node.items() if node == n}
        for n in range(len(graph.nodes))
    }
    order: list[int] = []
    while waiting:
        ready = [n for n, sources in waiting.items() if not sources]
        if not ready:
            cycle = ", ".join(graph.names[n] for n in waiting)
            raise Rejected(f"there is a cycle among {cycle}")
        order += ready
        for n in ready:
            del waiting[n]
        for sources in waiting.values():
            sources.difference_update(ready)
    return order
