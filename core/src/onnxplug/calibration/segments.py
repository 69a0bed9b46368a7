"""Divides a model where its heavy work changes its kind, for parts to be placed apart.

An EP that is good at convolutions may be bad at products of matrices, and the other way
round.  So a graph is cut between runs of heavy nodes of one kind, where few values
cross; and into thirds where there is one kind only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug.graph import Graph, Node
    from onnxplug.selection.request import Span

MOST: Final = 5
"""Segments at most: each is timed with another EP."""

_WIDEST: Final = 6
"""Values that may cross a border."""

_FEWEST: Final = 6
"""Heavy nodes of one kind that are worth to be divided."""

_RECURRENT: Final = frozenset({"LSTM", "GRU", "RNN"})


class Segment(Record):
    """Nodes that follow each other.

    Attributes:
        heavy: how many of them are heavy.
        kind: of these: ``conv``, ``product`` or ``recurrent``.
    """

    span: Span
    heavy: int
    kind: str


def segments(graph: Graph) -> list[Segment]:
    """The segments of *graph*, which cover all of its nodes; one if it is not worth to
    be divided."""
    heavy = [(node.index, kind) for node in graph.nodes if (kind := kind_of(node))]
    count = len(graph.nodes)
    if not heavy:
        return [Segment((0, count), 0, "")]
    crossing = crossing_values(graph)
    edges = [0]
    for (one, kind), (other, its) in itertools.pairwise(heavy):
        if kind != its:
            place = min(range(one + 1, other + 1), key=lambda n: (crossing[n], n))
            if crossing[place] <= _WIDEST:
                edges.append(place)
    if len(edges) == 1:
        edges += _thirds(heavy, crossing)
    spans = [*zip(edges, [*edges[1:], count], strict=True)]
    return _merged([_segment(span, heavy) for span in spans])


def kind_of(node: Node) -> str:
    """The kind of the work of *node*; empty if it is light."""
    op = node.op_type
    if "Conv" in op:
        return "conv"
    if op in _RECURRENT:
        return "recurrent"
    if (not node.domain and op in having("intensive")) or "MatMul" in op:
        return "product"
    return "product" if "Attention" in op else ""


def crossing_values(graph: Graph) -> list[int]:
    """Before each node, how many values made before it are used by it or later.

    What follows from constants and shapes is not counted: hosts compute it ahead, or it
    is small.
    """
    last: dict[str, int] = {}  # what goes to the caller does so from where it is made
    varying = {*graph.inputs, *graph.defaults}
    for node in graph.nodes:
        names = [*filter(None, (*node.inputs, *node.captures))]
        for name in names:
            last[name] = node.index
        if node.op_type not in ("Shape", "Size") and not varying.isdisjoint(names):
            varying.update(filter(None, node.outputs))
    change = [0] * (len(graph.nodes) + 2)
    for node in graph.nodes:
        for name in filter(None, node.outputs):
            if name in last and name in varying:
                change[node.index + 1] += 1
                change[last[name] + 1] -= 1
    return list(itertools.accumulate(change[: len(graph.nodes)]))


def _thirds(heavy: Sequence[tuple[int, str]], crossing: Sequence[int]) -> list[int]:
    if len(heavy) < _FEWEST:
        return []
    found = []
    for share in (1, 2):
        first = heavy[len(heavy) * share // 3 - 1][0] + 1
        last = heavy[len(heavy) * share // 3][0] + 1
        place = min(range(first, last), key=lambda n: (crossing[n], n))
        if crossing[place] <= _WIDEST:
            found.append(place)
    return found


def _segment(span: Span, heavy: Sequence[tuple[int, str]]) -> Segment:
    kinds = [kind for place, kind in heavy if span[0] <= place < span[1]]
    kind = max(dict.fromkeys(kinds), key=kinds.count, default="")
    return Segment(span, len(kinds), kind)


def _merged(found: list[Segment]) -> list[Segment]:
    """*found* with the smallest merged into a neighbour until they are few."""
    while len(found) > MOST:
        at = min(range(len(found)), key=lambda n: found[n].heavy)
        beside = [n for n in (at - 1, at + 1) if 0 <= n < len(found)]
        into = min(beside, key=lambda n: found[n].heavy)
        first, second = sorted((at, into))
        one, other = found[first], found[second]
        larger = one if one.heavy >= other.heavy else other
        span = one.span[0], other.span[1]
        whole = Segment(span, one.heavy + other.heavy, larger.kind)
        found[first : second + 1] = [whole]
    return found
