"""Models on the EP compute what the CPU EP does."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnxplug

from .standin import TensorRT


def test_a_static_model(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    session = alone(
        parse(
            "m = MatMul(x, w) y = Relu(m)", weights="float[3,3] w = {1,2,3,4,5,6,7,8,9}"
        )
    )
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    w = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.maximum(x @ w, 0), rtol=1e-6)
    assert tensorrt.counts["builds"] == 1


def test_shapes_that_runs_bring(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    model = parse(
        "m = MatMul(x, w) y = Relu(m)",
        inputs="float[batch, 3] x",
        outputs="float[batch, 3] y",
        weights="float[3,3] w = {1,2,3,4,5,6,7,8,9}",
    )
    session = alone(model)
    w = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    for batch in (2, 5, 3, 2, 4, 1):
        x = np.linspace(-1, 1, 3 * batch, dtype=np.float32).reshape(batch, 3)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.maximum(x @ w, 0), rtol=1e-5)
    assert tensorrt.counts["builds"] == 3


def test_shapes_that_depend_on_elements(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse(
        "n = NonZero(x) y = Transpose<perm = [1, 0]>(n)",
        inputs="float[2, 3] x",
        outputs="int64[n, 2] y",
    )
    session = alone(model)
    for x in (
        np.eye(2, 3, dtype=np.float32),
        np.ones((2, 3), np.float32),
        np.zeros((2, 3), np.float32),
    ):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.argwhere(x))


def test_captured_runs(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    session = alone(parse("y = Exp(x)"), trt_cuda_graph_enable=1)
    binding = session.io_binding()
    x = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32), "cuda", 0)
    y = onnxplug.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for number in range(5):
        content = np.full((2, 3), number, np.float32)
        x.update_inplace(content)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), np.exp(content), rtol=1e-6)
    assert tensorrt.machine.counts["execute_async_v3"] == 2
    assert tensorrt.machine.counts["graphLaunch"] == 4
