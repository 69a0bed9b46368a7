"""The tier of last resort: ONNX's own reference implementation.

It is right in most places and slow everywhere; reports name it, so that the operators
that still need it are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug import ep


def find_schema(domain: str, op_type: str, version: int) -> Any | None:
    """ONNX's schema of an operator at opset *version*; ``None`` if it has none."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def find(schema: Any, node: ep.Node, version: int) -> Callable[..., Any] | ep.Reason:
    """A function that computes *node* by the reference implementation."""
    from onnx.reference import ReferenceEvaluator

    if node.subgraphs:
        return ep.Reason(ep.RefusalCode.OP, "the operator has a body, and no kernel")
    try:
        evaluator = ReferenceEvaluator(_model(schema, node, version))
    # the evaluator raises several unrelated exceptions for what it does not know
    except Exception as error:  # noqa: BLE001
        ep.raise_interruption(error)
        return ep.Reason(ep.RefusalCode.OP, f"no kernel, and no reference: {error}")
    names = [name or "" for name in node.inputs]

    def run(*inputs: Any) -> tuple[Any, ...]:
        feed = {
            name: value
            for name, value in zip(names, inputs, strict=True)
            if name and value is not None
        }
        results = iter(evaluator.run(None, feed))
        # by position, also after an output that is left out
        return tuple(next(results) if name else None for name in node.outputs)

    return run


def _model(schema: Any, node: ep.Node, version: int) -> Any:
    """A model of *node* alone, its inputs and outputs of no stated type."""
    from onnx import helper

    attributes = [
        _attribute(name, value, schema.attributes[name].type)
        for name, value in node.attributes.items()
    ]
    proto = helper.make_node(
        node.op_type,
        [name or "" for name in node.inputs],
        [name or "" for name in node.outputs],
        domain=node.domain,
    )
    proto.attribute.extend(attributes)
    inputs = dict.fromkeys(name for name in node.inputs if name)
    graph = helper.make_graph(
        [proto],
        node.op_type,
        [helper.make_empty_tensor_value_info(name) for name in inputs],
        [helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(node.domain, version)]
    )


def _attribute(name: str, value: Any, schema_type: Any) -> Any:
    from onnx import helper, numpy_helper

    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, value, attr_type=schema_type.value)
