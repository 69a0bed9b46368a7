"""The graphs of a model, and names that are new to all of them.

ONNX wants a name to be unique in a graph and the bodies within it, so a new name has
to be looked for in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.graph import Graph


def all_graphs(graph: Graph) -> Iterator[Graph]:
    """*graph* and the bodies within, outer before inner, in the order of nodes."""
    yield graph
    for node in graph.nodes:
        if node.typed_attributes:  # most nodes have none, and no body then
            for body in node.subgraphs.values():
                yield from all_graphs(body)


def outermost(graph: Graph) -> Graph:
    """The main graph around *graph*."""
    while graph.parent is not None:
        graph = graph.parent
    return graph


def made_in(graph: Graph) -> set[str]:
    """Names that *graph* itself gives to values; not those of bodies within."""
    names = {*graph.inputs, *graph.defaults, *graph.constants}
    for node in graph.nodes:
        names.update(filter(None, node.outputs))
    return names


def made_in_bodies(graph: Graph) -> set[str]:
    """Names that bodies within *graph* give to values; they hide those of *graph*.

    ONNX forbids to use a name in both, but models do it.
    """
    bodies = (body for node in graph.nodes for body in node.subgraphs.values())
    return {
        name for body in bodies for each in all_graphs(body) for name in made_in(each)
    }


class Names:
    """Gives out names that no value of a model has."""

    def __init__(self, graph: Graph) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        for each in all_graphs(outermost(graph)):
            self._taken |= made_in(each)
            self._taken.update(each.outputs)

    def fresh(self, name: str) -> str:
        """*name*, or *name* with the first number that makes it unique."""
        candidate = name
        number = self._last.get(name, 1)
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._last[name] = number
        self._taken.add(candidate)
        return candidate
