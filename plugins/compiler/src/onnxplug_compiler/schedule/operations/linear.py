"""Linear classifiers and regressors of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule import scores
from onnxplug_compiler.schedule.learned import (
    F32,
    I64,
    attribute,
    feature_count,
    feature_rows,
    matrix,
    written,
)
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    moved,
    register,
)

Finish: TypeAlias = "Callable[[Formula, Number], Sequence[Number]]"
"""What is written of a score; in a formula of float32."""


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    transform = call.attributes["post_transform"]
    if transform not in scores.TRANSFORMS:
        return f"{call.op_type} is not compiled with {transform}"
    if call.attributes.get("classlabels_strings"):
        return f"{call.op_type} is compiled for labels that are numbers"
    return moved(call, dtypes, target)


def _check_regressor(call: Call, inputs: Inputs, results: Results) -> None:
    features, attributes = feature_count(call, inputs), call.attributes
    targets = int(attributes["targets"])
    if targets < 1 or len(attributes["coefficients"]) != targets * features:
        raise NotCompiled(f"coefficients for {targets} × {features}", call)
    if attributes["intercepts"] and len(attributes["intercepts"]) not in (1, targets):
        raise NotCompiled(f"intercepts for {targets} targets", call)


def _record_regressor(plan: Plan, call: Call) -> None:
    rows = feature_rows(plan, call)
    shape = (rows.shape[0], int(call.attributes["targets"]))
    out = written(plan, call.outputs[0], shape)
    transform = call.attributes["post_transform"]

    def finish(formula: Formula, score: Number) -> list[Number]:
        return [scores.transformed(formula, score, transform)]

    if transform in scores.ONE_BY_ONE:
        _record_scores(plan, call, rows, [out], finish)
        return
    raw = plan.recorder.temporary(F32, out.shape)
    _record_scores(plan, call, rows, [raw], lambda _, score: [score])
    scores.record_transformed(plan.recorder, raw, out, transform)


register(
    "ai.onnx.ml.LinearRegressor",
    Operation(_record_regressor, _accepts, _check_regressor),
)


def _score_count(call: Call, features: int) -> int:
    """Of how many scores a classifier has coefficients."""
    attributes = call.attributes
    count, labels = len(attributes["coefficients"]), len(attributes["classlabels_ints"])
    scored = len(attributes["intercepts"])
    # what is left when each class with an intercept has its own is not used
    if (scored == labels or (scored, labels) == (1, 2)) and count % scored == 0:
        count = min(count, scored * features)
    if count % features:
        raise NotCompiled(f"{count} coefficients for {features} features", call)
    return count // features


def _check_classifier(call: Call, inputs: Inputs, results: Results) -> None:
    features, attributes = feature_count(call, inputs), call.attributes
    labels = len(attributes["classlabels_ints"])
    count = _score_count(call, features)
    if not labels or (count != labels and (count, labels) != (1, 2)):
        raise NotCompiled(f"{count} scores for {labels} labels", call)
    if attributes["intercepts"] and len(attributes["intercepts"]) not in (1, count):
        raise NotCompiled(f"intercepts for {count} scores", call)


def _record_classifier(plan: Plan, call: Call) -> None:
    rows = feature_rows(plan, call)
    count, labels = rows.shape[0], call.attributes["classlabels_ints"]
    chosen = written(plan, call.outputs[0], (count,), I64)
    out = written(plan, call.output(1), (count, len(labels)))
    transform = call.attributes["post_transform"]
    if _score_count(call, rows.shape[1]) == 1 and len(labels) == 2:
        column = chosen.reshape((count, 1))
        first, second = (out.slice((0, each), (count, 1)) for each in (0, 1))
        assert column is not None

        def both(formula: Formula, score: Number) -> list[Number]:
            wins = formula.step("Greater", score, formula.number(0.0), element="i1")
            other, own = scores.pair(formula, score, transform, complement=True)
            label = scores.label(formula, wins, labels)
            return [other, own, label]

        _record_scores(plan, call, rows, [first, second, column], both)
        return
    raw = out if transform == "NONE" else plan.recorder.temporary(F32, out.shape)
    _record_scores(plan, call, rows, [raw], lambda _, score: [score])
    scores.record_choice(plan.recorder, raw, labels, chosen)
    if raw is not out:
        scores.record_transformed(plan.recorder, raw, out, transform)


register(
    "ai.onnx.ml.LinearClassifier",
    Operation(_record_classifier, _accepts, _check_classifier),
)


def _record_scores(
    plan: Plan, call: Call, rows: View, outs: Sequence[View], finish: Finish
) -> None:
    """The products of rows with vectors of coefficients, and the intercepts: a score
    for each column of *outs*, where *finish* says what becomes of it."""
    recorder, attributes = plan.recorder, call.attributes
    count = outs[0].shape[1]
    contractions = recorder.target.contractions
    vectors = matrix(attributes["coefficients"], count, rows.shape[1], rows.dtype)
    formula, intercepts = Formula("f32"), attributes["intercepts"]
    addend = None
    if intercepts:
        addend = recorder.constant(attribute(intercepts, rows.dtype))
    columns = recorder.constant(vectors).transpose((1, 0))
    product = recorder.temporary(rows.dtype, (rows.shape[0], count))
    narrow = rows.dtype == F32
    score = formula.tile() if narrow else formula.read(product)
    if addend is not None:
        element = element_of(rows.dtype)
        score = formula.step("Add", score, formula.read(addend), element=element or "")
    results = finish(formula, formula.cast(score, "f32"))
    epilogue = formula.epilogue(results, outs) if narrow else None
    with recorder.exactly():
        contractions.record_matmul(
            recorder, rows, columns, product, epilogue=epilogue, label=call.op_type
        )
    if not narrow:
        formula.record_all(recorder, results, outs, call.op_type)
