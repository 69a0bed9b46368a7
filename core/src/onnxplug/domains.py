"""What is known of operators that ONNX does not define, by domain.

The host's own are the bodies of :mod:`onnxplug.functions`; what it has not, installed
distributions supply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onnxplug import functions
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import outermost
from onnxplug.plugins import registry as registry_of_process
from onnxplug.plugins.domains import PUBLISHED, DomainRegistry, SuppliedOperator

HOST: Final = "onnxplug"
"""Who supplies the operators that the host knows itself."""

GIVEN: Final = "SessionOptions.register_custom_ops_library"
"""Who supplies the operators that a program gives to its sessions."""

_ONNX: Final = frozenset({"", "ai.onnx.ml"})
"""Domains to which nobody but ONNX adds operators; no distribution is looked for."""


def find(graph: Graph, node: Node) -> SuppliedOperator | None:
    """What is known of the operator of *node*; ``None``: nothing."""
    given = _given(graph, node)
    if given is not None:
        return given
    own = functions.find(node.domain, node.op_type)
    if own is not None:
        # what ONNX defines in this opset is not ONNX Runtime's
        is_onnx = not node.domain and node.since_version
        return None if is_onnx else SuppliedOperator(own, HOST)
    if node.domain in _ONNX:
        return None
    version = graph.opset(node.domain)
    return _registry(graph).find(node.domain, node.op_type, version)


def _given(graph: Graph, node: Node) -> SuppliedOperator | None:
    """The newest that the session's options give for the version of the domain."""
    domains = outermost(graph).domains
    if not domains or node.domain in _ONNX:
        return None
    version = graph.opset(node.domain)
    known = [
        operator
        for domain in domains
        if domain.name == node.domain
        for operator in domain.operators
        if operator.op_type == node.op_type and not 0 < version < operator.since
    ]
    if not known:
        return None
    return SuppliedOperator(max(known, key=lambda each: each.since), GIVEN)


def why_not(graph: Graph, node: Node) -> str | None:
    """Why nothing is known of the operator of *node*; ``None`` if it is ONNX's own."""
    domain, op_type = node.domain, node.op_type
    if domain in _ONNX or (node.since_version and domain not in PUBLISHED):
        return None
    registry = _registry(graph)
    if domain in functions.DOMAINS and not registry.suppliers(domain):
        return f"{HOST} supplies {domain!r} without an operator {op_type!r}"
    return registry.why_not(domain, op_type, graph.opset(domain))


def listed() -> Iterator[tuple[str, SuppliedOperator]]:
    """Every operator, with its domain; the host's own first."""
    for name, domain in functions.DOMAINS.items():
        for operator in domain.operators:
            yield name, SuppliedOperator(operator, HOST)
    yield from registry_of_process.domains.listed()


def _registry(graph: Graph) -> DomainRegistry:
    """Who supplies what to the model of *graph*."""
    own = outermost(graph).plugins
    return (registry_of_process if own is None else own).domains
