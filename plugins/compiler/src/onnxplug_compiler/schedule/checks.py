"""Errors that a run may find, said of the node of the model that they are of."""

from __future__ import annotations

from collections.abc import Mapping

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_compiler.ir.buffers import Check


def of_node(check: Check, nodes: Mapping[int, ep.Node]) -> Check:
    """*check* with an ``ep.NodeError`` that names the node, and has the error itself as
    its cause.

    Args:
        nodes: the graph's, by index; if none of them is what the check is of, it stays
            as it is.
    """
    node = next((nodes[index] for index in check.nodes if index in nodes), None)
    if node is None:
        return check

    def error(found: int) -> Exception:
        cause = check.error(found)
        failure = ep.NodeError(
            f"{describe(node)} failed: {type(cause).__name__}: {cause}",
            node=node.name or describe(node),
        )
        failure.__cause__ = cause
        return failure

    return check._replace(error=error)
