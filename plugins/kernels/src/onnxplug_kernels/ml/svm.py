"""Support vector machines, as LIBSVM and LIBLINEAR train them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.authoring.bounds import at_least
from onnxplug_kernels.ml.scores import (
    class_labels,
    feature_rows,
    labels_at,
    logistic,
    transformed,
    two_class_scores,
)
from onnxplug_kernels.prepared import attribute_array, prepared_once
from onnxplug_kernels.registry import operator

_DOMAIN = "ai.onnx.ml"


@operator("SVMRegressor", since=1, domain=_DOMAIN)
def svm_regressor(
    xp: Any,
    x: Any,
    *,
    coefficients: tuple[float, ...],
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: tuple[float, ...],
    support_vectors: tuple[float, ...] = (),
) -> Any:
    """A value per row; for one class, 1 inside of it and -1 outside."""
    rows = xp.astype(feature_rows(xp, x), xp.float64)
    at_least(0, [n_supports], "n_supports")
    _check_rho(rho, 1)
    if n_supports:
        similarity = _kernel(
            xp, rows, support_vectors, n_supports, kernel_type, kernel_params
        )
    else:
        similarity = rows
    if len(coefficients) != similarity.shape[1]:
        raise ValueError(
            f"SVMRegressor takes {similarity.shape[1]} coefficients, one for each "
            f"{'support vector' if n_supports else 'feature'}, not {len(coefficients)}"
        )
    weights = attribute_array(xp, coefficients, xp.float64)
    scores = (similarity @ weights + rho[0])[:, None]
    if one_class:
        return 2 * xp.astype(scores > 0, xp.float32) - 1
    return xp.astype(transformed(xp, scores, post_transform), xp.float32)


@operator("SVMClassifier", since=1, domain=_DOMAIN)
def svm_classifier(
    xp: Any,
    x: Any,
    *,
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: tuple[float, ...],
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: tuple[float, ...] = (),
    prob_b: tuple[float, ...] = (),
    rho: tuple[float, ...],
    support_vectors: tuple[float, ...] = (),
    vectors_per_class: tuple[int, ...] = (),
) -> Any:
    """The label and the scores of each row.

    The scores are one per class if there are no support vectors or if there are
    coefficients of probabilities, and otherwise one per pair of classes.
    """
    labels = class_labels(xp, classlabels_strings, classlabels_ints)
    rows = xp.astype(feature_rows(xp, x), xp.float64)
    vector_count = sum(at_least(0, vectors_per_class, "vectors_per_class"))
    if not vector_count:
        _check_rho(rho, 1)
        index, scores = _linear_classes(xp, rows, labels.shape[0], coefficients, rho[0])
        if labels.shape[0] == 2 and not prob_a:
            index = _second_of_two(xp, index, scores, coefficients)
        scores = transformed(xp, scores, post_transform)
        return labels_at(xp, labels, index), xp.astype(scores, xp.float32)
    if labels.shape[0] < 2 or len(vectors_per_class) != labels.shape[0]:
        raise ValueError(
            f"SVMClassifier: vectors_per_class has {len(vectors_per_class)} entries "
            f"for {labels.shape[0]} labels; there should be as many, and at least two"
        )
    similarity = _kernel(
        xp, rows, support_vectors, vector_count, kernel_type, kernel_params
    )
    weights = attribute_array(xp, coefficients, xp.float64)
    scores = _pair_scores(xp, similarity, weights, vectors_per_class)
    pairs_of_classes = scores.shape[1]
    _check_rho(rho, pairs_of_classes)
    if prob_a and min(len(prob_a), len(prob_b)) < pairs_of_classes:
        raise ValueError(
            f"SVMClassifier has {len(prob_a)} prob_a and {len(prob_b)} prob_b for "
            f"{pairs_of_classes} pairs of classes"
        )
    scores = scores + attribute_array(xp, rho, xp.float64)[:pairs_of_classes]
    index = _most_votes(xp, scores, labels.shape[0])
    if prob_a:
        slopes = attribute_array(xp, prob_a, xp.float64)[:pairs_of_classes]
        offsets = attribute_array(xp, prob_b, xp.float64)[:pairs_of_classes]
        # Platt scaling of each pair
        pairs = 1 - logistic(xp, scores * slopes + offsets)
        scores = _coupled(xp, xp.clip(pairs, 1e-7, 1 - 1e-7), labels.shape[0])
    elif labels.shape[0] == 2:
        scores = two_class_scores(
            xp, scores[:, 0], post_transform, complement=post_transform != "NONE"
        )
        return labels_at(xp, labels, index), xp.astype(scores, xp.float32)
    scores = transformed(xp, scores, post_transform)
    return labels_at(xp, labels, index), xp.astype(scores, xp.float32)


def _check_rho(rho: tuple[float, ...], count: int) -> None:
    if len(rho) < count:
        raise ValueError(f"rho has {len(rho)} numbers, expected {count}")


def _kernel(
    xp: Any,
    rows: Any,
    support_vectors: tuple[float, ...],
    count: int,
    kernel_type: str,
    kernel_params: tuple[float, ...],
) -> Any:
    """The similarity of each row to each of *count* support vectors."""
    if len(support_vectors) != count * rows.shape[1]:
        raise ValueError(
            f"{count} support vectors of {rows.shape[1]} features take "
            f"{count * rows.shape[1]} numbers, but found {len(support_vectors)}"
        )
    vectors = attribute_array(xp, support_vectors, xp.float64)
    vectors = xp.reshape(vectors, (count, -1))
    if len(kernel_params) not in (0, 3):
        raise ValueError(
            f"kernel_params has {len(kernel_params)} numbers, expected gamma, coef0 "
            f"and degree"
        )
    gamma, coef0, degree = kernel_params or (0.0, 0.0, 0.0)
    products = rows @ vectors.T
    match kernel_type:
        case "LINEAR":
            return products
        case "POLY":
            return (gamma * products + coef0) ** degree
        case "SIGMOID":
            return xp.tanh(gamma * products + coef0)
        case "RBF":
            squares = xp.sum(rows * rows, axis=1)[:, None]
            squares = squares + xp.sum(vectors * vectors, axis=1) - 2 * products
            return xp.exp(-gamma * xp.maximum(squares, 0))
    raise ValueError(
        f"kernel_type is {kernel_type!r}, not 'LINEAR', 'POLY', 'RBF' or 'SIGMOID'"
    )


def _linear_classes(
    xp: Any, rows: Any, classes: int, coefficients: tuple[float, ...], rho: float
) -> tuple[Any, Any]:
    if len(coefficients) != classes * rows.shape[1]:
        raise ValueError(
            f"SVMClassifier without support vectors takes {classes} * {rows.shape[1]} "
            f"coefficients (classes * features), not {len(coefficients)}"
        )
    weights = attribute_array(xp, coefficients, xp.float64)
    weights = xp.reshape(weights, (classes, -1))
    scores = rows @ weights.T + rho
    return xp.argmax(scores, axis=1), scores


def _second_of_two(
    xp: Any, index: Any, scores: Any, coefficients: tuple[float, ...]
) -> Any:
    """Which of two classes, as ONNX Runtime decides without support vectors.

    It takes the best score for the one of the second class.
    """
    positive = min(coefficients) >= 0
    best = xp.max(scores, axis=1)
    second = best >= 0.5 if positive else best > 0
    return xp.where(second, 1, index)


def _pair_scores(
    xp: Any, similarity: Any, weights: Any, vectors_per_class: tuple[int, ...]
) -> Any:
    """A score for each pair of classes i < j, positive for i.

    The support vectors are in the order of their classes.  Each has a weight against
    each of the other classes: with i against j it is in row j - 1, with j against i
    in row i.  Source: LIBSVM's ``svm_predict_values`` and its README on ``sv_coef``.
    """
    classes = len(vectors_per_class)
    if xp.size(weights) != (classes - 1) * similarity.shape[1]:
        raise ValueError(
            f"SVMClassifier of {classes} classes and {similarity.shape[1]} support "
            f"vectors takes {(classes - 1) * similarity.shape[1]} coefficients, "
            f"not {xp.size(weights)}"
        )
    against = xp.reshape(weights, (classes - 1, -1))
    ends = np.cumsum(vectors_per_class).tolist()
    sums = xp.stack(
        [
            against[:, start:end] @ similarity[:, start:end].T
            for start, end in zip([0, *ends], ends, strict=False)
        ]
    )
    first, second = _pairs(xp, classes)
    scores = xp.gather(sums, (first, second - 1)) + xp.gather(sums, (second, first))
    return scores.T


@prepared_once
def _pairs(xp: Any, classes: int) -> tuple[Any, Any]:
    """The first and the second of all pairs of classes i < j."""
    first, second = map(xp.from_numpy, np.triu_indices(classes, 1))
    return first, second


def _most_votes(xp: Any, scores: Any, classes: int) -> Any:
    winners = xp.where(scores > 0, *_pairs(xp, classes))
    votes = xp.stack(
        [
            xp.sum(xp.astype(winners == label, xp.int64), axis=1)
            for label in range(classes)
        ],
        axis=1,
    )
    return xp.argmax(votes, axis=1)


def _coupled(xp: Any, pairs: Any, classes: int) -> Any:
    """Probabilities of classes from those of each class against each other one.

    Source: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability estimates for multi-class
    classification by pairwise coupling, 2004, algorithm 2, with the tolerance and
    the limit of LIBSVM's ``multiclass_probability``.
    """
    count = pairs.shape[0]
    pair, upper, diagonal = _square(xp, classes)
    against = xp.reshape(xp.take(pairs, pair, axis=1), (count, classes, classes))
    r = xp.where(diagonal, 0.0, xp.where(upper, against, 1 - against))
    q = -r * xp.swapaxes(r, 1, 2)
    q = xp.where(diagonal, xp.sum(r * r, axis=1)[:, None, :], q)
    p = xp.full((count, classes), 1 / classes, dtype=xp.float64)
    pending = xp.arange(count)
    for _ in range(100):
        rest, probabilities = (xp.take(x, pending, axis=0) for x in (q, p))
        product = (rest @ probabilities[:, :, None])[:, :, 0]
        mean = xp.sum(probabilities * product, axis=1)
        error = xp.max(xp.abs(product - mean[:, None]), axis=1)
        unfinished = xp.nonzero(error >= 0.005 / classes)[0]
        if not unfinished.shape[0]:
            break
        pending, *own = (
            xp.take(x, unfinished, axis=0)
            for x in (pending, probabilities, rest, product, mean)
        )
        p = xp.scatter(p, (pending,), _coupling_step(*own), "none")
    return p


@prepared_once
def _square(xp: Any, classes: int) -> tuple[Any, Any, Any]:
    """Of each element of a matrix of classes, row by row, the number of its pair;
    which elements are above the diagonal, and which on it."""
    upper = np.triu(np.ones((classes, classes), bool), 1)
    pair = np.zeros((classes, classes), np.int64)
    pair[upper] = np.arange(np.count_nonzero(upper))
    pair += pair.T
    pair, upper, diagonal = map(
        xp.from_numpy, (pair.reshape(-1), upper, np.eye(classes, dtype=bool))
    )
    return pair, upper, diagonal


def _coupling_step(p: Any, q: Any, product: Any, mean: Any) -> Any:
    """Set each probability in turn to what the others ask for, and rescale.

    *p* is written to.
    """
    for label in range(p.shape[1]):
        own = q[:, label, label]
        change = (mean - product[:, label]) / own
        p[:, label] += change
        scale = 1 + change
        mean = (mean + change * (change * own + 2 * product[:, label])) / scale**2
        product = (product + change[:, None] * q[:, label, :]) / scale[:, None]
        p /= scale[:, None]
    return p
