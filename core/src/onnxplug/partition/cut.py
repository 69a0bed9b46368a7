"""Cuts an assigned graph into convex partitions, as few as can be had in linear time.

Partitions in an order in which they can be executed are a topological order of the
nodes, split where the EP changes.  The fewest are as hard to find as the shortest
common supersequence of many strings (D. Maier, 1978), which chains of nodes are.  So
two cuts are made, and the one with fewer partitions is used, the first if none has:

By level.  A node's level is the largest number of changes of EP on any path to it;
nodes of one EP and one level form a partition.  An edge between two partitions leads to
a higher level, so they cannot wait for each other in a circle.  No cut has fewer
partitions than levels, each change on a path being one.

By readiness: list scheduling (T. C. Hu, 1961), with EPs in place of machines.  An EP
gets all nodes whose inputs are made, and those that become ready by it, as one
partition; then comes the EP whose ready nodes have the longest path ahead, counted in
partitions.  What runs alone is a partition whenever it runs, so it runs first.  Of two
EPs, where nothing runs alone, no cut has fewer partitions; of more, levels rarely have.

Time and memory grow linearly with nodes and edges, and nothing is recursive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.operators import dequantizes
from onnxplug.partition.assign import Assignment, Claim
from onnxplug.partition.contract import Contraction

if TYPE_CHECKING:
    from onnxplug.graph import Graph

_Edges: TypeAlias = "Mapping[int, Set[int]]"
_Colours: TypeAlias = "Mapping[int, int]"
"""Groups of one colour may share a partition: the position of their EP, and for what
runs alone a negative number that nothing else has."""


class Cut(Record):
    """A convex group of nodes that is run as one.

    Attributes:
        ep: position of the EP; ``None`` for a node that the host runs itself.
        nodes: indices, ascending.
        claims: the claims the nodes came from.
    """

    ep: int | None
    nodes: tuple[int, ...]
    claims: tuple[Claim, ...]

    @property
    def label(self) -> str:
        """The label of the claim, when all nodes are of one."""
        return self.claims[0].capability.label if len(self.claims) == 1 else ""

    @property
    def keeps_constants(self) -> bool:
        """Every claim lets the host drop constants after compilation."""
        return bool(self.claims) and all(
            claim.capability.keeps_constants for claim in self.claims
        )


def cut(graph: Graph, assignment: Assignment) -> list[Cut]:
    """The partitions of *graph*, in an order in which they can be executed."""
    contraction = Contraction(graph)
    claim_of: dict[int, Claim] = {}
    for claim in assignment.claims:
        for node in claim.nodes:
            claim_of[node] = claim
        if claim.capability.atomic and len(claim.nodes) > 1:
            whole = contraction.contract(claim.nodes)
            assert whole, "assign accepted a group that closes a cycle"
    for together in _with_weights(graph, assignment, claim_of):
        contraction.contract(together)
    colour: dict[int, int] = {}
    for group in contraction.members:
        ep = assignment.owner[group]
        if ep is None or claim_of[group].capability.atomic:
            colour[group] = ~group
        else:
            colour[group] = ep
    cuts = []
    for groups in _divide(contraction.order(), contraction.successors, colour):
        nodes = tuple(sorted(n for group in groups for n in contraction.members[group]))
        claims = {id(claim_of[n]): claim_of[n] for n in nodes if n in claim_of}
        cuts.append(Cut(assignment.owner[nodes[0]], nodes, tuple(claims.values())))
    _verify(contraction, cuts)
    return cuts


def _with_weights(
    graph: Graph, assignment: Assignment, claim_of: Mapping[int, Claim]
) -> Sequence[Set[int]]:
    """Nodes, each with those of quantised weights that it alone reads.

    An EP that has both is to see them together.  By themselves those could run at any
    time before, and would be in the EP's first partition.
    """
    if not any(map(dequantizes, graph.nodes)):
        return ()
    readers, outputs = graph.uses(), set(graph.outputs)
    # by the value that they make, nodes that only read constants and each other
    settled: dict[str, set[int]] = {}
    found: list[set[int]] = []
    for node in graph.nodes:
        index, read = node.index, [name for name in node.inputs if name]
        claim = claim_of.get(index)
        if claim is None or claim.capability.atomic or not read or node.captures:
            continue
        weights = [settled[name] for name in read if name in settled]
        own = {
            each
            for each in {index}.union(*weights)
            if assignment.owner[each] == assignment.owner[index]
        }
        if all(name in settled or graph.weight(name) is not None for name in read):
            name = node.outputs[0] or ""
            if len(readers.get(name, ())) == 1 and name not in outputs:
                settled[name] = own
        elif len(own) > 1:
            found.append(own)
    return found


def _divide(
    order: Sequence[int], successors: _Edges, colour: _Colours
) -> list[list[int]]:
    """The partitions, each as its groups; *order* is a topological one of all."""
    levels, partitions = _by_level(order, successors, colour)
    if len(partitions) > levels:
        ready = _by_readiness(order, successors, colour)
        if len(ready) < len(partitions):
            return ready
    return partitions


def _by_level(
    order: Sequence[int], successors: _Edges, colour: _Colours
) -> tuple[int, list[list[int]]]:
    """The number of levels, and the partitions; see the module."""
    level = dict.fromkeys(order, 0)
    gathered: dict[tuple[int, int], list[int]] = {}
    for group in order:
        own, kind = level[group], colour[group]
        gathered.setdefault((own, kind), []).append(group)
        for successor in successors[group]:
            level[successor] = max(level[successor], own + (kind != colour[successor]))
    # within a level in the order of the model
    keys = sorted(gathered, key=lambda key: (key[0], min(gathered[key])))
    return max(level.values(), default=-1) + 1, [gathered[key] for key in keys]


def _by_readiness(
    order: Sequence[int], successors: _Edges, colour: _Colours
) -> list[list[int]]:
    """The partitions; see the module."""
    ahead: dict[int, int] = {}  # partitions on the longest path from here
    waiting = dict.fromkeys(order, 0)
    for group in reversed(order):
        ahead[group] = 1
        for successor in successors[group]:
            waiting[successor] += 1
            step = colour[group] != colour[successor]
            ahead[group] = max(ahead[group], ahead[successor] + step)
    ready: dict[int, list[int]] = {}
    urgency: dict[int, tuple[int, int]] = {}  # longest path of the ready, and sum
    alone: deque[int] = deque()

    def release(group: int) -> None:
        kind = colour[group]
        if kind < 0:
            alone.append(group)
            return
        ready.setdefault(kind, []).append(group)
        longest, total = urgency.get(kind, (0, 0))
        urgency[kind] = max(longest, ahead[group]), total + ahead[group]

    for group in order:
        if waiting[group] == 0:
            release(group)
    partitions = []
    while alone or ready:
        if alone:
            stack = [alone.popleft()]
            kind = colour[stack[0]]
        else:
            # between equals, the EP that is preferred
            kind = max(ready, key=lambda ep: (urgency[ep], -ep))
            stack = ready.pop(kind)
            del urgency[kind]
        partition = []
        while stack:
            group = stack.pop()
            partition.append(group)
            for successor in successors[group]:
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    if colour[successor] == kind:
                        stack.append(successor)
                    else:
                        release(successor)
        partitions.append(partition)
    return partitions


def _verify(contraction: Contraction, cuts: list[Cut]) -> None:
    """Check the invariant that the rest of the runtime rests on."""
    place: dict[int, int] = {}
    for number, part in enumerate(cuts):
        for node in part.nodes:
            assert node not in place, f"node {node} is in two partitions"
            place[node] = number
    for group, successors in contraction.successors.items():
        for successor in successors:
            if place[group] > place[successor]:
                raise AssertionError(
                    f"the edge from node {group} to {successor} leads to an earlier "
                    "partition; partitions may wait for each other"
                )
