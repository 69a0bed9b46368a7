"""Linear models against ONNX Runtime and, where it stops short, the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import ML, onnx_runtime, run

RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((20, 4)).astype(np.float32)
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


def floats(count: int) -> tuple[float, ...]:
    return tuple(RANDOM.standard_normal(count).astype(np.float32).tolist())


def f32(values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def ml(op_type: str, *inputs: Any, **attributes: Any) -> Any:
    return run(op_type, *inputs, domain=ML, version=1, output_count=2, **attributes)


@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("intercepts", [True, False])
def test_regressor(post_transform: str, intercepts: bool) -> None:
    attributes: dict[str, Any] = {
        "coefficients": floats(12),
        "targets": 3,
        "post_transform": post_transform,
    }
    if intercepts:
        attributes["intercepts"] = floats(3)
    # of what is no probability, the probit is not defined
    x = X / 8 if post_transform == "PROBIT" else X
    with np.errstate(invalid="ignore"):
        result = ml("LinearRegressor", x, **attributes)
    (expected,) = onnx_runtime("LinearRegressor", x, domain=ML, version=1, **attributes)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=1e-5)


def test_regressor_of_one_target() -> None:
    attributes: dict[str, Any] = {"coefficients": floats(4), "intercepts": (0.5,)}
    raw = ml("LinearRegressor", X, **attributes)
    (expected,) = onnx_runtime(
        "LinearRegressor", X, domain=ML, version=1, targets=1, **attributes
    )
    np.testing.assert_allclose(raw, expected, rtol=1e-5)
    # ONNX Runtime leaves the score as it is here, against the specification
    result = ml("LinearRegressor", X, post_transform="LOGISTIC", **attributes)
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-raw)), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_regressor_of_other_types(dtype: Any) -> None:
    x = (X * 9).astype(dtype)
    coefficients = floats(8)
    result = ml("LinearRegressor", x, coefficients=coefficients, targets=2)
    assert result.dtype == np.float32
    expected = x @ np.reshape(coefficients, (2, 4)).T
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    one = ml("LinearRegressor", x[0], coefficients=coefficients, targets=2)
    np.testing.assert_allclose(one, expected[:1], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 2, 3])
def test_classifier(targets: int, post_transform: str, text: bool, dtype: Any) -> None:
    attributes: dict[str, Any] = {
        "coefficients": floats(4 * targets),
        "intercepts": floats(targets),
        "post_transform": post_transform,
        "multi_class": 1,
    }
    labels = max(2, targets)
    if text:
        attributes["classlabels_strings"] = ("no", "yes", "maybe")[:labels]
    else:
        attributes["classlabels_ints"] = (7, -2, 11)[:labels]
    x = (X * 3).astype(dtype)
    with np.errstate(invalid="ignore"):
        label, scores = ml("LinearClassifier", x, **attributes)
    kind = TensorProto.STRING if text else TensorProto.INT64
    expected = onnx_runtime(
        "LinearClassifier",
        x,
        domain=ML,
        version=1,
        outputs=(kind, TensorProto.FLOAT),
        **attributes,
    )
    assert (label.dtype, scores.dtype) == (expected[0].dtype, np.float32)
    assert label.tolist() == expected[0].tolist()
    assert scores.shape == expected[1].shape
    # from one score, ONNX Runtime makes a probit in a place of its own choice
    if (targets, post_transform) != (1, "PROBIT"):
        np.testing.assert_allclose(scores, expected[1], rtol=2e-4, atol=1e-5)


def test_probit_of_one_score_is_symmetric() -> None:
    x = f32([[0.5], [0.975]])
    _, scores = ml(
        "LinearClassifier",
        x,
        coefficients=(1.0,),
        classlabels_ints=(0, 1),
        post_transform="PROBIT",
    )
    np.testing.assert_allclose(scores, f32([[0, 0], [-1.96, 1.96]]), atol=0.01)


def test_softmax_zero_leaves_zeros() -> None:
    result = ml(
        "LinearRegressor",
        f32([[1]]),
        coefficients=(0.0, 1.0, 2.0),
        targets=3,
        post_transform="SOFTMAX_ZERO",
    )
    odds = np.array([0, np.exp(1), np.exp(2)])
    np.testing.assert_allclose(result[0], odds / odds.sum(), rtol=1e-6)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="multiple of that many coefficients, not 5"):
        ml("LinearRegressor", X, coefficients=floats(5))
    with pytest.raises(ValueError, match="make 2 targets, but targets is 1"):
        ml("LinearRegressor", X, coefficients=floats(8))
    with pytest.raises(ValueError, match="make 2 scores, but there are 3 labels"):
        ml("LinearClassifier", X, coefficients=floats(8), classlabels_ints=(1, 2, 3))
    with pytest.raises(ValueError, match="0 strings and 0 integers"):
        ml("LinearClassifier", X, coefficients=floats(8))
    with pytest.raises(ValueError, match="'EXP'"):
        ml("LinearRegressor", X, coefficients=floats(4), post_transform="EXP")
    with pytest.raises(ValueError, match=r"\(1, 20, 4\)"):
        ml("LinearRegressor", X[None], coefficients=floats(4))
