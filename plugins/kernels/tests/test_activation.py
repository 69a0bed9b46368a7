"""Activation functions against the specification's formulas, one number at a time."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .node_oracles import reference, run

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def unit(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def bounded(x: float) -> float:
    return max(0.0, min(1.0, x))


FORMULAS: list[tuple[str, dict[str, Any], Any]] = [
    ("Celu", {"alpha": 2.0}, lambda x: max(0, x) + min(0, 2 * math.expm1(x / 2))),
    ("Elu", {}, lambda x: x if x >= 0 else math.expm1(x)),
    ("Elu", {"alpha": 0.5}, lambda x: x if x >= 0 else 0.5 * math.expm1(x)),
    ("Gelu", {}, lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    (
        "Gelu",
        {"approximate": "tanh"},
        lambda x: (
            0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        ),
    ),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}, lambda x: bounded(0.5 * x + 0.25)),
    ("HardSwish", {}, lambda x: x * bounded(x / 6 + 0.5)),
    ("LeakyRelu", {"alpha": 0.25}, lambda x: x if x >= 0 else 0.25 * x),
    ("LeakyRelu", {"alpha": -0.5}, lambda x: x if x >= 0 else -0.5 * x),
    ("LeakyRelu", {"alpha": 3.0}, lambda x: x if x >= 0 else 3.0 * x),
    ("Mish", {}, lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    ("Relu", {}, lambda x: max(x, 0)),
    (
        "Selu",
        {"alpha": 1.5, "gamma": 2.0},
        lambda x: 2 * x if x > 0 else 3 * math.expm1(x),
    ),
    ("Sigmoid", {}, logistic),
    ("Softplus", {}, lambda x: math.log1p(math.exp(x))),
    ("Softsign", {}, lambda x: x / (1 + abs(x))),
    ("Swish", {"alpha": 0.5}, lambda x: x * logistic(0.5 * x)),
    ("Swish", {}, lambda x: x * logistic(x)),
    ("ThresholdedRelu", {"alpha": 0.75}, lambda x: x if x > 0.75 else 0),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(201,), (), (3, 0)])
@pytest.mark.parametrize(("op_type", "attributes", "formula"), FORMULAS)
def test_formula(
    op_type: str, attributes: Any, formula: Any, shape: Any, dtype: Any
) -> None:
    x = np.linspace(-12, 12, 201) if shape == (201,) else np.full(shape, -1.25)
    x = x.astype(dtype)
    expected = [formula(v) for v in x.astype(np.float64).reshape(-1).tolist()]
    result = run(op_type, x, version=24, **attributes)
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (dtype, shape)
    epsilon = unit(dtype)
    np.testing.assert_allclose(
        result.astype(np.float64).reshape(-1),
        expected,
        rtol=4 * epsilon,
        atol=4 * min(epsilon, 1e-7),
    )


@pytest.mark.parametrize(
    ("op_type", "expected"),
    [
        ("Relu", [0, 80000]),
        ("Sigmoid", [0, 1]),
        ("Softplus", [0, 80000]),
        ("Mish", [0, 80000]),
        ("Swish", [0, 80000]),
        ("Elu", [-1, 80000]),
        ("Celu", [-1, 80000]),
        ("Gelu", [0, 80000]),
        ("HardSwish", [0, 80000]),
    ],
)
def test_large_numbers(op_type: str, expected: Any) -> None:
    x = np.array([-80000, 80000], dtype=np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(run(op_type, x, version=24), expected, atol=1e-9)


@pytest.mark.parametrize("op_type", sorted({formula[0] for formula in FORMULAS}))
def test_nan(op_type: str) -> None:
    result = run(op_type, np.array([math.nan], dtype=np.float32), version=24)
    # NaN is not above a threshold
    assert np.isnan(result).item() == (op_type != "ThresholdedRelu")


@pytest.mark.parametrize(
    ("op_type", "version"),
    [
        *((name, 22) for name in ("Elu", "HardSigmoid", "LeakyRelu", "Selu")),
        ("ThresholdedRelu", 22),
        ("Celu", 12),
        ("Selu", 6),
    ],
)
def test_default_attributes(op_type: str, version: int) -> None:
    x = np.linspace(-3, 3, 20, dtype=np.float32)
    (expected,) = reference(op_type, x, version=version)
    np.testing.assert_allclose(
        run(op_type, x, version=version), expected, rtol=1e-5, atol=1e-7
    )


def test_selu_of_opset_1_has_other_defaults() -> None:
    x = np.array([1, -50], dtype=np.float64)
    np.testing.assert_allclose(
        run("Selu", x, version=1, consumed_inputs=(0,)),
        [1.0507, -1.0507 * 1.6732],
        rtol=1e-7,
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_relu_of_integers(dtype: Any) -> None:
    result = run("Relu", np.array([-3, 0, 4], dtype=dtype))
    assert result.dtype == dtype
    assert result.tolist() == [0, 0, 4]


def test_gelu_knows_two_approximations() -> None:
    with pytest.raises(ValueError, match="none or tanh"):
        run("Gelu", np.zeros(1, np.float32), approximate="erf")


@pytest.mark.parametrize("dtype", FLOATS)
def test_swiglu(dtype: Any) -> None:
    a = np.linspace(-3, 3, 7).astype(dtype)
    b = np.linspace(2, -1, 7).astype(dtype)
    result = run("SwiGLU", a, b, alpha=0.5, version=28)
    assert result.dtype == dtype
    expected = [
        x * logistic(0.5 * x) * y
        for x, y in zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True)
    ]
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=4 * unit(dtype)
    )
    with pytest.raises(ValueError, match="equal"):
        run("SwiGLU", a, b[:1], version=28)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float16, np.float64])
def test_shrink(dtype: Any) -> None:
    x = np.array([-5, -2, -1, 0, 1, 2, 5], dtype=dtype)
    result = run("Shrink", x, lambd=1.5, bias=1.0)
    assert result.dtype == dtype
    assert result.tolist() == [-4, -1, 0, 0, 0, 1, 4]
    uneven = run("Shrink", x, lambd=1.5, bias=1.5)
    assert uneven.dtype == dtype
    exact = [-3.5, -0.5, 0, 0, 0, 0.5, 3.5]
    is_integer = np.dtype(dtype).kind == "i"
    assert uneven.tolist() == [math.trunc(v) if is_integer else v for v in exact]


def test_shrink_of_large_integers_is_exact() -> None:
    x = np.array([2**62 + 1], dtype=np.int64)
    assert run("Shrink", x, lambd=1.5, bias=1.0).tolist() == [2**62]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, *FLOATS])
def test_prelu(dtype: Any) -> None:
    x = np.array([[-2, 0, 3], [4, -6, -8]], dtype=dtype)
    slope = np.array([2, 3, 4], dtype=dtype)
    result = run("PRelu", x, slope)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(float), [[-4, 0, 3], [4, -18, -32]])


def test_prelu_of_opset_6_has_a_slope_per_channel() -> None:
    x = np.full((2, 3, 2), -1, dtype=np.float32)
    slope = np.array([1, 2, 3], dtype=np.float32)
    for attributes in ({"version": 6}, {"version": 1, "consumed_inputs": (0, 0)}):
        result = run("PRelu", x, slope, **attributes)
        np.testing.assert_array_equal(result[1], [[-1, -1], [-2, -2], [-3, -3]])


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
@pytest.mark.parametrize("outputs", [1, 2])
def test_dropout_keeps_everything_when_not_training(version: int, outputs: int) -> None:
    x = np.arange(6, dtype=np.float32)
    result = run("Dropout", x, version=version, output_count=outputs)
    kept, *masks = result if isinstance(result, tuple) else (result,)
    np.testing.assert_array_equal(kept, x)
    assert len(masks) == outputs - 1
    for mask in masks:
        assert mask.dtype == (np.float32 if version == 7 else bool)
        assert mask.all()


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e5m2])
def test_dropout_in_training(dtype: Any) -> None:
    x = np.ones(4000, dtype=dtype)
    arguments = (np.array(0.75, dtype=np.float32), np.array(True))
    result, mask = run("Dropout", x, *arguments, seed=3, version=22, output_count=2)
    assert (result.dtype, mask.dtype) == (dtype, bool)
    np.testing.assert_array_equal(result.astype(float), np.where(mask, 4, 0))
    assert 0.2 < mask.mean() < 0.3
    _, same = run("Dropout", x, *arguments, seed=3, version=22, output_count=2)
    np.testing.assert_array_equal(mask, same)
    _, other = run("Dropout", x, *arguments, seed=4, version=22, output_count=2)
    assert (mask != other).any()


def test_dropout_of_a_scalar_is_an_array() -> None:
    x = np.array(3, np.float32)
    arguments = (np.array(0.5, np.float32), np.array(True))
    result, mask = run("Dropout", x, *arguments, seed=0, version=22, output_count=2)
    assert isinstance(result, np.ndarray)
    assert result == (6 if mask else 0)


@pytest.mark.parametrize("version", [1, 6])
def test_dropout_trained_unless_it_was_a_test(version: int) -> None:
    x = np.ones(4000, dtype=np.float32)
    result, mask = run("Dropout", x, version=version, output_count=2)
    assert mask.dtype == np.float32
    assert 0.4 < mask.mean() < 0.6
    np.testing.assert_array_equal(result, 2 * mask)
    np.testing.assert_array_equal(run("Dropout", x, version=version, is_test=1), x)
