"""The operators: which nodes are taken, and how one is written in Python.

An operator is added by writing its expression below, with :func:`operator` above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from onnxplug import ep

Writer: TypeAlias = Callable[..., str]
"""Takes the attributes that a node sets, and what its inputs are called in the program,
by position, and returns an expression for its output; ``np`` is numpy there.

No text of the model may go into it: attributes of type int are written by ``int``.
"""


class Operator(NamedTuple):
    """An operator that can be written.

    Attributes:
        write: what writes its expression.
        versions: those of the operator that the expression is right for, each called by
            the opset that brought it, as ``Node.since_version`` does.
        attributes: those that the expression heeds.
    """

    write: Writer
    versions: frozenset[int]
    attributes: frozenset[str]


OPERATORS: Final[dict[str, Operator]] = {}
"""By the name that ONNX has for the operator."""


def operator(
    op_type: str, versions: Collection[int], attributes: Collection[str] = ()
) -> Callable[[Writer], Writer]:
    """Enters what is below it into :data:`OPERATORS`."""

    def enter(write: Writer) -> Writer:
        OPERATORS[op_type] = Operator(write, frozenset(versions), frozenset(attributes))
        return write

    return enter


def why_not(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """Why *node* is not taken: what was found, what is taken; ``None`` if it is."""
    found = None if node.domain else OPERATORS.get(node.op_type)
    if found is None:
        known = ", ".join(OPERATORS)
        return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; takes {known}")
    if node.since_version not in found.versions:
        known = ", ".join(map(str, sorted(found.versions)))
        detail = f"version {node.since_version}; takes {known}"
        return ep.Reason(ep.RefusalCode.OPSET, detail)
    unknown = sorted(set(node.attributes) - found.attributes)
    if unknown:
        detail = f"{unknown[0]}, which it does not heed"
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
    for name in filter(None, node.inputs):
        dtype = graph.value(name).dtype
        if dtype is not ep.DataType.FLOAT32:
            detail = f"{name!r} is {dtype or 'of unknown type'}; takes float32"
            return ep.Reason(ep.RefusalCode.DTYPE, detail)
    return None


@operator("Add", versions=(7, 13, 14))
def _add(attributes: Mapping[str, Any], a: str, b: str) -> str:
    return f"{a} + {b}"


@operator("MatMul", versions=(1, 9, 13))
def _matmul(attributes: Mapping[str, Any], a: str, b: str) -> str:
    return f"np.matmul({a}, {b})"


@operator("Mul", versions=(7, 13, 14))
def _mul(attributes: Mapping[str, Any], a: str, b: str) -> str:
    return f"{a} * {b}"


@operator("ReduceMax", versions=(1, 11, 12, 13), attributes=("axes", "keepdims"))
def _reduce_max(attributes: Mapping[str, Any], x: str) -> str:
    axes = attributes.get("axes")
    along = None if axes is None else tuple(map(int, axes))
    keep = bool(attributes.get("keepdims", 1))
    return f"np.max({x}, {along}, keepdims={keep}, initial=-np.inf)"


@operator("Relu", versions=(6, 13, 14))
def _relu(attributes: Mapping[str, Any], x: str) -> str:
    return f"np.maximum({x}, 0)"


@operator("Sub", versions=(7, 13, 14))
def _sub(attributes: Mapping[str, Any], a: str, b: str) -> str:
    return f"{a} - {b}"


@operator("Tanh", versions=(6, 13))
def _tanh(attributes: Mapping[str, Any], x: str) -> str:
    return f"np.tanh({x})"
