"""The ONNX backend suite's models of one node, with what each has to give."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class NodeCase:
    """A node of a model, what is fed to it, and what the suite expects of it.

    Attributes:
        inputs: numpy arrays, ``None`` for one that is left out.
        outputs: likewise.
        rtol, atol: the suite's.
    """

    name: str
    domain: str
    op_type: str
    version: int
    attributes: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    def __str__(self) -> str:
        return self.name


@functools.cache
def numeric_cases() -> tuple[NodeCase, ...]:
    """Those whose inputs and outputs are all tensors of numbers or truths."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        tests = load_model_tests(kind="node")
    return tuple(case for test in tests if (case := _case(test)) is not None)


def _case(test: Any) -> NodeCase | None:
    model = test.model
    if model is None or len(model.graph.node) != 1 or not test.data_sets:
        return None
    (node,) = model.graph.node
    if any(a.HasField("g") or a.graphs for a in node.attribute):
        return None
    given, expected = test.data_sets[0]
    if not all(isinstance(v, np.ndarray | np.generic) for v in (*given, *expected)):
        return None
    fed = dict(zip((i.name for i in model.graph.input), given, strict=False))
    wanted = dict(zip((o.name for o in model.graph.output), expected, strict=False))
    inputs = tuple(fed.get(name) for name in node.input)
    outputs = tuple(wanted.get(name) for name in node.output)
    arrays = [np.asarray(a) for a in (*inputs, *outputs) if a is not None]
    if any(a.dtype.kind in "OUST" for a in arrays):
        return None
    imports = {entry.domain: entry.version for entry in model.opset_import}
    return NodeCase(
        test.name,
        node.domain,
        node.op_type,
        imports[node.domain],
        {a.name: _value(a) for a in node.attribute},
        tuple(None if a is None else np.asarray(a) for a in inputs),
        tuple(None if a is None else np.asarray(a) for a in outputs),
        test.rtol,
        test.atol,
    )


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value
