"""Quantised weights are made floats once, not in each run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, NodeError
from onnxplug_cpu.capability import Found, find

RANDOM = np.random.default_rng(23)
WEIGHT = RANDOM.integers(-128, 128, (300, 400), dtype=np.int8)
SCALE = RANDOM.random(400).astype(np.float32)
ZERO = RANDOM.integers(-20, 20, 400, dtype=np.int8)
WIDE = (WEIGHT.astype(np.float64) - ZERO) * SCALE
X = RANDOM.standard_normal((5, 300)).astype(np.float32)
PROVIDERS = [
    pytest.param([("CPUExecutionProvider", {"compile": compiles})], id=name)
    for name, compiles in (("compiled", True), ("array", False))
]


def model(
    *nodes: onnx.NodeProto, outputs: Any = ("y",), constants: Any = ()
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 300])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(SCALE, "scale"),
            numpy_helper.from_array(ZERO, "zero"),
            *constants,
        ],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def dequantize(axis: int = 1) -> onnx.NodeProto:
    return helper.make_node(
        "DequantizeLinear", ["w", "scale", "zero"], ["floats"], axis=axis
    )


PRODUCT = helper.make_node("MatMul", ["x", "floats"], ["y"])


@pytest.fixture
def computed() -> Iterator[list[str]]:
    """The operators that are computed on arrays, as often as they are."""
    operators: list[str] = []

    def watched(*about: Any, **named: Any) -> Found | ep.Reason:
        found = find(*about, **named)
        if isinstance(found, ep.Reason):
            return found
        function, (_, node) = found.function, about

        def compute(*arguments: Any, **attributes: Any) -> Any:
            operators.append(node.op_type)
            return function(*arguments, **attributes)

        return Found(found.tier, compute)

    with mock.patch("onnxplug_cpu.provider.find", watched):
        yield operators


def assert_near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize("providers", PROVIDERS)
def test_a_weight_is_made_floats_once(providers: Any, computed: list[str]) -> None:
    session = onnxplug.InferenceSession(
        model(dequantize(), PRODUCT), providers=providers
    )
    for rows in (5, 2, 5):
        assert_near(session.run(None, {"x": X[:rows]})[0], X[:rows] @ WIDE)
    assert computed.count("DequantizeLinear") == 1


@pytest.mark.parametrize("providers", PROVIDERS)
def test_the_report_tells_it(providers: Any) -> None:
    session = onnxplug.InferenceSession(
        model(dequantize(), PRODUCT), providers=providers
    )
    explained = session.explain()
    assert [node.op_type for node in explained.nodes] == ["MatMul"]
    assert [tuple(each) for each in explained.computed_once] == [
        ("", "DequantizeLinear giving 'floats'", False)
    ]
    assert "computed once: DequantizeLinear giving 'floats' (qu" in str(explained)


@pytest.mark.parametrize("providers", PROVIDERS)
def test_what_passes_a_weight_on_is_settled_too(providers: Any) -> None:
    across = helper.make_node("Transpose", ["floats"], ["turned"], perm=[1, 0])
    gemm = helper.make_node("Gemm", ["x", "turned"], ["y"], transB=1)
    session = onnxplug.InferenceSession(
        model(dequantize(), across, gemm), providers=providers
    )
    assert [node.op_type for node in session.explain().nodes] == ["Gemm"]
    assert_near(session.run(None, {"x": X})[0], X @ WIDE)


@pytest.mark.parametrize("providers", PROVIDERS)
def test_a_weight_that_is_an_output_is_not_settled(providers: Any) -> None:
    session = onnxplug.InferenceSession(
        model(dequantize(), PRODUCT, outputs=("y", "floats")), providers=providers
    )
    y, floats = session.run(None, {"x": X})
    assert_near(y, X @ WIDE)
    assert_near(floats, WIDE)


@pytest.mark.parametrize("providers", PROVIDERS)
def test_what_is_computed_from_an_input_is_not_settled(providers: Any) -> None:
    quantize = helper.make_node("QuantizeLinear", ["x", "one"], ["q"])
    back = helper.make_node("DequantizeLinear", ["q", "one"], ["rounded"])
    product = helper.make_node("MatMul", ["rounded", "floats"], ["y"])
    proto = model(quantize, back, dequantize(), product)
    proto.graph.initializer.append(
        numpy_helper.from_array(np.float32(0.5), "one"),
    )
    session = onnxplug.InferenceSession(proto, providers=providers)
    rounded = np.clip(np.rint(X / 0.5), 0, 255) * 0.5
    assert_near(session.run(None, {"x": X})[0], rounded @ WIDE)
    assert_near(
        session.run(None, {"x": -X})[0], np.rint(X.clip(max=0) / -0.5) * 0.5 @ WIDE
    )


@pytest.mark.parametrize("providers", PROVIDERS)
def test_a_failure_names_the_node(providers: Any) -> None:
    proto = model(dequantize(axis=0), PRODUCT)
    with pytest.raises((NodeError, EpError), match="DequantizeLinear"):
        session = onnxplug.InferenceSession(proto, providers=providers)
        session.run(None, {"x": X})


def test_weights_that_double_are_not_computed_ahead(computed: list[str]) -> None:
    chain = [
        helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0)
        for i in range(30)
    ]
    session = onnxplug.InferenceSession(
        model(
            helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["v0"]),
            *chain,
            helper.make_node("Gather", ["v30", "first"], ["row"]),
            helper.make_node("Add", ["x", "row"], ["y"]),
            constants=[numpy_helper.from_array(np.array([0]), "first")],
        )
    )
    assert set(computed) <= {"DequantizeLinear"}
    assert session.explain().nodes


def test_long_chains_behind_a_weight_are_cut() -> None:
    length = 2000
    chain = [
        helper.make_node("Cast", [f"v{i}"], [f"v{i + 1}"], to=10 if i % 2 else 1)
        for i in range(length)
    ]
    session = onnxplug.InferenceSession(
        model(
            helper.make_node(
                "DequantizeLinear", ["w", "scale", "zero"], ["v0"], axis=1
            ),
            *chain,
            helper.make_node("Cast", [f"v{length}"], ["floats"], to=1),
            PRODUCT,
        )
    )
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, X @ WIDE, rtol=1e-2, atol=50)
