"""Nodes to run, and models of several that have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

import onnxplug

Array = np.ndarray[Any, Any]


class SingleNode(NamedTuple):
    """A node, what it is given, and the version of operators.

    Attributes:
        inputs: arrays; ``None`` for one that is left out.
        constant: positions of those that are initializers.
        outputs: how many are asked for, or which, by their names or empty ones.
        shapes: of outputs, which are of the first input's type, where nobody infers
            them.
    """

    op_type: str
    inputs: Sequence[Array | None]
    constant: Sequence[int] = ()
    attributes: Mapping[str, Any] = {}
    opset: int = 23
    outputs: int | Sequence[str] = 1
    domain: str = ""
    shapes: Sequence[Sequence[int]] = ()


def model_of(nodes: Mapping[str, SingleNode]) -> onnx.ModelProto:
    """A model of nodes of one opset, whose outputs are as ONNX infers them.

    Inputs and outputs are called after the nodes: ``name:x0``, ``name:y0``.
    """
    graph = onnx.GraphProto(name="single nodes")
    for name, node in nodes.items():
        _add(graph, name, node)
    (opset,) = {node.opset for node in nodes.values()}
    imports = [onnx.helper.make_opsetid("", opset)]
    domains = {node.domain for node in nodes.values()} - {""}
    imports += [onnx.helper.make_opsetid(domain, 1) for domain in domains]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=False)


def _add(graph: onnx.GraphProto, name: str, node: SingleNode) -> None:
    names = [
        "" if x is None else f"{name}:x{position}"
        for position, x in enumerate(node.inputs)
    ]
    asked = node.outputs
    if isinstance(asked, int):
        asked = [f"y{position}" for position in range(asked)]
    outputs = [f"{name}:{each}" if each else "" for each in asked]
    graph.node.append(
        onnx.helper.make_node(
            node.op_type, names, outputs, domain=node.domain, **node.attributes
        )
    )
    for position, x in enumerate(node.inputs):
        if x is None:
            continue
        if position in node.constant:
            graph.initializer.append(onnx.numpy_helper.from_array(x, names[position]))
        else:
            graph.input.append(_typed(names[position], x, x.shape))
    for position, output in enumerate(filter(None, outputs)):
        if node.shapes:
            first = node.inputs[0]
            assert first is not None
            graph.output.append(_typed(output, first, node.shapes[position]))
        else:
            graph.output.append(onnx.ValueInfoProto(name=output))


def _typed(name: str, like: Array, shape: Sequence[int]) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(like.dtype)
    return onnx.helper.make_tensor_value_info(name, element, shape)


def feeds_of(nodes: Mapping[str, SingleNode]) -> dict[str, Array]:
    """What runs of the model are given."""
    return {
        f"{name}:x{position}": x
        for name, node in nodes.items()
        for position, x in enumerate(node.inputs)
        if x is not None and position not in node.constant
    }


def alone(model: onnx.ModelProto) -> onnxplug.InferenceSession:
    """A session whose every node is on the EP."""
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = ["DmlExecutionProvider"]
    return onnxplug.InferenceSession(model, settings, providers=providers)
