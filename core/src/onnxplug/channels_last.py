"""Operators with channels last as ONNX's, between two that transpose."""

from __future__ import annotations

import numpy as np

from onnxplug.ep import Reason, RefusalCode
from onnxplug.graph import Function, Graph, Node
from onnxplug.graph.typed import typed
from onnxplug.layout import OLDEST, PER_AXIS, channels_first, channels_last


def function_of(graph: Graph, node: Node) -> Function | Reason:
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
    order = channels_first(len(shape))
    formal = [f"input{position}" for position in range(len(node.inputs))]
    inputs = [name and each for name, each in zip(node.inputs, formal, strict=True)]
    inputs[0] = "first"
    nodes = [_transpose(formal[0], "first", order)]
    for position in PER_AXIS.get(op_type, ()):
        name = node.inputs[position] if position < len(inputs) else None
        if name is None:
            continue
        numbers = graph.constant(name)
        if numbers is None:
            return Reason(RefusalCode.OTHER, f"its input {position} is no constant")
        if numbers.size == len(order):
            inputs[position] = f"ordered{position}"
            constant = {"value": typed(np.array(numbers[list(order)]))}
            nodes.append(Node("Constant", (), (f"ordered{position}",), constant))
        elif numbers.size:
            return Reason(
                RefusalCode.OTHER, f"its input {position} has no number for each axis"
            )
    nodes += [
        Node(op_type, tuple(inputs), ("made",), node.typed_attributes),
        _transpose("made", "last", channels_last(len(order))),
    ]
    imports = {"": opset or NEWEST}
    body = Graph(
        op_type, inputs=formal, outputs=["last"], nodes=nodes, opset_imports=imports
    )
    return Function(node.domain, op_type, "", (), {}, body)


NEWEST = 23
"""The opset of bodies in models that import none of ONNX's own."""


def _transpose(source: str, target: str, perm: tuple[int, ...]) -> Node:
    return Node("Transpose", (source,), (target,), {"perm": typed(perm)})
