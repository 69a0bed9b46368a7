"""Linear classifiers and regressors."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.ml.scores import (
    class_labels,
    feature_rows,
    labels_at,
    transformed,
    two_class_scores,
)
from onnxplug_kernels.prepared import attribute_array
from onnxplug_kernels.registry import operator

_DOMAIN = "ai.onnx.ml"


@operator("LinearRegressor", since=1, domain=_DOMAIN)
def linear_regressor(
    xp: Any,
    x: Any,
    *,
    coefficients: tuple[float, ...] = (),
    intercepts: tuple[float, ...] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    scores = _scores(xp, x, coefficients, intercepts)
    if scores.shape[1] != targets:
        raise ValueError(
            f"LinearRegressor: {len(coefficients)} coefficients for {x.shape[-1]} "
            f"features make {scores.shape[1]} targets, but targets is {targets}"
        )
    return xp.astype(transformed(xp, scores, post_transform), xp.float32)


@operator("LinearClassifier", since=1, domain=_DOMAIN)
def linear_classifier(
    xp: Any,
    x: Any,
    *,
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    """The label and the scores of each row.

    *multi_class* says how the model was trained, which changes nothing here.  What is
    left of the coefficients when each class with an intercept has its own is not used,
    as in ONNX Runtime, if it is as much for each class.
    """
    labels = class_labels(xp, classlabels_strings, classlabels_ints)
    classes = len(intercepts)
    if (classes == labels.shape[0] or (classes, labels.shape[0]) == (1, 2)) and (
        x.shape[-1] and len(coefficients) % classes == 0
    ):
        coefficients = coefficients[: classes * x.shape[-1]]
    scores = _scores(xp, x, coefficients, intercepts)
    if scores.shape[1] == 1 and labels.shape[0] == 2:
        score = scores[:, 0]
        both = two_class_scores(xp, score, post_transform, complement=True)
        index = xp.astype(score > 0, xp.int64)
        return labels_at(xp, labels, index), xp.astype(both, xp.float32)
    if scores.shape[1] != labels.shape[0]:
        raise ValueError(
            f"LinearClassifier: {len(coefficients)} coefficients for {x.shape[-1]} "
            f"features make {scores.shape[1]} scores, but there are {labels.shape[0]} "
            f"labels"
        )
    probabilities = transformed(xp, scores, post_transform)
    index = xp.argmax(scores, axis=1)
    return labels_at(xp, labels, index), xp.astype(probabilities, xp.float32)


def _scores(
    xp: Any, x: Any, coefficients: tuple[float, ...], intercepts: tuple[float, ...]
) -> Any:
    rows = feature_rows(xp, x)
    if not coefficients or len(coefficients) % rows.shape[1]:
        raise ValueError(
            f"a linear model of {rows.shape[1]} features takes a multiple of that "
            f"many coefficients, not {len(coefficients)}"
        )
    matrix = attribute_array(xp, coefficients, rows.dtype)
    matrix = xp.reshape(matrix, (-1, rows.shape[1]))
    scores = rows @ matrix.T
    if intercepts:
        if len(intercepts) not in (1, scores.shape[1]):
            raise ValueError(
                f"a linear model of {scores.shape[1]} scores has {len(intercepts)} "
                f"intercepts"
            )
        scores = scores + attribute_array(xp, intercepts, rows.dtype)
    return scores
