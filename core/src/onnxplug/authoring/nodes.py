"""Nodes in words, for errors and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.escape import escape

if TYPE_CHECKING:
    from onnxplug.ep.graph import Node


def describe(node: Node) -> str:
    """A node in words, in one line: its operator, and its name or else its first
    output."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    operator = escape(operator)
    if node.name:
        return f"{operator} {node.name!r}"
    return f"{operator} giving {next(filter(None, node.outputs), '')!r}"
