"""Operators with channels last as ONNX's, between two that transpose."""

from __future__ import annotations

from typing import Any

from onnxplug.ep import Reason, RefusalCode
from onnxplug.functions.body import Body
from onnxplug.graph import Function, Graph, Node
from onnxplug.layout import OLDEST, PER_AXIS, channels_first, channels_last


def make(graph: Graph, node: Node) -> Function | Reason:
    """The function of *node*, or why there is none."""
    op_type, opset = node.op_type, graph.opset()
    oldest = OLDEST.get(op_type, 7)
    if 0 < opset < oldest:
        return Reason(RefusalCode.OPSET, f"its function needs opset {oldest}")
    if any(node.outputs[1:]):
        return Reason(RefusalCode.OTHER, "its function makes one output only")
    if not node.inputs or node.inputs[0] is None:
        return Reason(RefusalCode.OTHER, "it has no input to transpose")
    shape = graph.value(node.inputs[0]).shape
    if shape is None:
        return Reason(
            RefusalCode.DYNAMIC_SHAPE, "the rank of its first input is unknown"
        )
    rank = len(shape)
    formal = [f"input{position}" for position in range(len(node.inputs))]
    body = Body(graph, node, formal)
    inputs: list[str | None] = list(body.inputs)
    assert inputs[0] is not None
    inputs[0] = body.transpose(inputs[0], *channels_first(rank))
    for position in PER_AXIS.get(op_type, ()):
        name = inputs[position] if position < len(inputs) else None
        if name is None:
            continue
        numbers = body.content(name)
        if numbers is None:
            return Reason(RefusalCode.OTHER, f"its input {position} is no constant")
        if numbers.size == rank:
            inputs[position] = body.constant(numbers[list(channels_first(rank))])
        elif numbers.size:
            return Reason(
                RefusalCode.OTHER, f"its input {position} has no number for each axis"
            )
    attributes: dict[str, Any] = dict(node.attributes)
    y = body.op(op_type, *inputs, **attributes)
    return body.function([body.transpose(y, *channels_last(rank))])
