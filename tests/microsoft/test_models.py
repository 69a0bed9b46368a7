"""Models as ONNX Runtime's optimiser writes them run compiled, all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onnxplug

DOMAIN = "com.microsoft"


def _encoder(opset: int) -> onnx.ModelProto:
    """One layer of a transformer's encoder, of opset *opset*."""
    random = np.random.default_rng(0)
    weights, nodes = [], []

    def weight(name: str, *shape: int) -> str:
        array = random.standard_normal(shape) / np.sqrt(shape[0])
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(operator: str, inputs: list[str], *outputs: str, **attributes) -> None:
        nodes.append(
            helper.make_node(operator, inputs, outputs, domain=DOMAIN, **attributes)
        )

    embedded = ["words", "places", "segments"]
    for name, rows in zip(embedded, (50, 16, 2), strict=True):
        weight(name, rows, 32)
    gains = [weight(name, 32) for name in ("gamma", "beta")]
    node(
        "EmbedLayerNormalization",
        ["ids", "kinds", *embedded, *gains, "mask"],
        *("x", "lengths"),
    )
    inputs = ["x", weight("qkv", 32, 96), weight("qkv_bias", 96), "lengths"]
    node("Attention", inputs, "mixed", num_heads=4)
    node("FusedMatMul", ["mixed", weight("out", 32, 32)], "projected", transB=1)
    inputs = ["projected", "x", *gains, weight("out_bias", 32)]
    node("SkipLayerNormalization", inputs, "middle", "", "", "sum")
    node("FusedMatMul", ["middle", weight("up", 32, 64)], "wide")
    node("BiasGelu", ["wide", weight("up_bias", 64)], "active")
    node("FusedMatMul", ["active", weight("down", 64, 32)], "narrow")
    node("SkipLayerNormalization", ["narrow", "sum", *gains], "y")
    shapes = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["batch", "length"])
        for name in ("ids", "kinds", "mask")
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph(nodes, "encoder", shapes, [result], weights),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)],
        ir_version=10,
    )


@pytest.mark.parametrize("opset", [11, 13, 17, 23])
def test_an_encoder_runs_compiled(opset):
    model = _encoder(opset).SerializeToString()
    session = onnxplug.InferenceSession(model)
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    for batch, length in ((1, 7), (2, 16)):
        ids = random.integers(0, 50, (batch, length)).astype(np.int32)
        mask = (np.arange(length) < length - 2).astype(np.int32) * np.ones_like(ids)
        feeds = {"ids": ids, "kinds": ids % 2, "mask": mask}
        (found,), (wanted,) = (s.run(None, feeds) for s in (session, oracle))
        assert np.abs(found - wanted).max() < 1e-5
    explanation = session.explain()
    assert {node.tier for node in explanation.nodes} == {"compiled"}
    assert len(explanation.expanded) == 8


def test_prepared_after_functions_are_in_place():
    """Shapes within bodies are folded as those of the model are."""
    model = _encoder(17)
    for value in model.graph.input:
        del value.type.tensor_type.shape.dim[:]
        for size in (2, 16):
            value.type.tensor_type.shape.dim.add(dim_value=size)
    session = onnxplug.InferenceSession(model.SerializeToString())
    operators = [node.op_type for node in session.explain().nodes]
    assert "Shape" not in operators and "Constant" not in operators


def test_what_the_optimiser_writes(tmp_path: Path):
    """A convolution with its activation, and the norms of opset 13."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    random = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,)), ("m", (6, 5)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["r"], alpha=0.2),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["t", "m"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    )
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    oracle = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    optimised = onnx.load(options.optimized_model_filepath)
    assert {"FusedConv", "FusedMatMul"} <= {n.op_type for n in optimised.graph.node}
    session = onnxplug.InferenceSession(options.optimized_model_filepath)
    feeds = {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (found,), (wanted,) = (s.run(None, feeds) for s in (session, oracle))
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_a_body_of_control_flow():
    then, other = (
        helper.make_graph(
            [helper.make_node(operator, ["x", *rest], [name], domain=DOMAIN)],
            name,
            [],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3])],
        )
        for operator, rest, name in (("Gelu", [], "t"), ("BiasGelu", ["x"], "e"))
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    c = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    model = helper.make_model(
        helper.make_graph([node], "g", [x, c], [y]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)],
        ir_version=10,
    ).SerializeToString()
    session = onnxplug.InferenceSession(model)
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for choice in (True, False):
        feeds = {"x": np.array([-1, 0.5, 2], np.float32), "c": np.array(choice)}
        (found,), (wanted,) = (s.run(None, feeds) for s in (session, oracle))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
