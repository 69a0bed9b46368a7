"""Support vector machines of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
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
from onnxplug_kernels.prepared import prepared_once

_KERNELS: Final = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    transform, kernel = attributes["post_transform"], attributes["kernel_type"]
    if transform not in scores.TRANSFORMS or kernel not in _KERNELS:
        return f"{call.op_type} is not compiled with {transform} of {kernel}"
    if any(attributes.get(name) is None for name in ("coefficients", "rho")):
        return f"{call.op_type} is compiled with coefficients and rho"
    if len(attributes["kernel_params"]) not in (0, 3):
        return f"{call.op_type} is compiled with gamma, coef0 and degree"
    if attributes.get("classlabels_strings"):
        return f"{call.op_type} is compiled for labels that are numbers"
    return moved(call, dtypes, target)


def _check_length(call: Call, attribute: str, count: int, least: bool = False) -> None:
    found = len(call.attributes[attribute])
    if found < count or (found > count and not least):
        raise NotCompiled(f"{found} {attribute}, expected {count}", call)


def _record_products(
    plan: Plan, call: Call, rows: View, vectors: np.ndarray[Any, Any], out: View
) -> None:
    """Of rows with vectors."""
    recorder = plan.recorder
    columns = recorder.constant(vectors).transpose((1, 0))
    contractions = recorder.target.contractions
    with recorder.exactly():
        contractions.record_matmul(recorder, rows, columns, out, label=call.op_type)


def _record_similarity(plan: Plan, call: Call, rows: View, count: int) -> View:
    """What the kernel says of each row and each of *count* support vectors."""
    recorder, attributes = plan.recorder, call.attributes
    gamma, coef0, degree = attributes["kernel_params"] or (0.0, 0.0, 0.0)
    kernel = attributes["kernel_type"]
    vectors = matrix(attributes["support_vectors"], count, rows.shape[1], rows.dtype)
    shape = (rows.shape[0], count)
    found = recorder.temporary(F32, shape)
    formula = Formula("f32")
    if kernel == "RBF":
        recorder.target.tables.record_distances(
            recorder, rows, vectors, found, call.op_type
        )
        weighted = formula.step("Mul", formula.read(found), formula.number(-gamma))
        formula.record(recorder, formula.step("Exp", weighted), found, "RBF")
        return found
    products = recorder.temporary(rows.dtype, shape)
    _record_products(plan, call, rows, vectors, products)
    if kernel == "LINEAR":
        return products
    element = "f32" if rows.dtype == F32 else "f64"
    scaled = Formula(element)
    value = scaled.step("Mul", scaled.read(products), scaled.number(gamma))
    value = scaled.step("Add", value, scaled.number(coef0))
    value = scaled.cast(value, "f32")
    if kernel == "SIGMOID":
        value = scaled.step("Tanh", value, element="f32")
    else:
        power = scaled.number(degree, "f32")
        value = scaled.step("Pow", value, power, element="f32")
    scaled.record(recorder, value, found, kernel)
    return found


def _record_sums(
    plan: Plan, call: Call, similarity: View, weights: np.ndarray[Any, Any], out: View
) -> None:
    """Of similarities with weights, one vector for each column of *out*."""
    recorder = plan.recorder
    if similarity.dtype == F32:
        _record_products(plan, call, similarity, weights, out)
        return
    wide = recorder.temporary(similarity.dtype, out.shape)
    _record_products(plan, call, similarity, weights, wide)
    formula = Formula("f64")
    value = formula.cast(formula.read(wide), "f32")
    formula.record(recorder, value, out, "Cast")


# regressors


def _check_regressor(call: Call, inputs: Inputs, results: Results) -> None:
    features, count = feature_count(call, inputs), int(call.attributes["n_supports"])
    if count < 0:
        raise NotCompiled(f"{count} support vectors", call)
    _check_length(call, "rho", 1, least=True)
    _check_length(call, "coefficients", count or features)
    if count:
        _check_length(call, "support_vectors", count * features)


def _record_regressor(plan: Plan, call: Call) -> None:
    recorder, attributes = plan.recorder, call.attributes
    rows, count = feature_rows(plan, call), int(attributes["n_supports"])
    similarity = _record_similarity(plan, call, rows, count) if count else rows
    out = written(plan, call.outputs[0], (rows.shape[0], 1))
    raw = recorder.temporary(F32, out.shape)
    weights = matrix(
        attributes["coefficients"], 1, similarity.shape[1], similarity.dtype
    )
    _record_sums(plan, call, similarity, weights, raw)
    formula, transform = Formula("f32"), attributes["post_transform"]
    rho = formula.number(float(attributes["rho"][0]))
    score = formula.step("Add", formula.read(raw), rho)
    if attributes["one_class"]:
        above = formula.step("Greater", score, formula.number(0.0), element="i1")
        inside, outside = formula.number(1.0), formula.number(-1.0)
        score = formula.step("Where", above, inside, outside)
    elif transform in scores.ONE_BY_ONE:
        score = scores.transformed(formula, score, transform)
    else:
        formula.record(recorder, formula.step("Identity", score), raw, call.op_type)
        scores.record_transformed(recorder, raw, out, transform)
        return
    formula.record(recorder, score, out, call.op_type)


register(
    "ai.onnx.ml.SVMRegressor", Operation(_record_regressor, _accepts, _check_regressor)
)


# classifiers


def _check_classifier(call: Call, inputs: Inputs, results: Results) -> None:
    features, attributes = feature_count(call, inputs), call.attributes
    labels = len(attributes["classlabels_ints"])
    counts = attributes["vectors_per_class"]
    if any(count < 0 for count in counts) or not labels:
        raise NotCompiled(f"{counts} support vectors of {labels} labels", call)
    vectors = sum(counts)
    if not vectors:
        _check_length(call, "rho", 1, least=True)
        _check_length(call, "coefficients", labels * features)
        return
    if labels < 2 or len(counts) != labels:
        raise NotCompiled(f"{counts} support vectors of {labels} labels", call)
    pairs = labels * (labels - 1) // 2
    _check_length(call, "rho", pairs, least=True)
    _check_length(call, "coefficients", (labels - 1) * vectors)
    _check_length(call, "support_vectors", vectors * features)
    if attributes["prob_a"]:
        _check_length(call, "prob_a", pairs, least=True)
        _check_length(call, "prob_b", pairs, least=True)


def _record_classifier(plan: Plan, call: Call) -> None:
    rows, counts = feature_rows(plan, call), call.attributes["vectors_per_class"]
    if not sum(counts):
        _record_linear(plan, call, rows)
        return
    similarity = _record_similarity(plan, call, rows, sum(counts))
    labels = call.attributes["classlabels_ints"]
    pairs = _record_pairs(plan, call, similarity)
    chosen = written(plan, call.outputs[0], (rows.shape[0],), I64)
    columns = len(labels) if call.attributes["prob_a"] else pairs.shape[1]
    out = written(plan, call.output(1), (rows.shape[0], max(2, columns)))
    transform = call.attributes["post_transform"]
    if call.attributes["prob_a"]:
        _record_chosen(plan, call, pairs, chosen)
        _record_probabilities(plan, call, pairs, out)
    elif len(labels) == 2:
        _record_two(plan, call, pairs, chosen, out)
    else:
        _record_chosen(plan, call, pairs, chosen)
        scores.record_transformed(plan.recorder, pairs, out, transform)


def _record_pairs(plan: Plan, call: Call, similarity: View) -> View:
    """A score for each pair of classes i < j, positive for i.

    The support vectors are in the order of their classes.  Each has a weight against
    each of the other classes: with i against j it is in row j - 1, with j against i
    in row i.  Source: LIBSVM's ``svm_predict_values`` and its README on ``sv_coef``.
    """
    recorder, attributes = plan.recorder, call.attributes
    counts = attributes["vectors_per_class"]
    classes, rows = len(counts), similarity.shape[0]
    weights = matrix(
        attributes["coefficients"], classes - 1, sum(counts), similarity.dtype
    )
    pairs = recorder.temporary(F32, (rows, classes * (classes - 1) // 2))
    rho = recorder.constant(attribute(attributes["rho"], F32))
    if classes == 2:
        _record_sums(plan, call, similarity, weights, pairs)
        formula = Formula("f32")
        offset = formula.read(rho.rows(0, 1))
        score = formula.step("Add", formula.read(pairs), offset)
        formula.record(recorder, score, pairs, call.op_type)
        return pairs
    sums = recorder.temporary(F32, (rows, classes, classes - 1))
    start = 0
    for number, count in enumerate(counts):
        part = similarity.slice((0, start), (rows, count))
        own = sums.slice((0, number, 0), (rows, 1, classes - 1))
        place = own.reshape((rows, classes - 1))
        assert place is not None
        _record_sums(plan, call, part, _part(weights, start, count), place)
        start += count
    first = 0
    for number in range(classes - 1):
        others = classes - 1 - number
        ours = sums.slice((0, number, number), (rows, 1, others))
        theirs = sums.slice((0, number + 1, number), (rows, others, 1))
        one, other = ours.reshape((rows, others)), theirs.reshape((rows, others))
        assert one is not None and other is not None
        formula = Formula("f32")
        score = formula.step("Add", formula.read(one), formula.read(other))
        score = formula.step("Add", score, formula.read(rho.rows(first, others)))
        place = pairs.slice((0, first), (rows, others))
        formula.record(recorder, score, place, call.op_type)
        first += others
    return pairs


def _record_chosen(plan: Plan, call: Call, pairs: View, chosen: View) -> None:
    labels = plan.recorder.constant(attribute(call.attributes["classlabels_ints"], I64))
    tables = plan.recorder.target.tables
    tables.record_votes(plan.recorder, pairs, labels, chosen, call.op_type)


def _record_two(plan: Plan, call: Call, pairs: View, chosen: View, out: View) -> None:
    """Of two classes from the score of their pair, which is positive for the first."""
    attributes, formula = call.attributes, Formula("f32")
    transform, rows = attributes["post_transform"], out.shape[0]
    score = formula.read(pairs)
    wins = formula.step("Greater", score, formula.number(0.0), element="i1")
    second, first = attributes["classlabels_ints"][::-1]
    label = scores.label(formula, wins, (second, first))
    other, own = scores.pair(formula, score, transform, complement=transform != "NONE")
    columns = [out.slice((0, place), (rows, 1)) for place in (0, 1)]
    column = chosen.reshape((rows, 1))
    assert column is not None
    outs = [*columns, column]
    formula.record_all(plan.recorder, [other, own, label], outs, call.op_type)


def _record_probabilities(plan: Plan, call: Call, pairs: View, out: View) -> None:
    """Platt's scaling of each pair, coupled for all classes."""
    recorder, attributes, count = plan.recorder, call.attributes, pairs.shape[1]
    slopes, offsets = (
        recorder.constant(attribute(attributes[name], F32)).rows(0, count)
        for name in ("prob_a", "prob_b")
    )
    formula, scaled = Formula("f32"), recorder.temporary(F32, pairs.shape)
    odds = formula.step("Mul", formula.read(pairs), formula.read(slopes))
    odds = formula.step("Add", odds, formula.read(offsets))
    share = formula.step("Sigmoid", formula.step("Neg", odds))
    share = formula.step("Max", share, formula.number(1e-7))
    share = formula.step("Min", share, formula.number(1 - 1e-7))
    formula.record(recorder, share, scaled, call.op_type)
    transform = attributes["post_transform"]
    raw = out if transform == "NONE" else recorder.temporary(F32, out.shape)
    recorder.target.tables.record_coupling(recorder, scaled, raw, call.op_type)
    if raw is not out:
        scores.record_transformed(recorder, raw, out, transform)


def _record_linear(plan: Plan, call: Call, rows: View) -> None:
    """A score for each class, without support vectors."""
    recorder, attributes = plan.recorder, call.attributes
    labels = attributes["classlabels_ints"]
    count, shape = rows.shape[0], (rows.shape[0], len(labels))
    chosen = written(plan, call.outputs[0], (count,), I64)
    out, raw = written(plan, call.output(1), shape), recorder.temporary(F32, shape)
    weights = matrix(attributes["coefficients"], len(labels), rows.shape[1], rows.dtype)
    _record_sums(plan, call, rows, weights, raw)
    formula = Formula("f32")
    rho = formula.number(float(attributes["rho"][0]))
    formula.record(recorder, formula.step("Add", formula.read(raw), rho), raw, "rho")
    if len(labels) == 2 and not attributes["prob_a"]:
        _record_second(plan, call, raw, chosen)
    else:
        scores.record_choice(recorder, raw, labels, chosen)
    scores.record_transformed(recorder, raw, out, attributes["post_transform"])


def _record_second(plan: Plan, call: Call, raw: View, chosen: View) -> None:
    """Which of two classes, as ONNX Runtime decides without support vectors: the best
    score is for the one of the second class."""
    attributes, formula, rows = call.attributes, Formula("f32"), raw.shape[0]
    first, second = (formula.read(raw.slice((0, place), (rows, 1))) for place in (0, 1))
    best = formula.step("Max", first, second)
    positive = min(attributes["coefficients"]) >= 0
    operator, limit = ("GreaterOrEqual", 0.5) if positive else ("Greater", 0.0)
    wins = formula.step(operator, best, formula.number(limit), element="i1")
    greater = scores.is_greater(formula, second, first)
    wins = formula.step("Or", wins, greater, element="i1")
    label = scores.label(formula, wins, attributes["classlabels_ints"])
    column = chosen.reshape((rows, 1))
    assert column is not None
    formula.record(plan.recorder, label, column, call.op_type)


@prepared_once
def _part(
    weights: np.ndarray[Any, Any], start: int, count: int
) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(weights[:, start : start + count])


register(
    "ai.onnx.ml.SVMClassifier",
    Operation(_record_classifier, _accepts, _check_classifier),
)
