"""Compiles a graph: divide it over EPs, and ask each to compile its partitions.

An EP that declines a partition, or whose partition is not worth its copies, loses the
nodes to the next EP that claims them, and the graph is divided anew.
"""

from __future__ import annotations

from onnxplug.authoring.nodes import describe
from onnxplug.compile.division import Division
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.compile.partitions import Partitions
from onnxplug.compile.report import numbered, report
from onnxplug.guard import close_after, close_all
from onnxplug.partition.preferences import Preferred
from onnxplug.run.compiled import CompiledGraph, CompiledUnit


def compile_graph(request: GraphRequest) -> CompiledGraph:
    """Compile a graph and the bodies within, noting each decision in the explanation.

    Raises:
        LoadCancelled: the session's options say so.
        UnassignedNode: no EP runs some node, and it is not a function either.
        EpError: an EP failed in ``get_capability`` or ``compile``.
        SessionRefused: an EP does not want the session to exist.
    """
    division, partitions = Division(request), Partitions(request)
    preferred = Preferred(
        request.graph,
        request.candidates,
        request.explanation,
        request.changes,
        division.assigned,
        request.where,
    )
    units: list[CompiledUnit] = []
    compiled = CompiledGraph(request.graph, units, request.where)
    try:
        units += _compiled_units(request, division, preferred, partitions)
        for unit in units:
            if unit.candidate is None:
                _compile_bodies(request, unit)
    except BaseException as error:
        # whoever goes on without the EP that failed needs what it rewrote
        preferred.undo(f"{type(error).__name__}: {error}")
        close_after(error, lambda: close_all(compiled.closers()))
        close_after(error, lambda: partitions.close_unused(units))
        raise
    try:
        partitions.close_unused(units)
    except BaseException as error:
        close_after(error, lambda: close_all(compiled.closers()))
        raise
    return compiled


def _compiled_units(
    request: GraphRequest,
    division: Division,
    preferred: Preferred,
    partitions: Partitions,
) -> list[CompiledUnit]:
    """The units of the graph, numbered and reported."""
    while True:
        assignment, cuts = division.divide(preferred)
        units, declined = partitions.compile(cuts, division.decisions.excluded)
        if not declined:
            break
        division.give_back(declined)
    units = numbered(units, len(request.explanation.partitions))
    report(request, division.decisions, assignment, cuts, units, partitions.cached)
    return units


def _compile_bodies(request: GraphRequest, unit: CompiledUnit) -> None:
    node = unit.partition.nodes[0]
    for attribute, body in node.subgraphs.items():
        where = f"{describe(node)}.{attribute}"
        if request.where:
            where = f"{request.where}/{where}"
        unit.bodies[attribute] = compile_graph(
            request._replace(graph=body, where=where)
        )
