"""What is known of operators that ONNX does not define, by domain.

The host itself knows those with channels last; all others a program or installed
distributions supply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onnxplug import channels_last
from onnxplug.ep import Operator
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import outermost
from onnxplug.layout import NHWC_DOMAIN, NHWC_OPERATORS
from onnxplug.plugins import registry as registry_of_process
from onnxplug.plugins.domains import PUBLISHED, DomainRegistry, SuppliedOperator

HOST: Final = "onnxplug"
"""Who supplies the operators that the host knows itself."""

GIVEN: Final = "SessionOptions.register_custom_ops_library"
"""Who supplies the operators that a program gives to its sessions."""

_ONNX: Final = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml"}
"""Domains whose operators are ONNX's as far as ONNX defines them in a version, and the
names by which distributions supply others."""


def find(graph: Graph, node: Node) -> SuppliedOperator | None:
    """What is known of the operator of *node*; ``None``: nothing."""
    if node.domain in _ONNX and node.since_version:
        return None
    given = _given(graph, node)
    if given is not None:
        return given
    if node.domain == NHWC_DOMAIN:
        return _of_host(node.op_type) if node.op_type in NHWC_OPERATORS else None
    domain, version = _ONNX.get(node.domain, node.domain), graph.opset(node.domain)
    return _registry(graph).find(domain, node.op_type, version)


def _of_host(op_type: str) -> SuppliedOperator:
    operator = Operator(op_type=op_type, function=channels_last.function_of)
    return SuppliedOperator(operator, HOST)


def _given(graph: Graph, node: Node) -> SuppliedOperator | None:
    """The newest that the session's options give for the version of the domain."""
    domains = outermost(graph).domains
    if not domains:
        return None
    name, version = _ONNX.get(node.domain, node.domain), graph.opset(node.domain)
    known = [
        operator
        for domain in domains
        if domain.name == name
        for operator in domain.operators
        if operator.op_type == node.op_type and not 0 < version < operator.since
    ]
    if not known:
        return None
    return SuppliedOperator(max(known, key=lambda each: each.since), GIVEN)


def why_not(graph: Graph, node: Node) -> str | None:
    """Why nothing is known of the operator of *node*; ``None`` if it is ONNX's own."""
    domain, op_type = node.domain, node.op_type
    if node.since_version and domain not in PUBLISHED:
        return None
    registry = _registry(graph)
    if domain == NHWC_DOMAIN:
        return f"{HOST} supplies {domain!r} without an operator {op_type!r}"
    if domain not in _ONNX:
        return registry.why_not(domain, op_type, graph.opset(domain))
    added = _ONNX[domain]
    if added in PUBLISHED and not registry.suppliers(added):
        return registry.why_not(added, op_type, 0)
    return None


def listed() -> Iterator[tuple[str, SuppliedOperator]]:
    """Every operator, with its domain; the host's own first."""
    for op_type in sorted(NHWC_OPERATORS):
        yield NHWC_DOMAIN, _of_host(op_type)
    for domain, found in registry_of_process.domains.listed():
        yield "" if domain == _ONNX[""] else domain, found


def _registry(graph: Graph) -> DomainRegistry:
    """Who supplies what to the model of *graph*."""
    own = outermost(graph).plugins
    return (registry_of_process if own is None else own).domains
