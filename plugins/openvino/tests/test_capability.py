"""What is refused, and why; what is taken is what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.ep import RefusalCode
from onnxplug_openvino.capability import load_list

EP = "OpenVINOExecutionProvider"


def reasons(model: Any, **options: Any) -> dict[str, Any]:
    """Operator → why OpenVINO does not run it, for the nodes it refused."""
    session = onnxplug.InferenceSession(model, providers=[(EP, options), "cpu"])
    found = session.explain()
    taken = {node.op_type: node.ep for node in found.nodes}
    refused = {
        node.op_type: passed.reason
        for node, passed in found.refusals
        if passed.ep == EP
    }
    assert all(taken[operator] != EP for operator in refused)
    return refused


@pytest.mark.filterwarnings("ignore:OpenVINOExecutionProvider")
@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "operator", "code"),
    [
        ("y = Relu (x)", "double[2] x", "double[2] y", "Relu", RefusalCode.DTYPE),
        ("y = Add (x, x)", "int64[2] x", "int64[2] y", "Add", RefusalCode.DTYPE),
        ("y = Add (x, x)", "int8[2] x", "int8[2] y", "Add", RefusalCode.DTYPE),
        (
            "y = AffineGrid (x, size)",  # of which it computes any, without an error
            "float[n, k, l] x", "float[n, 3, 2, 2] y", "AffineGrid",
            RefusalCode.DYNAMIC_SHAPE,
        ),
        (
            "y = Cast <to = 7> (x)",
            "float[2] x", "int64[2] y", "Cast", RefusalCode.DTYPE,
        ),
        (
            "y = StringNormalizer (x)",
            "string[2] x", "string[n] y", "StringNormalizer", RefusalCode.OP,
        ),
        (
            "s = SequenceConstruct (x) i = Constant <value_int = 0> () "
            "y = SequenceAt (s, i)",
            "float[2] x", "float[2] y", "SequenceAt", RefusalCode.OP,
        ),
    ],
)  # fmt: skip
def test_every_refusal_has_its_code(
    parse: Callable[..., Any],
    body: str,
    inputs: str,
    outputs: str,
    operator: str,
    code: RefusalCode,
) -> None:
    model = parse(body, inputs, outputs, weights="int64[4] size = {2, 1, 3, 2}")
    reason = reasons(model)[operator]
    assert reason.code is code
    assert reason.detail


def test_control_flow_is_left_to_the_host(parse: Callable[..., Any]) -> None:
    body = """
        c = ReduceMax <keepdims = 0> (x)
        z = Constant <value_float = 0.0> ()
        p = Greater (c, z)
        y = If (p) <
            then_branch = g1 () => (float[2, 2] a) { a = Relu (x) },
            else_branch = g2 () => (float[2, 2] b) { b = Neg (x) }
        >
    """
    session = onnxplug.InferenceSession(parse(body), providers=[EP, "cpu"])
    placed = {(n.graph, n.op_type): n.ep for n in session.explain().nodes}
    assert placed["", "If"] == "host"
    assert {ep for (graph, _), ep in placed.items() if graph} == {EP}
    x = np.array([[1, -2], [3, -4]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
    np.testing.assert_array_equal(session.run(None, {"x": -abs(x)})[0], abs(x))


def test_int64_from_shapes_is_taken(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    model = parse(
        """
        s = Shape (x)
        n = Gather <axis = 0> (s, zero)
        m = Mul (n, two)
        p = Unsqueeze (m, axes)
        q = Concat <axis = 0> (p, minus)
        y = Reshape (x, q)
        """,
        "float[n, 4] x",
        "float[m, k] y",
        weights="int64 zero = {0}, int64 two = {2}, int64[1] axes = {0}, "
        "int64[1] minus = {-1}",
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(alone(model).run(None, {"x": x})[0], x.reshape(6, 2))


@pytest.mark.filterwarnings("ignore:OpenVINOExecutionProvider")
def test_int64_of_unknown_range_is_right_by_default(parse: Callable[..., Any]) -> None:
    model = parse("y = Add (x, x)", "int64[2] x", "int64[2] y")
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    x = np.array([2**40, -3])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + x)


def test_int64_is_taken_for_granted_when_told_so(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    model = parse("y = Cast <to = 1> (x)", "int64[3] x", "float[3] y")
    session = alone(model, int64_in_32_bits=True)
    assert session.run(None, {"x": np.array([0, 1, 7])})[0].tolist() == [0, 1, 7]


def test_token_ids_are_indices(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    model = parse(
        "y = Gather <axis = 0> (table, x)", "int64[n] x", "float[n, 2] y",
        weights="float[3, 2] table = {0, 1, 2, 3, 4, 5}",
    )  # fmt: skip
    found = alone(model).run(None, {"x": np.array([2, 0])})[0]
    np.testing.assert_array_equal(found, [[4, 5], [0, 1]])


@pytest.mark.parametrize(
    ("channels", "ep"), [(8, EP), (24, "CPUExecutionProvider"), (32, EP)]
)
@pytest.mark.parametrize("operator", ["GlobalAveragePool (c)", "ReduceMean (c, image)"])
def test_channels_that_are_equal_have_equal_means_where_these_are_compared(
    parse: Callable[..., Any], operator: str, channels: int, ep: str
) -> None:
    shape = f"[1, {channels}, 13, 13]"
    model = parse(
        f"c = Conv (x, w) m = {operator} y = Flatten (m) s = Softmax (y)",
        f"float{shape} x", f"float[1, {channels}] y, float[1, {channels}] s",
        weights="int64[2] image = {2, -1}, "
        f"float[{channels}, {channels}, 1, 1] w = "
        f"{{{', '.join(['0.1'] * channels**2)}}}",
    )  # fmt: skip
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    placed = {node.op_type: node.ep for node in session.explain().nodes}
    assert placed["Conv"] == EP and placed[operator.split()[0]] == ep
    x = np.random.default_rng(0).random((1, channels, 13, 13), np.float32)
    means, _ = session.run(None, {"x": x})
    assert np.unique(means).size == 1


def test_channels_that_only_weigh_others_are_summed_anyhow(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    # as in the squeeze and excitation of MobileNetV3, of 72 and 120 channels
    model = parse(
        "m = GlobalAveragePool (x) w = Sigmoid (m) y = Mul (x, w)",
        "float[1, 72, 7, 7] x", "float[1, 72, 7, 7] y",
    )  # fmt: skip
    x = np.random.default_rng(0).random((1, 72, 7, 7), np.float32)
    right = x / (1 + np.exp(-x.mean((2, 3), keepdims=True)))
    np.testing.assert_allclose(alone(model).run(None, {"x": x})[0], right, rtol=1e-5)


def test_sums_over_features_are_taken_though_they_are_compared(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    model = parse(
        "m = ReduceMean (x, last) y = Softmax <axis = 1> (m)",
        "float[1, 17, 3, 5] x", "float[1, 17, 3, 1] y",
        weights="int64[1] last = {-1}",
    )  # fmt: skip
    x = np.random.default_rng(0).random((1, 17, 3, 5), np.float32)
    powers = np.exp(x.mean(-1, keepdims=True))
    found = alone(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-6)


def test_the_table_holds_no_wide_types() -> None:
    for operator, facts in load_list().operators.items():
        for signature in facts["types"]:
            assert {"float64", "uint64", "uint32"}.isdisjoint(signature.split(",")), (
                operator
            )
