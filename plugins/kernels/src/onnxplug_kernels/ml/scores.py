"""What predictors share: their input, class labels, and transforms of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.prepared import prepared_once


def feature_rows(xp: Any, x: Any) -> Any:
    """*x* as floating rows of features; a vector is one row.

    Wide enough that comparing and adding loses nothing.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"expected an input of shape [N, F] or [F], found {x.shape}")
    if not x.shape[-1]:
        raise ValueError(f"an input of shape {x.shape} has no features")
    if xp.kind(x.dtype) != "f":
        x = xp.astype(x, xp.float64)
    elif xp.itemsize(x) < 4:
        x = xp.astype(x, xp.float32)
    return xp.reshape(x, (-1, x.shape[-1]))


@prepared_once
def class_labels(xp: Any, strings: tuple[str, ...], integers: tuple[int, ...]) -> Any:
    """The labels of a classifier, for :func:`labels_at`."""
    labels = label_array(strings, integers)
    return labels if strings else xp.from_numpy(labels)


@prepared_once
def label_array(strings: tuple[str, ...], integers: tuple[int, ...]) -> Any:
    """The labels that are given, as numpy has them."""
    if bool(strings) == bool(integers):
        raise ValueError(
            f"a classifier has labels that are either strings or integers, but found "
            f"{len(strings)} strings and {len(integers)} integers"
        )
    if strings:
        return np.array(strings, dtype=object)
    return np.array(integers, dtype=np.int64)


def labels_at(xp: Any, labels: Any, index: Any) -> Any:
    """The labels at *index*; strings are on the host, whatever the library is."""
    if labels.dtype == object:
        return labels[xp.to_numpy(index)]
    return xp.take(labels, index, axis=0)


def transformed(xp: Any, scores: Any, post_transform: str) -> Any:
    """*scores*, of shape [N, E], after a transform that works on each row."""
    match post_transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return logistic(xp, scores)
        case "SOFTMAX":
            exponentials = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
            return exponentials / xp.sum(exponentials, axis=1, keepdims=True)
        case "SOFTMAX_ZERO":
            return _softmax_zero(xp, scores)
        case "PROBIT":
            return _probit(xp, scores)
    raise ValueError(
        f"post_transform is {post_transform!r}, not "
        f"'NONE', 'LOGISTIC', 'SOFTMAX', 'SOFTMAX_ZERO' or 'PROBIT'"
    )


def two_class_scores(
    xp: Any, score: Any, post_transform: str, *, complement: bool
) -> Any:
    """Scores of both classes, of shape [N, 2], from the score of the second alone.

    With one score there is nothing to share out, so the softmax transforms do
    nothing.  This is how ONNX Runtime understands such models.

    Args:
        complement: the scores are like probabilities and sum to one, not to zero.
    """
    if post_transform in ("LOGISTIC", "PROBIT"):
        pair = transformed(xp, score[:, None], post_transform)[:, 0]
        other = 1 - pair if post_transform == "LOGISTIC" else -pair
        return xp.stack((other, pair), axis=1)
    return xp.stack((1 - score if complement else -score, score), axis=1)


def logistic(xp: Any, x: Any) -> Any:
    # the exponential of a negative number cannot overflow
    exponential = xp.exp(-xp.abs(x))
    return xp.where(x < 0, exponential, 1) / (1 + exponential)


def _softmax_zero(xp: Any, scores: Any) -> Any:
    """A softmax among the scores that are not zero; zeros stay."""
    nonzero = xp.abs(scores) > 1e-7
    largest = xp.max(scores, axis=1, keepdims=True)
    exponentials = xp.where(nonzero, xp.exp(scores - largest), 0)
    total = xp.sum(exponentials, axis=1, keepdims=True)
    return exponentials / xp.where(total == 0, 1, total)


def _probit(xp: Any, x: Any) -> Any:
    """The quantile of the normal distribution, to about three digits.

    Source: S. Winitzki, A handy approximation for the error function and its inverse,
    2008, formula (7), which ONNX Runtime uses as well.
    """
    a = 0.147
    centered = 2 * x - 1
    log = xp.log((1 - centered) * (1 + centered))
    half = 2 / (xp.pi * a) + log / 2
    inverse = xp.sqrt(xp.sqrt(half * half - log / a) - half)
    return 2**0.5 * xp.where(centered < 0, -inverse, inverse)
