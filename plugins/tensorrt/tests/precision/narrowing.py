"""Small models as text, and what is asked of them once they are narrowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

import onnxplug
from onnxplug.ep import DataType, ExportedModel
from onnxplug_tensorrt.precision import Exclusions, NarrowedModel, narrow_model

Feeds = Mapping[str, np.ndarray[Any, Any]]

BOTH = (DataType.FLOAT16, DataType.BFLOAT16)


def parsed(text: str, opset: int = 22) -> onnx.ModelProto:
    """The graph that *text* writes in ONNX's textual form, as a checked model."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]>\n{text}'
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def narrowed(
    model: onnx.ModelProto,
    dtype: DataType = DataType.FLOAT16,
    **excluded: Any,
) -> NarrowedModel:
    """*model* narrowed, with what holds for all models that are."""
    before = model.SerializeToString(deterministic=True)
    result = narrow_model(ExportedModel(model, {}), dtype, Exclusions(**excluded))
    assert model.SerializeToString(deterministic=True) == before
    made = result.exported.model
    if dtype is DataType.FLOAT16 or model.opset_import[0].version >= 22:
        onnx.checker.check_model(made, full_check=True)
    assert list(made.graph.input) == list(model.graph.input)
    assert list(made.graph.output) == list(model.graph.output)
    return result


def run(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    """The outputs of *model* on the CPU EP."""
    session = onnxplug.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def operators(model: onnx.ModelProto) -> list[str]:
    """The operators of the main graph, in order."""
    return [node.op_type for node in model.graph.node]


def error(expected: Any, found: Any) -> float:
    """The root mean square of the difference, relative to that of *expected*."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    difference = np.sqrt(np.mean((expected - found.astype(np.float64)) ** 2))
    return float(difference / np.sqrt(np.mean(expected.astype(np.float64) ** 2)))
