"""Which tier runs a node: kernels on arrays, or ONNX's reference implementation.

A node that neither runs is refused with a reason.  An operator that ONNX defines by a
function body, and that has no kernel, is refused too: the host then expands the body,
whose operators have kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_cpu.arrays import reference
from onnxplug_cpu.control_flow import is_control_flow
from onnxplug_kernels import find_kernel, function_of

_REFERRED = frozenset({"", "ai.onnx.ml"})
"""Domains whose operators the reference implementation runs; those of others are run by
the kernels of who supplies them, or not at all."""


class Tier(StrEnum):
    """What computes a node."""

    ARRAY = "array"
    REFERENCE = "reference"


class Found(Record):
    """A node's function and the tier it belongs to."""

    tier: Tier
    function: Callable[..., Any]


class FindSupplied(Protocol):
    """``ep.SessionContext.find_kernel``."""

    def __call__(
        self, graph: ep.Graph, node: ep.Node, xp: Any, /
    ) -> Callable[..., Any] | ep.Reason | None: ...


def find(
    graph: ep.Graph, node: ep.Node, supplied: FindSupplied | None = None
) -> Found | ep.Reason:
    """What computes *node*, or why nothing does.

    Args:
        supplied: finds the kernels of operators that other distributions supply.
    """
    if is_control_flow(node):
        return ep.Reason(ep.RefusalCode.OP, "control flow has bodies and no kernel")
    version = graph.opset(node.domain)
    kernel = find_kernel(node.domain, node.op_type, version)
    if kernel is not None:
        bound = function_of(kernel, node, np)
        return bound if isinstance(bound, ep.Reason) else Found(Tier.ARRAY, bound)
    other = supplied(graph, node, np) if node.domain and supplied else None
    if other is not None:
        return other if isinstance(other, ep.Reason) else Found(Tier.ARRAY, other)
    if node.domain not in _REFERRED:
        return ep.Reason(ep.RefusalCode.OP, f"no kernel of {node.domain}")
    schema = reference.find_schema(node.domain, node.op_type, version)
    if schema is None:
        domain = node.domain or "ai.onnx"
        return ep.Reason(
            ep.RefusalCode.OP, f"{domain} {version} has no operator {node.op_type}"
        )
    if schema.has_function or schema.has_context_dependent_function:
        return ep.Reason(
            ep.RefusalCode.OP, "no kernel; the operator is defined by a function body"
        )
    referred = reference.find(schema, node, version)
    return (
        referred if isinstance(referred, ep.Reason) else Found(Tier.REFERENCE, referred)
    )
