"""Single nodes evaluated by ONNX Runtime, and by ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def onnx_runtime(
    op_type: str,
    *inputs: Any,
    outputs: tuple[int, ...] = (TensorProto.FLOAT,),
    domain: str = "",
    version: int = 20,
    constants: bool = False,
    **attributes: Any,
) -> list[Any]:
    """The outputs, of the element types *outputs*, in ONNX Runtime.

    With *constants* the inputs are weights.

    Raises:
        ImportError: ONNX Runtime is not installed.
    """
    from importlib import import_module

    runtime = import_module("onnxruntime")  # which says nothing of its types
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    model = one_node_model(op_type, inputs, outputs, domain, version, attributes)
    feeds = _feeds(inputs)
    if constants:
        for name, value in feeds.items():
            weight = numpy_helper.from_array(value, name)
            model.graph.initializer.append(weight)
        feeds = {}
        del model.graph.input[:]
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def reference(
    op_type: str,
    *inputs: Any,
    outputs: tuple[int, ...] = (TensorProto.FLOAT,),
    domain: str = "",
    version: int = 20,
    **attributes: Any,
) -> list[Any]:
    """The outputs in the reference implementation of ONNX."""
    model = one_node_model(op_type, inputs, outputs, domain, version, attributes)
    return list(ReferenceEvaluator(model).run(None, _feeds(inputs)))


def one_node_model(
    op_type: str,
    inputs: tuple[Any, ...],
    outputs: tuple[int, ...],
    domain: str,
    version: int,
    attributes: dict[str, Any],
) -> onnx.ModelProto:
    """A model of one node, of opset 20, for inputs of the types and ranks of *inputs*.

    Args:
        outputs: their element types, in ONNX's numbers.
        version: of *domain*.
    """
    names = ["" if x is None else f"input_{i}" for i, x in enumerate(inputs)]
    results = [f"output_{i}" for i in range(len(outputs))]
    node = helper.make_node(op_type, names, results, domain=domain)
    for name, value in attributes.items():
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        node.attribute.append(helper.make_attribute(name, value))
    graph = helper.make_graph(
        [node],
        op_type,
        [
            helper.make_tensor_value_info(name, _element_type(x), x.shape)
            for name, x in zip(names, inputs, strict=True)
            if x is not None
        ],
        [
            helper.make_tensor_value_info(name, element_type, None)
            for name, element_type in zip(results, outputs, strict=True)
        ],
    )
    versions = {"": 20, domain: version}
    imports = [helper.make_opsetid(*entry) for entry in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _element_type(x: Any) -> int:
    if x.dtype == object:
        return TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(x.dtype))


def _feeds(inputs: tuple[Any, ...]) -> dict[str, Any]:
    return {f"input_{i}": x for i, x in enumerate(inputs) if x is not None}
