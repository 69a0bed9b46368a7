"""Losses, target by target."""

from __future__ import annotations

from typing import Any

import numpy as np

from .comparison import assert_near, result_of, wide
from .strategies import Array, Draw, examples


class Targets:
    """Classes [N, d1, ...] of scores [N, C, d1, ...], and the node's attributes."""

    def __init__(self, draw: Draw, op_type: str) -> None:
        self.dtype = draw.dtype(op_type)
        shape = draw.shape(1, 3, empty=False)
        self.classes = draw.integer(1, 4)
        self.shape = (shape[0], self.classes, *shape[1:])
        self.scores = draw.array(self.dtype, self.shape, "ordinary")
        kind = draw.one_of([np.int64, np.int32])
        self.attributes: dict[str, Any] = {}
        self.ignored = draw.one_of([None, 0, -1, 7])
        lowest = 0
        if self.ignored is not None:
            self.attributes["ignore_index"] = self.ignored
            lowest = min(0, self.ignored)
        classes = draw.integers(lowest, self.classes - 1, shape, kind)
        if self.ignored is not None and self.ignored > 0:
            classes = np.where(classes == 0, kind(self.ignored), classes)
        self.classes_of = classes
        self.weights = None
        if draw.flag():
            self.weights = draw.array(self.dtype, (self.classes,), "positive")
        self.reduction = draw.one_of(["none", "sum", "mean"])
        if self.reduction != "mean" or draw.flag():
            self.attributes["reduction"] = self.reduction

    def loss(self, logarithms: Array) -> Array:
        losses = np.zeros(self.classes_of.shape, np.longdouble)
        weights = np.zeros(self.classes_of.shape, np.longdouble)
        for place in np.ndindex(losses.shape):
            chosen = int(self.classes_of[place])
            if chosen == self.ignored:
                continue
            weight = 1 if self.weights is None else wide(self.weights)[chosen]
            weights[place] = weight
            losses[place] = -logarithms[(place[0], chosen, *place[1:])] * weight
        if self.reduction == "none":
            return losses
        total = losses.sum()
        with np.errstate(invalid="ignore"):
            return np.asarray(
                total if self.reduction == "sum" else total / weights.sum()
            )

    def check(self, found: Array, exact: Array) -> None:
        units = 8 * self.classes_of.size if self.dtype.itemsize > 2 else 1
        assert_near(found, exact, self.dtype, units, np.maximum(np.abs(exact), 64))


@examples(60)
def test_negative_log_likelihood(draw: Draw) -> None:
    op_type = "NegativeLogLikelihoodLoss"
    case = Targets(draw, op_type)
    found = result_of(
        op_type, case.scores, case.classes_of, case.weights, **case.attributes
    )
    case.check(found, case.loss(wide(case.scores)))


@examples(60)
def test_softmax_cross_entropy(draw: Draw) -> None:
    op_type = "SoftmaxCrossEntropyLoss"
    case = Targets(draw, op_type)
    loss, logarithms = result_of(
        op_type,
        case.scores,
        case.classes_of,
        case.weights,
        output_count=2,
        **case.attributes,
    )
    x = wide(case.scores)
    exact = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    case.check(loss, case.loss(exact))
    case.check(logarithms, exact)
