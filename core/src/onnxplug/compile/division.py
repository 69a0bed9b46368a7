"""Divides a graph over EPs: who gets each node, and in which partitions.

It goes by passes, until nothing changes: (1) nodes are assigned, in the form that their
EPs prefer; (2) nodes that were given back and that no other EP takes are kept after
all, and (3) functions that nobody takes are replaced by their bodies, each time with
(1) anew; (4) the graph is cut; (5) partitions that are not worth their copies are given
back, with (1) anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.nodes import describe
from onnxplug.compile.decisions import Claim, Decisions
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.ep import Reason
from onnxplug.errors import ModelError, UnassignedNode, UnsupportedModel
from onnxplug.graph import Graph
from onnxplug.operators import is_control_flow
from onnxplug.partition import (
    Assignment,
    Candidate,
    Cut,
    assign,
    cut,
    find_unprofitable,
)
from onnxplug.partition.assign import ask
from onnxplug.partition.preferences import Preferred
from onnxplug.partition.report import Expanded
from onnxplug.run.profiling import stage

if TYPE_CHECKING:
    from onnxplug.ep import CapabilityReport

_DEEPEST: Final = 64
"""How often what came of functions may be replaced by functions again."""


class Division:
    """The division of one graph, which partitions that EPs decline make go on.

    Attributes:
        decisions: those of all passes so far.
    """

    def __init__(self, request: GraphRequest) -> None:
        self.decisions = Decisions()
        self._request = request
        self._expansions = 0

    def divide(self, preferred: Preferred) -> tuple[Assignment, list[Cut]]:
        """Who gets each node, and the partitions.

        Args:
            preferred: assigns nodes by :meth:`assigned`, in the form that EPs prefer.

        Raises:
            LoadCancelled: the session's options say so.
            UnassignedNode, UnsupportedModel: some node cannot be run.
            EpError: an EP failed.
        """
        graph = self._request.graph
        while True:
            assignment = preferred.assigned()
            cuts = cut(graph, assignment)
            decided = self.decisions.find_unprofitable(
                find_unprofitable(
                    graph,
                    assignment,
                    cuts,
                    self._request.candidates,
                    by_estimates=self._request.by_estimates,
                )
            )
            if decided is None:
                return assignment, cuts
            self.decisions = decided

    def give_back(self, claims: Mapping[Claim, Reason]) -> None:
        """Give other EPs what an EP declined to compile."""
        self.decisions = self.decisions.give_back(claims)

    def assigned(self) -> Assignment:
        """All nodes assigned, functions expanded where no EP takes them.

        Raises:
            UnassignedNode, UnsupportedModel: some node cannot be.
        """
        expansions = self._expansions
        graph = self._request.graph
        try:
            while True:
                self._request.options.check_load()
                assignment = self._assign()
                unassigned = {graph.nodes[index] for index in assignment.unassigned}
                decided = self.decisions.keep_after_all(unassigned)
                if decided is not None:
                    self.decisions = decided
                    continue
                self._check_required(assignment)
                if not self._expanded(assignment):
                    return assignment
        except (ModelError, UnassignedNode):
            self._expansions = expansions  # who asked for them takes them back
            raise

    def _assign(self) -> Assignment:
        request, answers = self._request, self._request.answers
        if request.restorer is not None:
            request.restorer.require_eps(request.graph)
        with stage(request.profile, "assign nodes", {"graph": request.where}):
            assignment = assign(
                request.graph,
                request.candidates,
                where=request.where,
                excluded=self.decisions.excluded,
                refused=answers.refused if answers is not None else None,
                get_report=self._report_of,
            )
        if answers is not None:
            answers.forget()  # EPs are asked again when nodes have gone elsewhere
        return assignment

    def _report_of(self, graph: Graph, candidate: Candidate) -> CapabilityReport:
        answers, restorer = self._request.answers, self._request.restorer
        report = (ask if answers is None else answers.ask)(graph, candidate)
        return report if restorer is None else restorer.claims(graph, candidate, report)

    def _check_required(self, assignment: Assignment) -> None:
        """Check that nodes are with the EPs that have to run them."""
        request = self._request
        if request.pins is None:
            return
        names = [each.name for each in request.candidates]
        owners = ["" if ep is None else names[ep] for ep in assignment.owner]
        unmet = request.pins.required(request.graph, owners)
        if unmet:
            from onnxplug.compile.unmet import unmet_error  # seldom needed

            raise unmet_error(request, assignment, unmet, self._report_of)

    def _expanded(self, assignment: Assignment) -> bool:
        """Expand the functions among the unassigned nodes, if there are any."""
        request, graph = self._request, self._request.graph
        nodes = [
            graph.nodes[index]
            for index in assignment.unassigned
            if not is_control_flow(graph.nodes[index])
        ]
        if not nodes:
            return False
        refusals = {node: tuple(assignment.passed_over[node.index]) for node in nodes}
        self._expansions += 1
        if self._expansions > _DEEPEST:
            raise UnsupportedModel(
                f"{describe(nodes[0])} came of operators whose functions are made of "
                f"each other, more than {_DEEPEST} deep, which is onnxplug's limit; "
                "does a function call itself?"
            )
        if not request.changes.expand(graph, nodes):
            from onnxplug.compile.unassigned import unassigned_error  # seldom needed

            raise unassigned_error(request, nodes, refusals)
        left = set(graph.nodes)
        request.explanation.expanded.extend(
            Expanded(request.where, describe(node), refusals[node])
            for node in nodes
            if node not in left
        )
        return True
