"""Whole networks, narrowed, against the same networks in float32."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.ep import DataType

from .narrowing import BOTH, Feeds, error, narrowed, run

sys.path.append(str(Path(__file__).parents[4] / "benchmarks"))  # has the networks

TOLERANCES = {DataType.FLOAT16: 1e-3, DataType.BFLOAT16: 8e-3}
"""Of the root mean square, as the page of the EP states them."""

NETWORKS = {
    # by the nodes of float32 that are left at most, and casts that are written
    "bert": (0, 2),
    "bert-torchscript": (15, 17),
    "gpt2": (0, 9),
    "llama": (20, 24),
    "resnet": (0, 2),
    "unet": (0, 2),
}


def build(name: str) -> tuple[onnx.ModelProto, Feeds]:
    """A network of reduced size, with inputs for it."""
    from models import Exporter, bert, gpt2, llama

    sizes = {"layers": 2, "width": 128, "heads": 4}
    if name.startswith("bert"):
        exporter = Exporter.TORCHSCRIPT if "script" in name else Exporter.DYNAMO
        return bert(exporter, **sizes, inner=256, words=500, length=32, padding=5)
    if name == "gpt2":
        return gpt2(8, 4, **sizes, words=300)
    if name == "llama":
        return llama(8, 4, **sizes, inner=256)
    return convolutional(name)


def convolutional(name: str) -> tuple[onnx.ModelProto, Feeds]:
    """Residual blocks with norms of batches, or maps that shrink, grow and meet."""
    random = np.random.default_rng(5)
    nodes, weights = [], []

    def weight(*shape: int) -> str:
        values = random.standard_normal(shape, np.float32)
        values *= np.sqrt(2 / max(1, np.prod(shape[1:])))
        label = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(values, label))
        return label

    def add(operator: str, *inputs: str, **attributes: object) -> str:
        label = f"v{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [label], **attributes))
        return label

    def conv(value: str, channels: int, out: int, stride: int = 1) -> str:
        kernel = weight(out, channels, 3, 3)
        return add("Conv", value, kernel, pads=[1] * 4, strides=[stride] * 2)

    first = add("Relu", conv("x", 3, 16))
    if name == "resnet":
        for _ in range(3):
            inside = add("Relu", conv(first, 16, 16))
            scale, shift, mean = (weight(16) for _ in range(3))
            weights.append(numpy_helper.from_array(np.ones(16, np.float32), "one"))
            weights[-1].name = variance = f"w{len(weights)}v"
            inside = add("BatchNormalization", inside, scale, shift, mean, variance)
            first = add("Relu", add("Add", first, conv(inside, 16, 16)))
        last = add("Gemm", add("Flatten", add("GlobalAveragePool", first)),
                   weight(16, 10))  # fmt: skip
    else:
        low = add("Relu", conv(add("MaxPool", first, kernel_shape=[2, 2],
                                   strides=[2, 2]), 16, 32))  # fmt: skip
        scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
        weights.append(scales)
        up = add("Resize", low, "", "scales", mode="linear")
        up = add("ConvTranspose", up, weight(32, 16, 3, 3), pads=[1] * 4)
        last = add("Sigmoid", conv(add("Concat", up, first, axis=1), 32, 2))
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    model = onnx.shape_inference.infer_shapes(model)
    return model, {"x": random.standard_normal((1, 3, 16, 16), np.float32)}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_as_right_as_its_element_type_allows(name: str) -> None:
    model, feeds = build(name)
    expected = run(model, feeds)
    kept, casts = NETWORKS[name]
    for dtype in BOTH:
        for norms in (False, True):
            result = narrowed(model, dtype, norms=norms)
            found = run(result.exported.model, feeds)
            assert [
                error(*pair) < TOLERANCES[dtype]
                for pair in zip(expected, found, strict=True)
            ] == [True] * len(expected), (dtype, norms)
            if not norms:
                assert len(result.kept) <= kept
                assert result.casts <= casts


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", BOTH)
def test_of_onnx_s_suite_what_computes_in_float32_can_be_narrowed(
    dtype: DataType,
) -> None:
    from onnx.backend.test.loader import load_model_tests

    tolerance = {DataType.FLOAT16: 4e-3, DataType.BFLOAT16: 4e-2}[dtype]
    # these draw numbers, are fed some whose digits are not in the element type, or are
    # refused by onnx's own checker
    beyond = ("bernoulli", "softmax_large_number", "test_tan", "test_mvn")
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        cases = load_model_tests(kind="node")
    for case in cases:
        opset = max(entry.version for entry in case.model.opset_import)
        if any(part in case.name for part in beyond) or (
            opset < 22 and dtype is DataType.BFLOAT16
        ):
            continue
        result = narrowed(case.model, dtype)
        if not result.narrowed:
            continue
        for inputs, _ in case.data_sets:
            names = [value.name for value in case.model.graph.input]
            feeds = dict(zip(names, inputs, strict=False))
            expected = run(case.model, feeds)
            found = run(result.exported.model, feeds)
            for wanted, ours in zip(expected, found, strict=True):
                if isinstance(wanted, np.ndarray):
                    assert_close(wanted, ours, tolerance, case.name)
                    compared += 1
    assert compared > 700


def assert_close(
    wanted: np.ndarray, ours: np.ndarray, tolerance: float, name: str
) -> None:
    assert (wanted.dtype, wanted.shape) == (ours.dtype, ours.shape), name
    if wanted.dtype.kind in "biuOU":
        assert np.array_equal(wanted, ours), name
        return
    # of 16 bits are results that were cast from what is narrowed
    wanted, ours = wanted.astype(np.float64), ours.astype(np.float64)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(
        ours, wanted, rtol=0, atol=tolerance * largest, err_msg=name
    )
