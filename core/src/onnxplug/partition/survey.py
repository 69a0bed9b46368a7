"""What EPs claim of a prepared model, bodies of control flow included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnxplug.operators import is_control_flow
from onnxplug.partition.assign import (
    Assignment,
    Candidate,
    GetReport,
    ask,
    assign,
)

if TYPE_CHECKING:
    from onnxplug.ep import CapabilityReport
    from onnxplug.graph import Graph, Node
    from onnxplug.partition.placements import PassedOver


class Answers:
    """What EPs said of the graphs of a model, as long as these do not change.

    Attributes:
        refused: of EPs that the session does without, why not, by node.
    """

    def __init__(self) -> None:
        self.refused: dict[Node, list[PassedOver]] = {}
        # the nodes as they were when the EP was asked
        self._reports: dict[tuple[str, Graph], tuple[list[Node], CapabilityReport]] = {}

    def ask(self, graph: Graph, candidate: Candidate) -> CapabilityReport:
        """What the EP says of *graph*; it is asked once.

        Raises:
            EpError: it raised, or the report is not complete.
        """
        key = candidate.name, graph
        nodes, report = self._reports.get(key, (None, None))
        if report is None or nodes != graph.nodes:
            report = ask(graph, candidate)
            self._reports[key] = [*graph.nodes], report
        return report

    def forget(self) -> None:
        """Forget the reports, as values have changed, or who is asked before."""
        self._reports.clear()

    def do_without(self, ep: str, refusals: Iterable[tuple[Node, PassedOver]]) -> None:
        """Forget what *ep* said but for its refusals."""
        self._reports = {key: it for key, it in self._reports.items() if key[0] != ep}
        for node, passed in refusals:
            self.refused.setdefault(node, []).append(passed)

    def ask_again(self, ep: str) -> None:
        """Forget the refusals of *ep*, which is tried again."""
        for node, passed in self.refused.items():
            self.refused[node] = [each for each in passed if each.ep != ep]


class Survey:
    """Who would run which nodes of a graph and of the bodies within.

    Of control flow that nobody takes the bodies count, which the host runs then, and
    not the node.

    Attributes:
        left: how many nodes none of the EPs would run.
    """

    def __init__(
        self, graph: Graph, candidates: Sequence[Candidate], get_report: GetReport
    ) -> None:
        self.left = 0
        self._parts: list[tuple[Graph, Assignment]] = []
        self._assign(graph, candidates, get_report)

    def _assign(
        self, graph: Graph, candidates: Sequence[Candidate], get_report: GetReport
    ) -> None:
        assignment = assign(graph, candidates, get_report=get_report)
        self._parts.append((graph, assignment))
        for index in assignment.unassigned:
            node = graph.nodes[index]
            if is_control_flow(node):
                for body in node.subgraphs.values():
                    self._assign(body, candidates, get_report)
            else:
                self.left += 1

    @property
    def parts(self) -> Sequence[tuple[Graph, Assignment]]:
        """The graphs, each with who would run which nodes."""
        return self._parts

    def owned(self, position: int) -> int:
        """How many nodes the EP at *position* would run."""
        return sum(part.owner.count(position) for _, part in self._parts)

    def claimed(self, position: int) -> int:
        """How many it claims, whoever would run them."""
        return sum(part.claimed[position] for _, part in self._parts)

    def refusals(self, ep: str) -> Iterator[tuple[Node, PassedOver]]:
        """Nodes that the EP *ep* would not run, and why."""
        for graph, part in self._parts:
            for node, passed in zip(graph.nodes, part.passed_over, strict=True):
                yield from ((node, each) for each in passed if each.ep == ep)


def count_nodes(graph: Graph) -> int:
    """How many nodes *graph* and the bodies within have, as :class:`Survey` counts."""
    return sum(
        sum(map(count_nodes, node.subgraphs.values())) if is_control_flow(node) else 1
        for node in graph.nodes
    )
