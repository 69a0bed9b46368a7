"""Gives every node to the first EP that claims it.

Each EP is asked in order of preference and answers for every node; what it says of
those that it does not get is kept.  An atomic group is given whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.ep import (
    CapabilityReport,
    ComputeCapability,
    ExecutionProvider,
    Reason,
    Refusal,
    RefusalCode,
)
from onnxplug.errors import EpError
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.partition.contract import Contraction
from onnxplug.partition.placements import PassedOver
from onnxplug.partition.report import GivenBack
from onnxplug.selection.choose import Veto, allow_all

if TYPE_CHECKING:
    from onnxplug.ep import Costs
    from onnxplug.graph import Graph, Node
    from onnxplug.partition.cache import CompiledCache
    from onnxplug.partition.pins import Pins
    from onnxplug.selection import ChosenEp


class Candidate(Record):
    """An EP of the session, as partitioning knows it.

    Attributes:
        name: the EP's name.
        device: the device it drives, in words.
        provider: the EP.
        costs: of its copies and nodes; ``None``: the defaults.
        veto: which nodes it is not to have whatever it claims.
        cache: what it compiled before, if it asked for that.
        pins: which nodes the user wants on which EP, if any.
    """

    name: str
    device: str
    provider: ExecutionProvider
    costs: Costs | None = None
    veto: Veto = allow_all
    cache: CompiledCache | None = None
    pins: Pins | None = None

    @classmethod
    def of(cls, ep: ChosenEp, pins: Pins | None = None) -> Candidate:
        """*ep* as partitioning knows it; *pins* forbid it nodes, too."""
        veto = ep.veto if pins is None else pins.veto(ep.name, ep.veto)
        costs = ep.devices[0].costs
        return cls(ep.name, ep.device, ep.provider, costs, veto, pins=pins)


class Claim(Record):
    """A group of nodes and the EP that is to run them."""

    ep: int
    nodes: tuple[int, ...]
    capability: ComputeCapability


class Assignment(Record):
    """Who runs which node of one graph.

    Attributes:
        owner: for each node the position of its EP, or ``None``.
        claims: the accepted claims, those of not atomic groups cut down to the nodes
            that were still free.
        passed_over: for each node, the EPs that were asked and do not run it.
        given_back: groups that were claimed and are not run by the EP.
        claimed: how many nodes each EP claimed, whoever has them.
    """

    owner: list[int | None]
    claims: list[Claim]
    passed_over: list[list[PassedOver]]
    given_back: list[GivenBack]
    claimed: list[int]

    @property
    def unassigned(self) -> list[int]:
        """Nodes that no EP runs."""
        return [node for node, ep in enumerate(self.owner) if ep is None]


GetReport: TypeAlias = "Callable[[Graph, Candidate], CapabilityReport]"

Exclusions: TypeAlias = "Mapping[tuple[int, Node], Reason]"
"""(EP, node) to why the EP is not to have the node although it claims it."""


def assign(
    graph: Graph,
    candidates: Sequence[Candidate],
    *,
    where: str = "",
    excluded: Exclusions | None = None,
    refused: Mapping[Node, Sequence[PassedOver]] | None = None,
    get_report: GetReport | None = None,
) -> Assignment:
    """Ask the *candidates* in order, and give each node to the first that claims it.

    Args:
        where: the way to the graph, for reports.
        refused: why EPs do not have nodes that the session does without.
        get_report: asks an EP; :func:`ask` if left out.

    Raises:
        EpError: an EP raised, or left a node neither claimed nor refused.
    """
    excluded = excluded or {}
    count = len(graph.nodes)
    get_report, refused = get_report or ask, refused or {}
    passed_over = [list(refused.get(node, ())) for node in graph.nodes]
    result = Assignment([None] * count, [], passed_over, [], [])
    contraction = Contraction(graph)
    graph.assignments.clear()
    for position, candidate in enumerate(candidates):
        if candidate.pins is not None:
            graph.assignments.clear()
            graph.assignments |= candidate.pins.elsewhere(graph, candidate.name)
            graph.assignments |= _owners(result, candidates)
        report = get_report(graph, candidate)
        result.claimed.append(sum(len(claim.nodes) for claim in report.claims))
        for refusal in report.refusals:
            _pass_over(result, refusal.node, candidate.name, refusal.reason)
        before = _Before(candidates[:position], get_report)
        for capability in report.claims:
            _settle(
                graph, candidates, position, capability, excluded, contraction,
                result, where, before,
            )  # fmt: skip
        graph.assignments |= _owners(result, candidates)
    return result


def _owners(result: Assignment, candidates: Sequence[Candidate]) -> dict[int, str]:
    """The names of the EPs that have nodes so far."""
    return {
        node: candidates[owner].name
        for node, owner in enumerate(result.owner)
        if owner is not None
    }


class _Before:
    """The EPs that are preferred to one, which may want nodes of bodies.

    Whoever takes control flow takes its bodies, with what others would run of them.
    """

    def __init__(self, candidates: Sequence[Candidate], get_report: GetReport) -> None:
        self._candidates = candidates
        self._get_report = get_report

    def wants(self, node: Node) -> Reason | None:
        """Why *node* is not to be given to the EP whole."""
        for body in node.subgraphs.values() if self._candidates else ():
            for candidate in self._candidates:
                if claimed_of(body, candidate, self._get_report(body, candidate)):
                    text = f"{candidate.name} is preferred for nodes of its bodies"
                    return Reason(RefusalCode.TAKEN, text)
            for inner in body.nodes:
                reason = self.wants(inner)
                if reason is not None:
                    return reason
        return None


def ask(graph: Graph, candidate: Candidate) -> CapabilityReport:
    """What *candidate* says of *graph*, checked: each node exactly once.

    Raises:
        EpError: it raised, or the report is not complete.
    """
    try:
        report = candidate.provider.get_capability(graph)
        if not isinstance(report, CapabilityReport):
            raise TypeError(
                f"it returned a {type(report).__name__}; expected a CapabilityReport"
            )
    except FAILURES as error:
        raise ep_failure(candidate.name, "get_capability", error) from error
    for answer, kind in (
        *((claim, ComputeCapability) for claim in report.claims),
        *((refusal, Refusal) for refusal in report.refusals),
    ):
        if not isinstance(answer, kind):
            raise _contract_broken(
                candidate, f"{answer!r} is in its report; expected a {kind.__name__}"
            )
    for refusal in report.refusals:
        reason = refusal.reason
        if not isinstance(reason, Reason) or not isinstance(reason.code, RefusalCode):
            raise _contract_broken(
                candidate,
                f"it refused node {refusal.node} with {reason!r}; expected a Reason of "
                "a RefusalCode and a text",
            )
    answers = [0] * len(graph.nodes)
    named = [node for claim in report.claims for node in claim.nodes]
    named += [refusal.node for refusal in report.refusals]
    for node in named:
        if not isinstance(node, int) or not 0 <= node < len(answers):
            raise _contract_broken(
                candidate,
                f"it named node {node!r} of a graph of {len(answers)} nodes",
            )
        answers[node] += 1
    for node, times in enumerate(answers):
        if times != 1:
            raise _contract_broken(
                candidate,
                f"{describe(graph.nodes[node])} is in {times} claims and refusals, "
                "and must be in exactly one",
            )
    return report


def claimed(graph: Graph, candidate: Candidate) -> set[Node]:
    """The nodes of *graph* that *candidate* claims, and may have.

    Raises:
        EpError: as :func:`ask`.
    """
    graph.assignments.clear()
    return claimed_of(graph, candidate, ask(graph, candidate))


def claimed_of(
    graph: Graph, candidate: Candidate, report: CapabilityReport
) -> set[Node]:
    """The nodes of *graph* that *candidate* claims in its *report*, and may have."""
    nodes = (graph.nodes[index] for claim in report.claims for index in claim.nodes)
    return {node for node in nodes if candidate.veto(graph, node) is None}


def _contract_broken(candidate: Candidate, what: str) -> EpError:
    return EpError(
        f"{candidate.name} broke the contract of get_capability: {what}",
        ep=candidate.name,
        stage="get_capability",
    )


def _pass_over(result: Assignment, node: int, ep: str, reason: Reason) -> None:
    result.passed_over[node].append(PassedOver(ep, reason))


def _settle(
    graph: Graph,
    candidates: Sequence[Candidate],
    position: int,
    capability: ComputeCapability,
    excluded: Exclusions,
    contraction: Contraction,
    result: Assignment,
    where: str,
    before: _Before,
) -> None:
    """Give the nodes of one claim to the EP at *position*, as far as they are free."""
    name, veto = candidates[position].name, candidates[position].veto
    free: list[int] = []
    obstacles: dict[int, Reason] = {}
    for node in sorted(capability.nodes):
        owner = result.owner[node]
        exclusion = excluded.get((position, graph.nodes[node]))
        if exclusion is None:
            exclusion = veto(graph, graph.nodes[node])
        if exclusion is None and owner is None:
            exclusion = before.wants(graph.nodes[node])
        if exclusion is not None:
            obstacles[node] = exclusion
        elif owner is not None:
            obstacles[node] = Reason(
                RefusalCode.TAKEN, f"{candidates[owner].name} is preferred"
            )
        else:
            free.append(node)
    if capability.atomic:
        reason = next(iter(obstacles.values()), None)
        if reason is None and not contraction.contract(free):
            reason = Reason(
                RefusalCode.NOT_CONVEX,
                "a path leaves the group and comes back to it",
            )
        if reason is not None:
            for node in capability.nodes:
                _pass_over(result, node, name, obstacles.get(node, reason))
            nodes = tuple(describe(graph.nodes[node]) for node in capability.nodes)
            result.given_back.append(GivenBack(where, name, nodes, reason))
            return
    for node, reason in obstacles.items():
        _pass_over(result, node, name, reason)
    for node in free:
        result.owner[node] = position
    if free:
        result.claims.append(Claim(position, tuple(free), capability))
