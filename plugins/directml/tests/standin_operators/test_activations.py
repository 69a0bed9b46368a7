"""Activations and softmaxes: examples of the pages, and ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.operators import OPERATORS
from .examples import assert_documented, assert_rejected, evaluate, f32, i32
from .reference import of_onnx

RANDOM = np.random.default_rng(1).uniform(-3, 3, (2, 3, 4)).astype(np.float32)

ACTIVATIONS: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
    ("CELU", {"Alpha": 0.75}, lambda x: of_onnx("Celu", x, alpha=0.75)),
    ("ELU", {"Alpha": 0.5}, lambda x: of_onnx("Elu", x, alpha=0.5)),
    ("HARD_SIGMOID", {"Alpha": 0.2, "Beta": 0.5}, lambda x: of_onnx("HardSigmoid", x)),
    ("IDENTITY", {}, lambda x: x),
    ("LEAKY_RELU", {"Alpha": 0.125}, lambda x: of_onnx("LeakyRelu", x, alpha=0.125)),
    ("LINEAR", {"Alpha": 2, "Beta": -1}, lambda x: 2 * x - 1),
    (
        "PARAMETRIC_SOFTPLUS",
        {"Alpha": 2, "Beta": 3},
        lambda x: 2 * of_onnx("Softplus", 3 * x),
    ),
    ("RELU", {}, lambda x: of_onnx("Relu", x)),
    (
        "SCALED_ELU",
        {"Alpha": 1.5, "Gamma": 2},
        lambda x: of_onnx("Selu", x, alpha=1.5, gamma=2.0),
    ),
    (
        "SCALED_TANH",
        {"Alpha": 2, "Beta": 0.5},
        lambda x: 2 * of_onnx("Tanh", x / np.float32(2)),
    ),
    ("SIGMOID", {}, lambda x: of_onnx("Sigmoid", x)),
    ("SOFTPLUS", {"Steepness": 2}, lambda x: of_onnx("Softplus", 2 * x) / 2),
    ("SOFTSIGN", {}, lambda x: of_onnx("Softsign", x)),
    ("TANH", {}, lambda x: of_onnx("Tanh", x)),
    ("THRESHOLDED_RELU", {"Alpha": 1}, lambda x: of_onnx("ThresholdedRelu", x)),
    (
        "SHRINK",
        {"Bias": 0.25, "Threshold": 0.5},
        lambda x: of_onnx("Shrink", x, bias=0.25, lambd=0.5),
    ),
    ("GELU", {}, lambda x: of_onnx("Gelu", x)),
    (
        "SWISH",
        {"SigmoidInputScale": 1.5},
        lambda x: x * of_onnx("Sigmoid", np.float32(1.5) * x),
    ),
    ("HARD_SWISH", {"Alpha": 1 / 6, "Beta": 0.5}, lambda x: of_onnx("HardSwish", x)),
]


@pytest.mark.parametrize(
    ("name", "coefficients", "reference"), ACTIVATIONS, ids=[a[0] for a in ACTIVATIONS]
)
def test_activations(
    name: str, coefficients: dict[str, Any], reference: Callable[[Any], Any]
) -> None:
    fields: dict[str, Any] = {"InputTensor": RANDOM, "OutputTensor": RANDOM}
    (found,) = evaluate(f"ACTIVATION_{name}", **fields, **coefficients)
    np.testing.assert_allclose(found, reference(RANDOM), rtol=1e-6, atol=2e-7)


def test_those_that_may_be_fused() -> None:
    listed = """ELU HARD_SIGMOID IDENTITY LEAKY_RELU LINEAR PARAMETRIC_SOFTPLUS RELU
        SCALED_ELU SCALED_TANH SIGMOID SOFTPLUS SOFTSIGN TANH THRESHOLDED_RELU SHRINK
        CELU"""
    found = {name for name, each in OPERATORS.items() if each.apply is not None}
    assert found == {f"ACTIVATION_{name}" for name in listed.split()}


def test_integers_of_later_levels() -> None:
    x = i32([-2, 0, 3])
    relu: dict[str, Any] = {"InputTensor": x, "OutputTensor": i32([0, 0, 3])}
    assert_documented("ACTIVATION_RELU", **relu)
    assert_rejected("ACTIVATION_RELU", "InputTensor is INT32", (5, 0), **relu)
    assert_documented(
        "ACTIVATION_PARAMETERIZED_RELU",
        InputTensor=x,
        SlopeTensor=i32([3, 3, 3]),
        OutputTensor=i32([-6, 0, 3]),
    )
    assert_documented(
        "ACTIVATION_RELU_GRAD",
        InputTensor=x,
        InputGradientTensor=i32([5, 6, 7]),
        OutputGradientTensor=i32([0, 0, 7]),
    )


def test_steepness_is_at_least_1() -> None:
    fields: dict[str, Any] = {"InputTensor": f32([1]), "OutputTensor": f32([1])}
    assert_rejected("ACTIVATION_SOFTPLUS", "out of its range", Steepness=0.5, **fields)


EXAMPLE = f32([[[12, 0], [-101, 11]], [[3, 234], [0, -101]]])


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((1,), [[[1, 0], [0, 1]], [[1, 1], [0, 0]]]),
        ((0,), [[[1, 0], [0, 1]], [[0, 1], [1, 0]]]),
        ((0, 2), [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]),
        ((2, 0), [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]),
    ],
)
def test_hardmax_with_axes(axes: tuple[int, ...], expected: Any) -> None:
    assert_documented(
        "ACTIVATION_HARDMAX1",
        InputTensor=EXAMPLE,
        OutputTensor=f32(expected),
        AxisCount=len(axes),
        Axes=axes,
    )


def test_the_order_of_axes_does_not_decide_which_of_equal_values_is_first() -> None:
    x, y = f32([[0, 3], [3, 0]]), f32([[0, 1], [0, 0]])
    for axes in ((0, 1), (1, 0)):
        fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": y, "Axes": axes}
        assert_documented("ACTIVATION_HARDMAX1", **fields)


def test_hardmax_has_one_1_for_equal_values() -> None:
    assert_documented(
        "ACTIVATION_HARDMAX",
        InputTensor=f32([[2, 2, 1], [0, 3, 3]]),
        OutputTensor=f32([[1, 0, 0], [0, 1, 0]]),
    )


@pytest.mark.parametrize("axes", [(2,), (1,), (0, 2)])
def test_softmax_with_axes(axes: tuple[int, ...]) -> None:
    fields: dict[str, Any] = {
        "InputTensor": RANDOM,
        "OutputTensor": RANDOM,
        "Axes": axes,
    }
    exp = np.exp(RANDOM.astype(np.float64))
    expected = exp / exp.sum(axes, keepdims=True)
    (found,) = evaluate("ACTIVATION_SOFTMAX1", **fields)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    (found,) = evaluate("ACTIVATION_LOG_SOFTMAX1", **fields)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-6)


def test_softmax_without_axes_is_of_rows_of_two_dimensions() -> None:
    rows = RANDOM[None, :1]
    fields: dict[str, Any] = {"InputTensor": rows, "OutputTensor": rows}
    for name, onnx in (("SOFTMAX", "Softmax"), ("LOG_SOFTMAX", "LogSoftmax")):
        (found,) = evaluate(f"ACTIVATION_{name}", **fields)
        np.testing.assert_allclose(found, of_onnx(onnx, rows, axis=-1), rtol=1e-6)
    wrong: dict[str, Any] = {"InputTensor": RANDOM, "OutputTensor": RANDOM}
    for name in ("SOFTMAX", "LOG_SOFTMAX", "HARDMAX"):
        assert_rejected(f"ACTIVATION_{name}", "effective rank", **wrong)
        with_axes: dict[str, Any] = wrong | {"Axes": (3,)}
        assert_rejected(f"ACTIVATION_{name}1", "Axes", **with_axes)


def test_softmax_of_large_values_does_not_overflow() -> None:
    assert_documented(
        "ACTIVATION_SOFTMAX",
        InputTensor=f32([[1000, 1000]]),
        OutputTensor=f32([[0.5, 0.5]]),
    )
