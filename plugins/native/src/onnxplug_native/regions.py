"""Splits a group of nodes around those that are not to be in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from onnxplug import ep
from onnxplug.authoring.record import Record


class Region(Record):
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

    A node's level is how often, at most, a path to it goes from kept nodes to refused
    ones.  Kept nodes of one level are one region: a path between two of them that met a
    refused one would lead to a higher level.

    Args:
        graph: all of *group* are of it.
        group: indices.
        refused: those of them that are not to be in a region.
    """
    maker = {name: node.index for node in graph.nodes for name in _made(node)}
    readers: dict[str, list[int]] = {}
    for node in graph.nodes:
        for name in _read(node):
            readers.setdefault(name, []).append(node.index)
    levels: dict[int, int] = {}
    for index in sorted(group):
        before = {maker[name] for name in _read(graph.nodes[index]) if name in maker}
        levels[index] = max(
            (
                levels[each] + (index in refused and each not in refused)
                for each in before & levels.keys()
            ),
            default=0,
        )
    members: dict[int, list[ep.Node]] = {}
    for index, level in levels.items():
        if index not in refused:
            members.setdefault(level, []).append(graph.nodes[index])
    given, wanted = set(graph.inputs), set(graph.outputs)
    for _, nodes in sorted(members.items()):
        own = {node.index for node in nodes}
        read = dict.fromkeys(name for node in nodes for name in _read(node))
        yield Region(
            nodes,
            [n for n in read if n in given or (n in maker and maker[n] not in own)],
            [
                name
                for node in nodes
                for name in _made(node)
                if name in wanted or not own.issuperset(readers.get(name, ()))
            ],
        )


def _read(node: ep.Node) -> Iterator[str]:
    yield from (name for name in node.inputs if name is not None)
    yield from node.captures


def _made(node: ep.Node) -> Iterator[str]:
    return (name for name in node.outputs if name is not None)
