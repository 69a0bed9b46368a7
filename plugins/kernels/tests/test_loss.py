"""Losses against loops over the equations of the specification."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .node_oracles import run

RANDOM = np.random.default_rng(5)


def loss_by_loops(
    log_prob: Any, target: Any, weight: Any, ignore_index: int | None, reduction: str
) -> Any:
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(*target.shape):
        label = target[place]
        if label != ignore_index:
            weights[place] = 1 if weight is None else weight[label]
            score = log_prob[(place[0], label, *place[1:])]
            losses[place] = -score * weights[place]
    if reduction == "none":
        return losses
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


@pytest.mark.parametrize(
    ("shape", "weighted", "ignore_index", "reduction"),
    [
        *itertools.product(
            [(4, 5), (3, 5, 2), (3, 5, 2, 2)],
            [False, True],
            [None, 1, -100, 9],
            ["none", "sum", "mean"],
        )
    ],
)
def test_losses(
    shape: tuple[int, ...], weighted: bool, ignore_index: int | None, reduction: str
) -> None:
    scores = RANDOM.standard_normal(shape)
    target = RANDOM.integers(0, 5, shape[:1] + shape[2:])
    weight = RANDOM.random(5) if weighted else None
    attributes: dict[str, Any] = {"reduction": reduction}
    if ignore_index is not None:
        attributes["ignore_index"] = ignore_index
        target.flat[0] = ignore_index
        scores[0, 1] = -30
    log_prob = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    expected = loss_by_loops(log_prob, target, weight, ignore_index, reduction)
    for version in (12, 13, 22):
        result = run(
            "NegativeLogLikelihoodLoss",
            log_prob,
            target.astype(np.int32),
            weight,
            version=version,
            **attributes,
        )
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, expected)
    result, probabilities = run(
        "SoftmaxCrossEntropyLoss", scores, target, weight, output_count=2, **attributes
    )
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, expected)
    np.testing.assert_allclose(probabilities, log_prob)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_narrow_types_are_computed_in_wider_ones(dtype: Any) -> None:
    # the sum of the weights is beyond what the narrow types count to
    log_prob = np.full((4096, 2), -1, dtype=dtype)
    target = np.zeros(4096, dtype=np.int64)
    result = run("NegativeLogLikelihoodLoss", log_prob, target)
    assert (result.dtype, result.item()) == (dtype, 1)
    loss, probabilities = run("SoftmaxCrossEntropyLoss", log_prob, target)
    assert loss.dtype == probabilities.dtype == dtype
    assert abs(float(loss) - np.log(2)) < 4e-3


def test_an_ignored_score_may_be_infinite() -> None:
    log_prob = np.array([[-np.inf, -1.0], [-2.0, -np.inf]])
    target = np.array([0, 0])
    target[0] = -1
    result = run("NegativeLogLikelihoodLoss", log_prob, target, ignore_index=-1)
    assert result.item() == 2


def test_refusals() -> None:
    scores, target = np.zeros((2, 3)), np.zeros(3, dtype=np.int64)
    with pytest.raises(ValueError, match=r"shape \(2,\), not \(3,\)"):
        run("NegativeLogLikelihoodLoss", scores, target)
    with pytest.raises(ValueError, match="'max'"):
        run("NegativeLogLikelihoodLoss", scores, target[:2], reduction="max")
