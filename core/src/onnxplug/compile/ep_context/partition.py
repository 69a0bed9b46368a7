"""A partition that was compiled before: a single EPContext node."""

from __future__ import annotations

from typing import Any

from onnxplug.partition import GraphPartition


class ContextPartition(GraphPartition):
    """The partition that an EPContext node stands for.

    Its inputs and outputs are the node's, every one in its place: also what has become
    constant since, and what nobody wants.

    Args:
        origin: where it was restored from, for reports.
    """

    def __init__(self, *arguments: Any, origin: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.origin = origin
        (node,) = self.nodes
        self.inputs = tuple(name or "" for name in node.inputs)
        self.outputs = tuple(
            name or f"{node.name or node.op_type} output {position}"
            for position, name in enumerate(node.outputs)
        )
