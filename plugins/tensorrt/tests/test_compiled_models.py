"""Engines that are written into models, and restored from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import errors

from .conftest import EP
from .standin import TensorRT

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def compiled(model: onnx.ModelProto, target: Path, **given: Any) -> Path:
    options = onnxplug.SessionOptions()
    options.add_provider(EP, given)
    onnxplug.ModelCompiler(
        options,
        model,
        flags=onnxplug.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED,
    ).compile_to_file(target)
    return target


def run(target: Path, feed: Any = X, **given: Any) -> Any:
    with onnxplug.InferenceSession(target, None, [(EP, given)]) as session:
        return session.run(None, {"x": feed})[0]


@pytest.fixture
def model(parse: Any) -> onnx.ModelProto:
    found: onnx.ModelProto = parse("a = Exp(x) d = Det(s) y = Mul(a, d)",
        "float[2, 3] x, float[2, 2] s", "float[2, 3] y",
    )  # fmt: skip
    return found


def test_a_model_that_was_compiled(
    factory: Any, parse: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    model = parse("a = Exp(x) y = Sin(a)")
    target = compiled(model, tmp_path / "compiled.onnx")
    assert tensorrt.counts["builds"] == 1
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_allclose(run(target), wanted, 1e-5)
    assert tensorrt.counts["builds"] == 1


def test_a_range_is_compiled_ahead(
    factory: Any, parse: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    model = parse("y = Exp(x)", "float[n, 3] x", "float[n, 3] y")
    given = {
        "trt_profile_min_shapes": "x:1x3",
        "trt_profile_opt_shapes": "x:2x3",
        "trt_profile_max_shapes": "x:4x3",
    }
    target = compiled(model, tmp_path / "compiled.onnx", **given)
    np.testing.assert_allclose(run(target, **given), np.exp(X), 1e-5)
    with pytest.raises(errors.EpError, match="the engine was built for"):
        run(target, np.ones((5, 3), np.float32), **given)


def test_what_runs_bring_is_not_compiled_ahead(
    factory: Any, parse: Any, tmp_path: Path
) -> None:
    model = parse("y = Exp(x)", "float[n, 3] x", "float[n, 3] y")
    with pytest.raises(errors.OnnxplugError, match="the shapes that runs bring"):
        compiled(model, tmp_path / "compiled.onnx")


@pytest.mark.parametrize("kind", ["version", "device"])
def test_an_engine_for_another_gpu_is_refused(
    factory: Any, parse: Any, tensorrt: TensorRT, tmp_path: Path, kind: str
) -> None:
    target = compiled(parse("y = Exp(x)"), tmp_path / "compiled.onnx")
    if kind == "version":
        tensorrt.__version__ = "11.5.0.7"
    else:
        tensorrt.cuda.name = "Another"
    with pytest.raises(errors.OnnxplugError, match=r"was built (by|on)"):
        run(target)


def test_engines_without_weights_are_not_written(
    factory: Any, parse: Any, tmp_path: Path
) -> None:
    with pytest.raises(errors.OnnxplugError, match="without weights"):
        compiled(
            parse("y = Exp(x)"),
            tmp_path / "compiled.onnx",
            trt_weight_stripped_engine_enable=1,
        )
