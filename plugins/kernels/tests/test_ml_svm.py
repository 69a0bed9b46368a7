"""Support vector machines against ONNX Runtime and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import ML, onnx_runtime, run

RANDOM = np.random.default_rng(13)
X = RANDOM.standard_normal((30, 3)).astype(np.float32)
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]
BOTH = (TensorProto.INT64, TensorProto.FLOAT)


def floats(count: int) -> tuple[float, ...]:
    return tuple(RANDOM.standard_normal(count).astype(np.float32).tolist())


def ml(op_type: str, *inputs: Any, **attributes: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return run(op_type, *inputs, domain=ML, version=1, output_count=2, **attributes)


def runtime(op_type: str, *inputs: Any, **attributes: Any) -> Any:
    return onnx_runtime(op_type, *inputs, domain=ML, version=1, **attributes)


def machine(classes: int, kernel: str, probability: bool) -> dict[str, Any]:
    vectors = (3, 2, 4, 1)[:classes]
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "classlabels_ints": (5, -1, 7, 9)[:classes],
        "vectors_per_class": vectors,
        "support_vectors": floats(sum(vectors) * 3),
        "coefficients": floats(sum(vectors) * (classes - 1)),
        "rho": floats(pairs),
        "kernel_type": kernel,
        "kernel_params": (0.5, 0.25, 3.0),
    }
    if probability:
        attributes |= {"prob_a": floats(pairs), "prob_b": floats(pairs)}
    return attributes


@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_classifier(classes: int, kernel: str, probability: bool) -> None:
    attributes = machine(classes, kernel, probability)
    for dtype in (np.float32, np.float64, np.int64):
        x = (X * 2).astype(dtype)
        labels, scores = ml("SVMClassifier", x, **attributes)
        expected = runtime("SVMClassifier", x, outputs=BOTH, **attributes)
        assert (labels.dtype, scores.dtype) == (np.int64, np.float32)
        assert labels.tolist() == expected[0].tolist()
        np.testing.assert_allclose(scores, expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_transforms(classes: int, probability: bool, post_transform: str) -> None:
    attributes = machine(classes, "RBF", probability)
    attributes["post_transform"] = post_transform
    labels, scores = ml("SVMClassifier", X, **attributes)
    expected = runtime("SVMClassifier", X, outputs=BOTH, **attributes)
    assert labels.tolist() == expected[0].tolist()
    assert scores.shape == expected[1].shape
    # from one score, ONNX Runtime makes a probit of the first column only
    if (classes, probability, post_transform) != (2, False, "PROBIT"):
        np.testing.assert_allclose(scores, expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classifier_without_vectors(
    classes: int, probability: bool, positive: bool
) -> None:
    coefficients = floats(classes * 3)
    attributes: dict[str, Any] = {
        "classlabels_strings": ("a", "b", "c")[:classes],
        "coefficients": tuple(map(abs, coefficients)) if positive else coefficients,
        "rho": floats(1),
        "kernel_params": (0.0, 0.0, 0.0),
        "kernel_type": "RBF",
        "post_transform": "SOFTMAX",
    }
    if probability:
        attributes |= {"prob_a": floats(3), "prob_b": floats(3)}
    labels, scores = ml("SVMClassifier", X, **attributes)
    kinds = (TensorProto.STRING, TensorProto.FLOAT)
    expected = runtime("SVMClassifier", X, outputs=kinds, **attributes)
    assert labels.dtype == object
    assert labels.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressor(kernel: str, one_class: int) -> None:
    attributes: dict[str, Any] = {
        "coefficients": floats(5),
        "support_vectors": floats(15),
        "n_supports": 5,
        "rho": floats(1),
        "kernel_type": kernel,
        "kernel_params": (0.5, 0.25, 2.0),
        "one_class": one_class,
    }
    result = ml("SVMRegressor", X, **attributes)
    (expected,) = runtime("SVMRegressor", X, **attributes)
    assert (result.dtype, result.shape) == (np.float32, (30, 1))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_regressor_without_vectors() -> None:
    attributes: dict[str, Any] = {
        "coefficients": floats(3),
        "rho": floats(1),
        "kernel_params": (0.0, 0.0, 0.0),
    }
    raw = ml("SVMRegressor", X, **attributes)
    (expected,) = runtime("SVMRegressor", X, n_supports=0, **attributes)
    np.testing.assert_allclose(raw, expected, rtol=1e-4, atol=1e-6)
    # ONNX Runtime does not transform here, against the specification
    result = ml("SVMRegressor", X, post_transform="LOGISTIC", **attributes)
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-raw)), rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scikit_learn(classes: int) -> None:
    svm = pytest.importorskip("sklearn.svm")
    x = RANDOM.standard_normal((120, 3)).astype(np.float32)
    y = np.argsort(np.argsort(x.sum(axis=1))) * classes // 120
    model = svm.SVC(decision_function_shape="ovo", gamma=0.5).fit(x, y)
    sign = -1 if classes == 2 else 1
    labels, scores = ml(
        "SVMClassifier",
        x,
        classlabels_ints=tuple(range(classes)),
        vectors_per_class=tuple(model.n_support_.tolist()),
        support_vectors=tuple(model.support_vectors_.ravel().tolist()),
        coefficients=tuple(sign * model.dual_coef_.ravel()),
        rho=tuple(sign * model.intercept_),
        kernel_type="RBF",
        kernel_params=(0.5, 0.0, 0.0),
    )
    decision = model.decision_function(x)
    if classes == 2:
        decision = np.stack((decision, -decision), axis=1)
    np.testing.assert_allclose(scores, decision, rtol=1e-4, atol=1e-5)
    assert labels.tolist() == model.predict(x).tolist()


def test_refusals() -> None:
    attributes = machine(3, "RBF", False)
    with pytest.raises(ValueError, match="has 3 entries for 2 labels"):
        ml("SVMClassifier", X, **attributes | {"classlabels_ints": (1, 2)})
    with pytest.raises(ValueError, match="takes 18 coefficients, not 17"):
        shorter = attributes["coefficients"][1:]
        ml("SVMClassifier", X, **attributes | {"coefficients": shorter})
    with pytest.raises(ValueError, match="9 support vectors of 2 features"):
        ml("SVMClassifier", X[:, :2], **attributes)
    with pytest.raises(ValueError, match="'COSINE'"):
        ml("SVMClassifier", X, **attributes | {"kernel_type": "COSINE"})
    with pytest.raises(ValueError, match="3 coefficients, one for each feature, not 2"):
        ml("SVMRegressor", X, coefficients=floats(2), rho=(0.0,))
