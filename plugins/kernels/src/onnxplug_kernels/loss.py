"""Negative log likelihood and softmax cross entropy."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.gather import require_in_range
from onnxplug_kernels.registry import operator
from onnxplug_kernels.softmax import log_softmax


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    xp: Any,
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    dtype = xp.computing_dtype(x.dtype)
    weight = None if weight is None else xp.astype(weight, dtype)
    loss = _likelihood_loss(
        xp, xp.astype(x, dtype), target, weight, ignore_index, reduction
    )
    return xp.astype(xp.asarray(loss), x.dtype)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    xp: Any,
    scores: Any,
    labels: Any,
    weights: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss and the logarithm of the probabilities."""
    dtype = xp.computing_dtype(scores.dtype)
    weights = None if weights is None else xp.astype(weights, dtype)
    log_prob = log_softmax(xp, xp.astype(scores, dtype), axis=1)
    loss = _likelihood_loss(xp, log_prob, labels, weights, ignore_index, reduction)
    return xp.astype(xp.asarray(loss), scores.dtype), xp.astype(log_prob, scores.dtype)


def _likelihood_loss(
    xp: Any,
    log_prob: Any,
    target: Any,
    weight: Any,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    """The loss of each target, or their sum, or their mean weighted alike.

    Targets equal to *ignore_index* have no loss and no weight.
    """
    if target.shape != log_prob.shape[:1] + log_prob.shape[2:]:
        raise ValueError(
            f"the loss of scores of shape {log_prob.shape} takes targets of shape "
            f"{log_prob.shape[:1] + log_prob.shape[2:]}, not {target.shape}"
        )
    counted = xp.ones(target.shape, dtype=xp.bool)
    if ignore_index is not None:
        counted = target != ignore_index
    # an ignored target need not be a class
    classes = xp.astype(xp.where(counted, target, 0), xp.int64)
    require_in_range(xp, classes, log_prob.shape[1], "the classes", least=0)
    if weight is not None and weight.shape != log_prob.shape[1:2]:
        raise ValueError(
            f"the weights have shape {weight.shape}, expected {log_prob.shape[1:2]}"
        )
    picked = xp.take_along_axis(log_prob, xp.expand_dims(classes, 1), axis=1)
    weights = xp.astype(counted, log_prob.dtype)
    if weight is not None:
        weights = xp.where(counted, weight[classes], weights)
    # an ignored score may be infinite, so no weight of zero could remove it
    loss = -xp.where(counted, xp.squeeze(picked, 1), 0) * weights
    match reduction:
        case "none":
            return loss
        case "sum":
            return xp.sum(loss)
        case "mean":
            return xp.sum(loss) / xp.sum(weights)
    raise ValueError(f"reduction is {reduction!r}, not 'none', 'sum' or 'mean'")
