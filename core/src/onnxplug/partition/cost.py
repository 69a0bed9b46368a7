"""Finds partitions that are not worth the copies to and from their memory.

What an EP estimates counts where all concerned do; otherwise the estimate is coarse on
purpose: so much for each copy and byte, and so much for each node (see ``ep.Costs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.duration import duration, is_duration
from onnxplug.ep import Costs, Reason, RefusalCode
from onnxplug.errors import EpError
from onnxplug.graph.size import value_nbytes
from onnxplug.guard import blaming
from onnxplug.partition.assign import Assignment, Candidate
from onnxplug.partition.cut import Cut

if TYPE_CHECKING:
    from onnxplug.graph import Graph, Node

_INTENSIVE: Final = having("intensive") | having("control_flow")

_INTENSIVE_FACTOR: Final = 20
"""How many times another node's gain a compute-intensive one is worth."""


class _Gain(Record):
    """By how many seconds nodes are done sooner; *detail* is for people."""

    seconds: float
    detail: str = ""


def find_unprofitable(
    graph: Graph,
    assignment: Assignment,
    cuts: Sequence[Cut],
    candidates: Sequence[Candidate],
    *,
    by_estimates: bool = False,
) -> dict[tuple[int, Node], Reason]:
    """(EP, node) of partitions to give back to the next EP that claims them, and why.

    Only copies to and from other partitions are counted: those of the model's own
    inputs and outputs are what choosing the EP means.  So without any, a partition
    stays where it is, whatever EPs estimate.

    Args:
        by_estimates: nobody has chosen the EPs, and a partition on the host's memory
            goes to the next EP if it takes less time there, as all concerned say.

    Raises:
        EpError: an EP failed to estimate, or gave what is no duration.
    """
    producers = graph.producers()
    uses = graph.uses()
    owner = assignment.owner
    given_back: dict[tuple[int, Node], Reason] = {}
    for part in cuts:
        if part.ep is None:
            continue
        if candidates[part.ep].provider.location.host_accessible:
            if by_estimates:
                given_back |= _slower(graph, part, assignment, candidates)
            continue
        others = _alternatives(assignment, part, candidates)
        crossing = _crossing(graph, part, producers, uses, owner)
        if others is None or not crossing:
            continue
        costs = candidates[part.ep].costs or Costs()
        nbytes = sum(value_nbytes(graph.value(name)) or 0 for name in crossing)
        cost = len(crossing) * costs.seconds_per_copy + nbytes * costs.seconds_per_byte
        gain = _estimated(graph, part, others, candidates)
        if gain is None:
            gain = _coarse(graph, part, costs)
        if cost > gain.seconds:
            reason = Reason(
                RefusalCode.COST,
                f"{len(crossing)} copies of {nbytes / 2**20:.3g} MiB cost about "
                f"{duration(cost)}, and its {len(part.nodes)} nodes gain "
                f"{_amount(gain.seconds)}{gain.detail}",
            )
            given_back |= {(part.ep, graph.nodes[node]): reason for node in part.nodes}
    return given_back


def _slower(
    graph: Graph, part: Cut, assignment: Assignment, candidates: Sequence[Candidate]
) -> dict[tuple[int, Node], Reason]:
    """The nodes of *part* if they take less time on the EPs that would have them."""
    assert part.ep is not None
    if candidates[part.ep].provider.cost_model is None:
        return {}
    others = _alternatives(assignment, part, candidates)
    if others is None:
        return {}
    if any(
        not candidates[position].provider.location.host_accessible
        for position in others
    ):
        return {}
    gain = _estimated(graph, part, others, candidates)
    if gain is None or gain.seconds >= 0:
        return {}
    reason = Reason(
        RefusalCode.COST,
        f"its {len(part.nodes)} nodes are estimated to be faster elsewhere"
        f"{gain.detail}",
    )
    return {(part.ep, graph.nodes[node]): reason for node in part.nodes}


def _amount(gained: float) -> str:
    return f"about {duration(gained)}" if gained > 0 else "nothing"


def _alternatives(
    assignment: Assignment, part: Cut, candidates: Sequence[Candidate]
) -> dict[int, list[int]] | None:
    """The EPs that would have the nodes instead, with these; ``None``: not all."""
    others: dict[int, list[int]] = {}
    places = {candidate.name: place for place, candidate in enumerate(candidates)}
    for node in part.nodes:
        for passed in assignment.passed_over[node]:
            # what is passed over may be gone: a policy's EP that would run nothing
            if passed.reason.code is RefusalCode.TAKEN and passed.ep in places:
                others.setdefault(places[passed.ep], []).append(node)
                break
        else:
            return None
    return others


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


def _estimated(
    graph: Graph,
    part: Cut,
    others: Mapping[int, Sequence[int]],
    candidates: Sequence[Candidate],
) -> _Gain | None:
    """What the EPs say that is gained; ``None`` unless all of them do."""
    assert part.ep is not None
    here = _ask(graph, candidates[part.ep], part.nodes)
    if here is None:
        return None
    there = 0.0
    for position, nodes in others.items():
        seconds = _ask(graph, candidates[position], nodes)
        if seconds is None:
            return None
        there += seconds
    names = ", ".join(candidates[position].name for position in others)
    detail = f" ({duration(here)} here, {duration(there)} on {names})"
    return _Gain(there - here, detail)


def _ask(graph: Graph, candidate: Candidate, nodes: Sequence[int]) -> float | None:
    """How long the EP says that *nodes* take."""
    model = candidate.provider.cost_model
    if model is None:
        return None
    with blaming(candidate.name, "estimate"):
        seconds = model.estimate(graph, tuple(graph.nodes[node] for node in nodes))
    if seconds is not None and not is_duration(seconds):
        raise EpError(
            f"{candidate.name} estimated that {len(nodes)} nodes take {seconds!r}; "
            "expected a finite number of seconds, not less than 0, or None",
            ep=candidate.name,
            stage="estimate",
        )
    return seconds


def _coarse(graph: Graph, part: Cut, costs: Costs) -> _Gain:
    weight = sum(
        _INTENSIVE_FACTOR if graph.nodes[node].op_type in _INTENSIVE else 1
        for node in part.nodes
    )
    return _Gain(weight * costs.seconds_gained_per_node)
