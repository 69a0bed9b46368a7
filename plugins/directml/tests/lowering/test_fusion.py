"""Nodes that are computed within the node before them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxplug_directml.abi.directml import DML_OPERATOR_TYPE
from onnxplug_directml.lowering.graph import Graph, Operator, TensorDesc

Lowered = Callable[..., Graph]

SQUARE = "float[3, 3] x"
RESULT = "float[3, 3] y"


def shown(graph: Graph) -> list[str]:
    """Operators, with what is fused into them."""
    found = []
    for node in graph.nodes:
        fused = node.operator.fields.get("FusedActivation")
        more = f" {fused.type.name}" if isinstance(fused, Operator) else ""
        found.append(node.operator.type.name + more)
    return found


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("a = MatMul (x, x)\n y = Relu (a)", ["GEMM ACTIVATION_RELU"]),
        ("a = Add (x, x)\n y = Elu (a)", ["ELEMENT_WISE_ADD1 ACTIVATION_ELU"]),
        # in turn: the sum into the product, then the activation
        (
            "a = MatMul (x, x)\n b = Add (x, a)\n y = Tanh (b)",
            ["GEMM ACTIVATION_TANH"],
        ),
        # one activation only
        (
            "a = MatMul (x, x)\n b = Relu (a)\n y = Sigmoid (b)",
            ["GEMM ACTIVATION_RELU", "ACTIVATION_SIGMOID"],
        ),
        # no sum after an activation
        (
            "a = MatMul (x, x)\n b = Relu (a)\n y = Add (b, x)",
            ["GEMM ACTIVATION_RELU", "ELEMENT_WISE_ADD"],
        ),
        # what others need is there
        (
            "a = MatMul (x, x)\n b = Relu (a)\n y = Mul (a, b)",
            ["GEMM", "ACTIVATION_RELU", "ELEMENT_WISE_MULTIPLY"],
        ),
        # no operator computes it
        ("a = Mul (x, x)\n y = Relu (a)", ["ELEMENT_WISE_MULTIPLY", "ACTIVATION_RELU"]),
        ("a = MatMul (x, x)\n y = Softmax (a)", ["GEMM", "ACTIVATION_SOFTMAX"]),
        # what is added is made later
        (
            "a = MatMul (x, x)\n c = Exp (a)\n b = Exp (x)\n d = MatMul (c, c)\n"
            "y = Add (d, b)",
            ["GEMM", "ELEMENT_WISE_EXP", "ELEMENT_WISE_EXP", "GEMM"],
        ),
        (
            "d = MatMul (x, x)\n b = Exp (x)\n y = Add (d, b)",
            ["GEMM", "ELEMENT_WISE_EXP", "ELEMENT_WISE_ADD"],
        ),
    ],
)
def test_what_is_fused(lowered: Lowered, body: str, wanted: list[str]) -> None:
    assert shown(lowered(body, SQUARE, RESULT)) == wanted


def test_an_output_of_the_graph_is_not_fused_away(lowered: Lowered) -> None:
    graph = lowered(
        "a = MatMul (x, x)\n y = Relu (a)", SQUARE, f"{RESULT}, float[3, 3] a"
    )
    assert shown(graph) == ["GEMM", "ACTIVATION_RELU"]


def test_a_bias_is_repeated_to_the_rows_of_the_product(lowered: Lowered) -> None:
    graph = lowered(
        "a = MatMul (x, w)\n y = Add (b, a)", "float[2, 4, 3] x", "float[2, 4, 2] y",
        weights="float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}",
    )  # fmt: skip
    (node,) = graph.nodes
    assert node.operator.type is DML_OPERATOR_TYPE.GEMM
    assert node.operator.fields["Beta"] == 1.0
    addend = node.operator.fields["CTensor"]
    assert isinstance(addend, TensorDesc)
    assert (addend.sizes, addend.strides) == ((8, 2), (0, 1))


def test_what_strides_cannot_tell_is_added_apart(lowered: Lowered) -> None:
    graph = lowered(
        "a = MatMul (x, w)\n y = Add (b, a)", "float[2, 4, 3] x", "float[2, 4, 2] y",
        weights="float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[4, 1] b = {1, 2, 3, 4}",
    )  # fmt: skip
    assert shown(graph) == ["GEMM", "ELEMENT_WISE_ADD"]


def test_integers_are_added_apart(lowered: Lowered) -> None:
    graph = lowered("a = Add (x, x)\n y = Relu (a)", "int32[3] x", "int32[3] y")
    assert shown(graph) == ["ELEMENT_WISE_ADD", "ELEMENT_WISE_CLIP1"]


WEIGHTS = (
    "float[2, 1, 1] w = {1, 2}, float[2] s = {4, 5}, float[2] o = {6, 7},"
    "float[2] m = {1, 3}, float[2] v = {3, 15}"
)
NORMALIZED = (
    "c = Conv (x, w)\n n = BatchNormalization <epsilon = 1.0> (c, s, o, m, v)\n"
    "y = Relu (n)"
)


def test_a_normalisation_becomes_weights(lowered: Lowered) -> None:
    graph = lowered(NORMALIZED, "float[1, 1, 4] x", "float[1, 2, 4] y", weights=WEIGHTS)
    assert shown(graph) == ["CONVOLUTION ACTIVATION_RELU"]
    filters, biases = (each.constant for each in graph.inputs if each.name != "x")
    # s / sqrt (v + 1) is 2 and 5/4
    np.testing.assert_allclose(filters.reshape(-1), [2, 2.5])
    np.testing.assert_allclose(biases.reshape(-1), [4, 3.25])


@pytest.mark.parametrize(
    ("weights", "inputs"),
    [
        (WEIGHTS.replace("3, 15", "-9, 15"), ""),  # of a negative variance
        (WEIGHTS.replace(", float[2] o = {6, 7}", ""), ", float[2] o"),  # is fed
    ],
)
def test_what_gives_no_weights_is_a_node(
    lowered: Lowered, weights: str, inputs: str
) -> None:
    graph = lowered(
        NORMALIZED, f"float[1, 1, 4] x{inputs}", "float[1, 2, 4] y", weights=weights
    )
    assert shown(graph) == ["CONVOLUTION", "BATCH_NORMALIZATION ACTIVATION_RELU"]
