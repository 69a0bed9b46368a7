"""Cuts an assigned graph into convex partitions.

A node's level is the largest number of changes of EP on any path to it.  Nodes of one
EP and one level form a partition; an edge between two partitions then always goes to
a higher level, so that partitions cannot wait for each other in a circle.  Time and
memory grow linearly with nodes and edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.ep.record import Record
from onnxplug.run.partition.assign import Assignment, Claim
from onnxplug.run.partition.contract import Contraction

if TYPE_CHECKING:
    from onnxplug.graph import Graph


class Cut(Record):
    """A convex group of nodes that is run as one.

    Attributes:
        ep: position of the EP; ``None`` for a node that the host runs itself.
        nodes: indices, ascending.
        level: see the module.
        claims: the claims the nodes came from.
    """

    ep: int | None
    nodes: tuple[int, ...]
    level: int
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
    colour: dict[int, object] = {}
    for group in contraction.members:
        ep = assignment.owner[group]
        alone = ep is None or claim_of[group].capability.atomic
        # what is run alone merges with nothing: a colour of its own
        colour[group] = (ep, group) if alone else (ep, None)
    level = dict.fromkeys(contraction.members, 0)
    for group in contraction.order():
        for successor in contraction.successors[group]:
            step = colour[group] != colour[successor]
            level[successor] = max(level[successor], level[group] + step)
    gathered: dict[tuple[int, object], list[int]] = {}
    for group, members in contraction.members.items():
        gathered.setdefault((level[group], colour[group]), []).extend(members)
    cuts = []
    for (depth, _), members in gathered.items():
        nodes = tuple(sorted(members))
        claims = {id(claim_of[n]): claim_of[n] for n in nodes if n in claim_of}
        ep = assignment.owner[nodes[0]]
        cuts.append(Cut(ep, nodes, depth, tuple(claims.values())))
    cuts.sort(key=lambda part: (part.level, part.nodes[0]))
    _verify(contraction, cuts)
    return cuts


def _verify(contraction: Contraction, cuts: list[Cut]) -> None:
    """Check the invariant that the rest of the runtime rests on."""
    level: dict[int, tuple[int, int]] = {}
    for number, part in enumerate(cuts):
        for node in part.nodes:
            assert node not in level, f"node {node} is in two partitions"
            level[node] = (number, part.level)
    for group, successors in contraction.successors.items():
        for successor in successors:
            source, target = level[group], level[successor]
            if source[0] != target[0] and source[1] >= target[1]:
                raise AssertionError(
                    f"the edge from node {group} to {successor} does not go to a "
                    "higher level; partitions may wait for each other"
                )
