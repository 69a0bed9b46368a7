"""Functions that who supplies an operator has made for a node, in the host's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import usual_form
from onnxplug.graph import Attribute, AttributeType, Function, Graph, Node, Weight
from onnxplug.graph.typed import typed


def built(made: ep.Function, graph: Graph, node: Node) -> Function:
    """*made* for *node* of *graph*.

    Raises:
        ValueError: it computes a constant from what is none.
        TypeError: an attribute is of a type that ONNX does not have.
    """
    actual = dict(zip(made.inputs, node.inputs, strict=False))

    def weight_of(name: str) -> Weight | None:
        return graph.weight(actual.get(name) or "")

    nodes = [
        Node(
            call.op_type,
            tuple(call.inputs),
            tuple(call.outputs),
            {
                name: _attribute(value, weight_of)
                for name, value in call.attributes.items()
            },
            domain=call.domain,
            name=call.outputs[0],
        )
        for call in made.calls
    ]
    unread = next((name for name in made.outputs if name is not None), "")
    body = Graph(
        node.op_type,
        # one that is left out keeps its place
        inputs=[name or f"left out {n}" for n, name in enumerate(made.inputs)],
        outputs=[name or unread for name in made.outputs],
        nodes=nodes,
        opset_imports=made.opset_imports,
    )
    return Function(node.domain, node.op_type, "", (), {}, body)


def _attribute(value: Any, weight_of: Callable[[str], Weight | None]) -> Attribute:
    if isinstance(value, ep.ComputedConstant):
        return Attribute(AttributeType.TENSOR, computed(value, weight_of))
    return typed(value)


def computed(
    constant: ep.ComputedConstant, weight_of: Callable[[str], Weight | None]
) -> Weight:
    """The weight that *constant* is, of the weights that *weight_of* gives by name.

    Raises:
        ValueError: one of them is no constant.
    """
    weights: list[Weight] = []
    for name in constant.of:
        weight = weight_of(name)
        if weight is None:
            raise ValueError(f"a constant is computed from {name!r}, which is none")
        weights.append(weight)

    def compute() -> np.ndarray[Any, Any]:
        made = constant.compute(*(weight.array for weight in weights))
        array: np.ndarray[Any, Any] = usual_form(made, constant.dtype.numpy)
        if array.shape != tuple(constant.shape):
            raise ValueError(
                f"a constant is computed of shape {array.shape}; expected "
                f"{tuple(constant.shape)}, as was said"
            )
        return array

    return Weight.computed(
        constant.dtype,
        tuple(constant.shape),
        compute,
        method=constant.key,
        of=weights,
    )
