"""The error for nodes that the EP does not run that has to: which, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.nodes import describe
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.errors import UnassignedNode
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import outermost
from onnxplug.partition.assign import Assignment, GetReport
from onnxplug.partition.placements import PassedOver
from onnxplug.partition.survey import Survey

if TYPE_CHECKING:
    from onnxplug.partition.pins import Pin


def unmet_error(
    request: GraphRequest,
    assignment: Assignment,
    unmet: Mapping[Node, Pin],
    get_report: GetReport,
) -> UnassignedNode:
    """The error for *unmet* nodes of a graph, and those of all graphs of its model.

    Args:
        assignment: of the nodes of the graph.
        unmet: nodes that others have than the EP that their pin requires.
        get_report: asks an EP of another graph.
    """
    found = [(request.graph, assignment, unmet)]
    found += _elsewhere(request, get_report)
    lines, reasons = [], {}
    for graph, asked, nodes in found:
        where = "" if graph.parent is None else f" in the body {graph.name!r}"
        for node, pin in nodes.items():
            said = _said(asked.passed_over[node.index], pin.ep)
            reasons[describe(node)] = said
            lines.append(f"{describe(node)}{where} is not run by {pin.ep} ({pin}):")
            lines += [f"  {reason}" for reason in said]
    return UnassignedNode(
        "nodes are not run by the EP that has to run them; let them run elsewhere "
        "(session.place, or leave the pin out), or change what the EP refuses:\n"
        + "\n".join(lines),
        reasons=reasons,
    )


def _elsewhere(
    request: GraphRequest, get_report: GetReport
) -> Iterator[tuple[Graph, Assignment, Mapping[Node, Pin]]]:
    """The same of the model's other graphs, as EPs would have them now."""
    assert request.pins is not None
    names = [each.name for each in request.candidates]
    survey = Survey(outermost(request.graph), request.candidates, get_report)
    for graph, assignment in survey.parts:
        if graph is not request.graph:
            owners = ["" if ep is None else names[ep] for ep in assignment.owner]
            unmet = request.pins.required(graph, owners)
            yield graph, assignment, unmet


def _said(passed_over: Sequence[PassedOver], ep: str) -> list[str]:
    """Why the EP has a node not, in all its words."""
    said = [str(passed.reason) for passed in passed_over if passed.ep == ep]
    return said or ["it was not asked"]
