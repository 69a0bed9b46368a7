"""Finds partitions that are not worth the copies to and from their memory.

The estimate is coarse on purpose: a constant per copy and byte, a constant per node.
An EP's device can override each constant in its metadata (in microseconds):
``copy_cost_us``, ``copy_cost_us_per_mib``, ``node_gain_us``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.ep import Reason, RefusalCode
from onnxplug.graph.size import value_nbytes
from onnxplug.operators import COMPUTE_INTENSIVE
from onnxplug.run.partition.assign import Assignment, Candidate
from onnxplug.run.partition.cut import Cut

if TYPE_CHECKING:
    from onnxplug.graph import Graph, Node

_DEFAULTS: Final = {
    "copy_cost_us": 15.0,
    "copy_cost_us_per_mib": 100.0,
    "node_gain_us": 20.0,
}

_INTENSIVE_FACTOR: Final = 20
"""How many times another node's gain a compute-intensive one is worth."""


def find_unprofitable(
    graph: Graph,
    assignment: Assignment,
    cuts: Sequence[Cut],
    candidates: Sequence[Candidate],
) -> dict[tuple[int, Node], Reason]:
    """(EP, node) of partitions to give back to the next EP that claims them, and why.

    Only copies to and from other partitions are counted: those of the model's own
    inputs and outputs are what choosing the EP means.
    """
    producers = graph.producers()
    uses = graph.uses()
    owner = assignment.owner
    given_back: dict[tuple[int, Node], Reason] = {}
    for part in cuts:
        if part.ep is None or not _has_alternative(assignment, part):
            continue
        candidate = candidates[part.ep]
        if candidate.provider.location.host_accessible:
            continue
        crossing = _crossing(graph, part, producers, uses, owner)
        costs = {
            name: _constant(candidate.costs, name, default)
            for name, default in _DEFAULTS.items()
        }
        size = sum(value_nbytes(graph.value(name)) or 0 for name in crossing) / 2**20
        cost = len(crossing) * costs["copy_cost_us"]
        cost += size * costs["copy_cost_us_per_mib"]
        gain = costs["node_gain_us"] * sum(
            _INTENSIVE_FACTOR if graph.nodes[node].op_type in COMPUTE_INTENSIVE else 1
            for node in part.nodes
        )
        if cost > gain:
            reason = Reason(
                RefusalCode.COST,
                f"{len(crossing)} copies of {size:.3g} MiB cost about {cost:.0f} µs, "
                f"and its {len(part.nodes)} nodes gain about {gain:.0f} µs",
            )
            given_back |= {(part.ep, graph.nodes[node]): reason for node in part.nodes}
    return given_back


def _has_alternative(assignment: Assignment, part: Cut) -> bool:
    return all(
        any(
            passed.reason.code is RefusalCode.TAKEN
            for passed in assignment.passed_over[node]
        )
        for node in part.nodes
    )


def _crossing(
    graph: Graph,
    part: Cut,
    producers: Mapping[str, Node],
    uses: Mapping[str, Sequence[Node]],
    owner: Sequence[int | None],
) -> set[str]:
    members = set(part.nodes)
    crossing: set[str] = set()
    for index in part.nodes:
        node = graph.nodes[index]
        for name in filter(None, (*node.inputs, *node.captures)):
            source = producers.get(name)
            if source is not None and owner[source.index] != part.ep:
                crossing.add(name)
        for name in filter(None, node.outputs):
            if any(
                user.index not in members and owner[user.index] != part.ep
                for user in uses.get(name, ())
            ):
                crossing.add(name)
    return crossing


def _constant(costs: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(costs[name])
    except (KeyError, ValueError):
        return default
