"""Models that ONNX Runtime's quantiser and optimiser write, on the CPU EP.

The measure is the error against the float model: the root of the mean square.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

LEVELS = ort.GraphOptimizationLevel
QDQ, QOPERATOR = quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator
UINT8, INT8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
UINT16 = quantization.QuantType.QUInt16
CPU = ["CPUExecutionProvider"]


class Net:
    """A float model while it is written, of random weights."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._generator = np.random.default_rng(0)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def weight(self, *shape: int, spread: float = 0.3) -> str:
        name = f"w{len(self._weights)}"
        values = self._generator.normal(0, spread, shape).astype(np.float32)
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def call(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        node = helper.make_node(op_type, inputs, [name], name=name, **attributes)
        self._nodes.append(node)
        return name

    def save(self, path: Path, output: str) -> None:
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self._weights,
        )
        imports = [
            helper.make_opsetid("", 17),
            helper.make_opsetid("com.microsoft", 1),
        ]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)


def convolutions(path: Path) -> tuple[int, ...]:
    net = Net((4, 3, 16, 16))
    pads = [1] * 4
    y = net.call("Conv", "x", net.weight(8, 3, 3, 3), net.weight(8), pads=pads)
    y = net.call("Relu", y)
    skip = net.call("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.call("Conv", skip, net.weight(8, 8, 3, 3), net.weight(8), pads=pads)
    y = net.call("LeakyRelu", y, alpha=0.1)
    skip = net.call("Add", y, skip)
    y = net.call(
        "Conv", skip, net.weight(8, 1, 3, 3), net.weight(8), pads=pads, group=8
    )
    y = net.call("Mul", y, net.call("Sigmoid", y))
    y = net.call("Concat", y, skip, axis=1)
    y = net.call("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.call("Flatten", net.call("GlobalAveragePool", y))
    y = net.call("Gemm", y, net.weight(16, 5), net.weight(5))
    net.save(path, net.call("Softmax", y, axis=-1))
    return net.shape


def products(path: Path) -> tuple[int, ...]:
    net = Net((4, 7, 12))
    y = net.call("MatMul", "x", net.weight(12, 32))
    skip = net.call("Relu", net.call("Add", y, net.weight(32)))
    y = net.call("MatMul", skip, net.weight(32, 32, spread=0.2))
    scores = net.call("MatMul", y, net.call("Transpose", y, perm=[0, 2, 1]))
    scores = net.call("Mul", scores, net.weight(1, spread=0.1))
    y = net.call("MatMul", net.call("Softmax", scores, axis=-1), y)
    y = net.call("Add", y, skip)
    net.save(path, net.call("MatMul", y, net.weight(32, 6, spread=0.2)))
    return net.shape


def recurrence(path: Path) -> tuple[int, ...]:
    net = Net((9, 2, 10))
    weights = net.weight(1, 64, 10), net.weight(1, 64, 16), net.weight(1, 128)
    y = net.call("LSTM", "x", *weights, hidden_size=16)
    net.save(path, net.call("MatMul", y, net.weight(16, 4)))
    return net.shape


def attention(path: Path) -> tuple[int, ...]:
    net = Net((2, 6, 16))
    y = net.call(
        "Attention",
        *("x", net.weight(16, 48), net.weight(48)),
        domain="com.microsoft",
        num_heads=4,
        unidirectional=1,
    )
    y = net.call("Add", y, "x")
    net.save(path, net.call("MatMul", y, net.weight(16, 5)))
    return net.shape


Make = Callable[[Path], tuple[int, ...]]


def calibration(shape: tuple[int, ...]) -> Any:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._feeds: Iterator[dict[str, Any]] = (
                {"x": draw(shape, seed)} for seed in range(6)
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self._feeds, None)

    return Reader()


def draw(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def of_onnx_runtime(path: Path, x: Any, level: Any, kept: Path | None = None) -> Any:
    """What it computes; *kept* takes the model as it is optimised."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    options.log_severity_level = 3
    if kept is not None:
        options.optimized_model_filepath = str(kept)
    return ort.InferenceSession(path, options, providers=CPU).run(None, {"x": x})[0]


def error(found: Any, exact: Any) -> float:
    assert (found.shape, found.dtype) == (exact.shape, exact.dtype)
    return float(np.sqrt(np.mean((found - exact) ** 2, dtype=np.float64)))


def operators(path: Path) -> set[str]:
    """The operators of ``com.microsoft`` in a model."""
    nodes = onnx.load(path).graph.node
    return {node.op_type for node in nodes if node.domain == "com.microsoft"}


def compare(folder: Path, shape: tuple[int, ...]) -> set[str]:
    """Run ``quantized.onnx`` as it is, and as ONNX Runtime optimises it.

    What ONNX Runtime computes of the two differs; ours may be no worse than either
    pair's worse one, but for a number that rounds to another step now and then.

    Returns:
        the operators of ``com.microsoft`` in both.
    """
    quantized, optimised = folder / "quantized.onnx", folder / "optimised.onnx"
    x = draw(shape, 99)
    exact = of_onnx_runtime(folder / "float.onnx", x, LEVELS.ORT_DISABLE_ALL)
    plain = of_onnx_runtime(quantized, x, LEVELS.ORT_DISABLE_ALL)
    # the next level's layouts depend on the machine
    fused = of_onnx_runtime(quantized, x, LEVELS.ORT_ENABLE_EXTENDED, optimised)
    allowed = max(error(plain, exact), error(fused, exact)) * 1.05
    assert 0 < allowed < exact.std()  # else nothing is shown
    for path in (quantized, optimised):
        session = onnxplug.InferenceSession(path, providers=CPU)
        assert error(session.run(None, {"x": x})[0], exact) <= allowed
    return operators(quantized) | operators(optimised)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights", [INT8, UINT8])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (convolutions, {"DynamicQuantizeMatMul"}),
        (products, {"DynamicQuantizeMatMul"}),
        (recurrence, {"DynamicQuantizeLSTM"}),
        (attention, {"QAttention", "DynamicQuantizeMatMul"}),
    ],
)
def test_dynamic(
    tmp_path: Path, make: Make, expected: set[str], weights: Any, per_channel: bool
) -> None:
    shape = make(tmp_path / "float.onnx")
    quantization.quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "quantized.onnx",
        weight_type=weights,
        per_channel=per_channel,
    )
    assert expected <= compare(tmp_path, shape)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("activations", "weights"), [(UINT8, INT8), (INT8, INT8), (UINT8, UINT8)]
)
@pytest.mark.parametrize(
    ("form", "make", "expected"),
    [
        (QDQ, convolutions, {"QLinearAveragePool", "QGemm"}),
        (QDQ, products, {"QLinearSoftmax"}),
        (
            QOPERATOR,
            convolutions,
            {
                "QLinearLeakyRelu",
                "QLinearAdd",
                "QLinearSigmoid",
                "QLinearMul",
                "QLinearConcat",
                "QLinearAveragePool",
                "QLinearGlobalAveragePool",
                "QGemm",
                "QLinearSoftmax",
            },
        ),
        (QOPERATOR, products, {"QLinearAdd", "QLinearMul", "QLinearSoftmax"}),
    ],
)
def test_static(
    tmp_path: Path,
    form: Any,
    make: Make,
    expected: set[str],
    activations: Any,
    weights: Any,
    per_channel: bool,
) -> None:
    shape = make(tmp_path / "float.onnx")
    quantization.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantized.onnx",
        calibration(shape),
        quant_format=form,
        activation_type=activations,
        weight_type=weights,
        per_channel=per_channel,
    )
    assert expected <= compare(tmp_path, shape)


@pytest.mark.parametrize("activations", [UINT8, UINT16])
@pytest.mark.parametrize("make", [convolutions, products])
def test_static_with_operators_of_onnx_runtime(
    tmp_path: Path, make: Make, activations: Any
) -> None:
    shape = make(tmp_path / "float.onnx")
    quantization.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantized.onnx",
        calibration(shape),
        quant_format=QDQ,
        activation_type=activations,
        weight_type=INT8,
        extra_options={"UseQDQContribOps": True},
    )
    assert {"QuantizeLinear", "DequantizeLinear"} <= compare(tmp_path, shape)
