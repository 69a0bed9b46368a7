"""Sessions of the format MLProgram, whose models the interpreter runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from mil_interpreter import Interpreter

pytest.importorskip("coremltools", reason="make test-coreml installs it")

from mlprogram.simulation import EP, simulated

import onnxplug
from onnxplug.errors import UnassignedNode
from onnxplug_coreml import mlprogram
from onnxplug_coreml.mlprogram.emitter import INSIDE

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def loaded() -> Iterator[list[Interpreter]]:
    """What was loaded; there is Core ML as long as it lasts."""
    with simulated() as interpreters:
        yield interpreters


@pytest.fixture
def network(parse: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A product and what is done to it, for any number of rows."""
    return parse(
        "p = MatMul (x, w)\n y = Relu (p)",
        "float[rows, 4] x",
        "float[rows, 2] y",
        weights="float[4, 2] w = {0.1, -2, 3, 0.4, 5, -0.6, 7, 8}",
    )


def opened(model: onnx.ModelProto, **options: Any) -> onnxplug.InferenceSession:
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = [(EP[0], {**EP[1], **options})]
    return onnxplug.InferenceSession(model, settings, providers=providers)


def test_any_number_of_rows(network: onnx.ModelProto) -> None:
    session = opened(network)
    weight = onnx.numpy_helper.to_array(network.graph.initializer[0])
    for rows in (1, 3):
        (found,) = session.run(None, {"x": X[:rows]})
        wanted = np.maximum(X[:rows] @ weight, 0)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_more_dimensions_than_core_ml_has_are_refused(
    parse: Callable[..., onnx.ModelProto],
) -> None:
    shape = "float[1, 1, 1, 1, 1, 2]"
    with pytest.raises(UnassignedNode, match=r"of 6 dimensions .* MLProgram has 5"):
        opened(parse("y = Exp (x)", f"{shape} x", f"{shape} y"))


def test_the_units_that_core_ml_plans_are_told_of_each_node(
    network: onnx.ModelProto,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def units(path: Path, settings: Any) -> dict[str, str]:
        kinds = {"matmul": "GPU", "linear": "GPU", "relu": "NeuralEngine"}
        return {
            output.name.removesuffix(INSIDE): kinds[operation.type]
            for operation in Interpreter(path).package.block.operations
            if operation.type in kinds
            for output in operation.outputs
        }

    monkeypatch.setattr(mlprogram, "units", units)
    for value in (*network.graph.input, *network.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = len(X)
    with caplog.at_level(logging.INFO):
        session = opened(network, ProfileComputePlan=True)
    told = {node.op_type: node.tier for node in session.explain().nodes}
    assert told == {"MatMul": "GPU", "Relu": "NeuralEngine"}
    assert "MatMul giving 'p'" in caplog.text
    assert "on GPU" in caplog.text


def test_no_plan_is_a_warning(
    network: onnx.ModelProto, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        opened(network, ProfileComputePlan=True).run(None, {"x": X})
    assert "ProfileComputePlan: " in caplog.text
