"""The error for nodes that nobody runs: who refused them, why, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug import domains
from onnxplug.authoring.nodes import describe
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.errors import UnassignedNode, UnknownOperator
from onnxplug.graph import Node
from onnxplug.operators import is_defined, why_unknown
from onnxplug.partition.placements import PassedOver
from onnxplug.prepare import why_not_expanded


def unassigned_error(
    request: GraphRequest,
    nodes: Sequence[Node],
    refusals: Mapping[Node, Sequence[PassedOver]],
) -> UnassignedNode:
    """The error for *nodes* that no EP takes, and that are no functions either.

    Args:
        refusals: why each EP passed each of them over.
    """
    graph = request.graph
    where = f" in {request.where}" if request.where else ""
    kind: type[UnassignedNode] = UnassignedNode
    lines = []
    for node in nodes[:5]:
        lines.append(f"no EP runs {describe(node)}{where}:")
        lines += [f"  {passed}" for passed in refusals[node]]
        if domains.find(graph, node) is None and not is_defined(node):
            kind = UnknownOperator
        unknown = why_unknown(node)
        if unknown:
            lines.append(f"  and {unknown}")
        if not graph.opset(node.domain):
            lines.append(
                f"  and the model imports no version of the domain "
                f"{node.domain or 'ai.onnx'!r}, which its opset_import should have"
            )
        reason = why_not_expanded(graph, node)
        if reason is not None:
            lines.append(f"  and {reason}")
    if len(nodes) > 5:
        lines.append(f"and {len(nodes) - 5} more nodes")
    refused = [each for each in request.explanation.expanded if each.refusals]
    for expanded in refused[:5]:
        lines.append(f"{expanded.node} was replaced by its function body, since:")
        lines += [f"  {passed}" for passed in expanded.refusals]
    return kind(
        "\n".join(lines),
        reasons={
            describe(node): [str(passed) for passed in refusals[node]] for node in nodes
        },
    )
