"""Reports how a graph was divided, in the numbers by which its code goes, too."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.nodes import describe
from onnxplug.compile.decisions import Decisions
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.guard import blaming
from onnxplug.partition import Assignment, Cut
from onnxplug.partition.placements import NodePlacement
from onnxplug.partition.report import GivenBack, PartitionPlacement, Places
from onnxplug.run.compiled import CompiledUnit

if TYPE_CHECKING:
    from onnxplug.ep import PartitionReport
    from onnxplug.graph import Node


def numbered(units: Sequence[CompiledUnit], first: int) -> list[CompiledUnit]:
    """*units* with the numbers of their partitions, from *first* on."""
    numbers = itertools.count(first)
    return [
        unit if unit.candidate is None else unit._replace(number=next(numbers))
        for unit in units
    ]


def report(
    request: GraphRequest,
    decisions: Decisions,
    assignment: Assignment,
    cuts: Sequence[Cut],
    units: Sequence[CompiledUnit],
    cached: Mapping[int, str],
) -> None:
    """Note in the explanation who runs what.

    Args:
        units: those of *cuts*, numbered.
        cached: what was done with the cache, by the identity of what was compiled.
    """
    graph, candidates = request.graph, request.candidates
    explanation = request.explanation
    for candidate, count in zip(candidates, assignment.claimed, strict=True):
        explanation.claimed[candidate.name] += count
    explanation.given_back.extend(
        GivenBack(
            request.where,
            candidates[position].name,
            tuple(describe(node) for node in nodes),
            reason,
        )
        for position, nodes, reason in decisions.given_back
    )
    explanation.given_back.extend(assignment.given_back)
    number_of: dict[int, int] = {}
    first = len(explanation.nodes)
    places = {node: first + n for n, node in enumerate(graph.nodes)}
    for part, unit in zip(cuts, units, strict=True):
        if unit.candidate is None or unit.compiled is None:
            continue
        number_of |= dict.fromkeys(part.nodes, unit.number)
        explanation.partitions.append(
            PartitionPlacement(
                number=unit.number,
                graph=request.where,
                ep=unit.candidate.name,
                device=unit.candidate.device,
                nodes=len(part.nodes),
                operators=dict(Counter(n.op_type for n in unit.partition.nodes)),
                tiers={},  # as refresh() finds them
                inputs=unit.partition.inputs,
                outputs=unit.partition.outputs,
                label=part.label,
                serialised=unit.compiled.max_concurrent_runs is not None,
                cache=cached.get(id(unit.compiled), ""),
                origin=unit.partition.origin,
            )
        )
    for node in graph.nodes:
        owner = assignment.owner[node.index]
        explanation.nodes.append(
            NodePlacement(  # by position, as there is one for each node
                request.where,
                describe(node),
                node.op_type,
                node.domain,
                node.name,
                "host" if owner is None else candidates[owner].name,
                number_of.get(node.index, -1),
                tuple(assignment.passed_over[node.index]),
                "",  # the tier and the note, as refresh() finds them
                "",
                request.pins.in_words(node) if request.pins is not None else "",
            )
        )
    explanation.read_later(graph, first)
    for unit in units:
        if unit.candidate is not None and unit.compiled is not None:
            own = [places[node] for node in unit.partition.nodes]
            bodies = _bodies(request, unit)
            explanation.ask_again(unit.number, unit.compiled, Places(own, bodies))


def _bodies(request: GraphRequest, unit: CompiledUnit) -> dict[int, dict[str, Places]]:
    """Note the nodes of bodies that the EP of a unit says something of; their places
    by the position of the node of control flow, and the attribute."""
    assert unit.candidate is not None and unit.compiled is not None
    nodes = unit.partition.nodes
    if not any(node.subgraphs for node in nodes):
        return {}
    with blaming(unit.candidate.name, "explain"):
        said = unit.compiled.report
        bodies = {} if said is None else said.bodies
        return {
            position: {
                attribute: _body(
                    request, unit, nodes[position], attribute, body, request.where
                )
                for attribute, body in of_node.items()
            }
            for position, of_node in bodies.items()
        }


def _body(
    request: GraphRequest,
    unit: CompiledUnit,
    node: Node,
    attribute: str,
    said: PartitionReport,
    where: str,
) -> Places:
    """Note the nodes of a body, and of those within."""
    assert unit.candidate is not None
    way = f"{describe(node)}.{attribute}"
    way = f"{where}/{way}" if where else way
    graph = node.subgraphs[attribute]
    nodes = graph.nodes
    explanation, pins = request.explanation, request.pins
    first = len(explanation.nodes)
    explanation.read_later(graph, first)
    explanation.nodes.extend(
        NodePlacement(
            way,
            describe(inner),
            inner.op_type,
            inner.domain,
            inner.name,
            unit.candidate.name,
            unit.number,
            pin=pins.in_words(inner) if pins is not None else "",
        )
        for inner in nodes
    )
    within = {
        position: {
            name: _body(request, unit, nodes[position], name, body, way)
            for name, body in of_node.items()
        }
        for position, of_node in said.bodies.items()
    }
    return Places(range(first, first + len(nodes)), within)
