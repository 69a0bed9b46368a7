"""What becomes of the scores of predictors: transforms, and the class that they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.learned import attribute

TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
"""What scores may become."""

ONE_BY_ONE: Final = frozenset({"NONE", "LOGISTIC", "PROBIT"})
"""Transforms of each score by itself; the others are of rows."""

_F32: Final = np.dtype(np.float32)


def transformed(formula: Formula, score: Number, transform: str) -> Number:
    """A score after one of the transforms of :data:`ONE_BY_ONE`; of a formula of
    float32."""
    match transform:
        case "LOGISTIC":
            return formula.step("Sigmoid", score)
        case "PROBIT":
            return _probit(formula, score)
    return score


def record_transformed(
    recorder: Recorder[Target], scores: View, out: View, transform: str
) -> None:
    """Transform *scores*, [rows, classes] of float32, to *out*."""
    match transform:
        case "SOFTMAX":
            recorder.target.rows.record_softmax(recorder, scores, out, label="softmax")
        case "SOFTMAX_ZERO":
            _record_softmax_zero(recorder, scores, out)
        case _:
            formula = Formula("f32")
            score = transformed(formula, formula.read(scores), transform)
            formula.record(recorder, score, out, transform.lower())


def pair(
    formula: Formula, score: Number, transform: str, *, complement: bool
) -> tuple[Number, Number]:
    """The scores of both classes from that of the second alone.

    Transforms of rows have nothing to share out, and change nothing.

    Args:
        complement: scores that do not change are like probabilities, and sum to one,
            not to zero.
    """
    second = transformed(formula, score, transform)
    if transform == "LOGISTIC" or (complement and transform != "PROBIT"):
        return formula.step("Sub", formula.number(1.0), second), second
    return formula.step("Neg", second), second


def record_choice(
    recorder: Recorder[Target], scores: View, labels: Sequence[int], chosen: View
) -> None:
    """The label of the greatest score of each row.

    Args:
        scores: [rows, classes].
        chosen: [rows], int64.
    """
    rows = (scores.shape[0], 1)
    if len(labels) == 2:
        formula = Formula("f32")
        first, second = (
            formula.read(scores.slice((0, place), rows)) for place in (0, 1)
        )
        chosen_label = label(formula, is_greater(formula, second, first), labels)
        column = chosen.reshape(rows)
        assert column is not None
        formula.record(recorder, chosen_label, column, "choice")
        return
    counted = tuple(labels) == tuple(range(len(labels)))
    place = chosen.reshape(rows) if counted else recorder.temporary(chosen.dtype, rows)
    assert place is not None
    selection = recorder.target.selection
    selection.record_arg_extreme(recorder, scores, place, 1, largest=True)
    if not counted:
        names = recorder.constant(attribute(labels, chosen.dtype))
        flat = place.reshape(chosen.shape)
        assert flat is not None
        recorder.target.indexing.record_gather(recorder, names, flat, chosen, 0)


def is_greater(formula: Formula, score: Number, other: Number) -> Number:
    """Whether *score* is above *other*, where NaN is above all that is none."""

    def test(operator: str, *operands: Number) -> Number:
        return formula.step(operator, *operands, element="i1")

    missing = test("And", test("IsNaN", score), test("Not", test("IsNaN", other)))
    return test("Or", missing, test("Greater", score, other))


def label(formula: Formula, is_second: Number, labels: Sequence[int]) -> Number:
    """The label of one of two classes."""
    first, second = (formula.number(each, "i64") for each in labels)
    return formula.step("Where", is_second, second, first, element="i64")


def _record_softmax_zero(recorder: Recorder[Target], scores: View, out: View) -> None:
    """A softmax among the scores that are not zero; zeros stay."""
    rows = (scores.shape[0], 1)
    largest, total = (recorder.temporary(_F32, rows) for _ in range(2))
    reductions = recorder.target.reductions
    reductions.record_reduce(recorder, "ReduceMax", scores, largest, (1,))
    formula = Formula("f32")
    score = formula.read(scores)
    exponential = formula.step("Exp", formula.step("Sub", score, formula.read(largest)))
    limit = formula.number(1e-7)
    counts = formula.step("Greater", formula.step("Abs", score), limit, element="i1")
    kept = formula.step("Where", counts, exponential, formula.number(0.0))
    exponentials = recorder.temporary(_F32, scores.shape)
    formula.record(recorder, kept, exponentials, "exponentials")
    reductions.record_reduce(recorder, "ReduceSum", exponentials, total, (1,))
    formula = Formula("f32")
    sums = formula.read(total)
    none = formula.step("Equal", sums, formula.number(0.0), element="i1")
    divisor = formula.step("Where", none, formula.number(1.0), sums)
    share = formula.step("Div", formula.read(exponentials), divisor)
    formula.record(recorder, share, out, "softmax")


def _probit(formula: Formula, x: Number) -> Number:
    """The quantile of the normal distribution, to about three digits.

    Source: S. Winitzki, A handy approximation for the error function and its inverse,
    2008, formula (7), written such that nothing cancels in float32.
    """
    a = 0.147

    def step(operator: str, *operands: Number | float) -> Number:
        return formula.step(
            operator,
            *[formula.number(o) if isinstance(o, float) else o for o in operands],
        )

    centered = step("Sub", step("Mul", x, 2.0), 1.0)
    # the logarithm of 1 - centered²: near 1 by its quotient with what was rounded
    # (W. Kahan), elsewhere of exact factors
    product = step("Mul", step("Sub", 1.0, centered), step("Add", centered, 1.0))
    square = step("Neg", step("Mul", centered, centered))
    rounded = step("Add", square, 1.0)
    is_one = formula.step("Equal", rounded, formula.number(1.0), element="i1")
    below = step("Where", is_one, 1.0, step("Sub", rounded, 1.0))
    quotient = step("Div", step("Mul", step("Log", rounded), square), below)
    by_quotient = step("Where", is_one, square, quotient)
    near = formula.step(
        "Less", step("Abs", centered), formula.number(0.5), element="i1"
    )
    logarithm = step("Where", near, by_quotient, step("Log", product))
    half = step("Add", step("Mul", logarithm, 0.5), 2 / (math.pi * a))
    rest = step("Mul", logarithm, -1 / a)
    root = step("Sqrt", step("Add", step("Mul", half, half), rest))
    # root - half, which cancels where both are positive
    whole = step("Add", root, half)
    is_positive = formula.step("Greater", half, formula.number(0.0), element="i1")
    apart = step(
        "Where", is_positive, step("Div", rest, whole), step("Sub", root, half)
    )
    inverse = step("Mul", step("Sqrt", apart), math.sqrt(2.0))
    is_below = formula.step("Less", centered, formula.number(0.0), element="i1")
    return step("Where", is_below, step("Neg", inverse), inverse)
