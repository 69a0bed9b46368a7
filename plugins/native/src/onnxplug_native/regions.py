"""Splits a group of nodes around those that are not to be in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from onnxplug import ep


class Region(NamedTuple):
    """Nodes between which no path leads through others of their group.

    Attributes:
        nodes: in topological order.
        inputs: what they read of the graph, made elsewhere in it; constants excluded.
        outputs: what of theirs is read elsewhere in the graph, or given by it.
    """

    nodes: Sequence[ep.Node]
    inputs: Sequence[str]
    outputs: Sequence[str]


def regions(
    graph: ep.Graph, group: Collection[int], refused: Collection[int]
) -> Iterator[Region]:
    """The nodes of a *group* without those *refused*, in as few regions as go.

    A node's level is the greatest number of refused nodes on a path to it, and nodes of
    one level are one region: a path between two of them meets no refused one.

    Args:
        graph: all of *group* are of it.
        group: indices.
        refused: those of them that are not to be in a region.
    """
    made_by = {
        name: node for node in graph.nodes for name in node.outputs if name is not None
    }
    levels: dict[int, int] = {}
    for index in sorted(group):
        node = graph.nodes[index]
        before = {made_by[name].index for name in _reads(node) if name in made_by}
        levels[index] = max(
            (levels[each] + (each in refused) for each in before & levels.keys()),
            default=0,
        )
    kept = sorted(set(group).difference(refused))
    for level in sorted({levels[index] for index in kept}):
        yield _region(graph, [index for index in kept if levels[index] == level])


def _region(graph: ep.Graph, members: Sequence[int]) -> Region:
    nodes = [graph.nodes[index] for index in members]
    made = {name for node in nodes for name in node.outputs}
    others = [node for node in graph.nodes if node.index not in set(members)]
    of_graph = {name for node in others for name in node.outputs} | set(graph.inputs)
    read = {name for node in others for name in _reads(node)} | set(graph.outputs)
    inputs = [name for node in nodes for name in _reads(node) if name in of_graph]
    outputs = [
        name for node in nodes for name in node.outputs if name and name in read & made
    ]
    return Region(nodes, list(dict.fromkeys(inputs)), outputs)


def _reads(node: ep.Node) -> Iterator[str]:
    yield from (name for name in node.inputs if name is not None)
    yield from node.captures
