"""Ensembles of trees."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.trees import Classes, Scoring
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule import scores
from onnxplug_compiler.schedule.learned import written
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    moved,
    register,
)
from onnxplug_kernels.ml import tree
from onnxplug_kernels.ml.forest import Forest
from onnxplug_kernels.namespaces import namespace_of

_F32: Final = np.dtype(np.float32)


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    transform = _transform(call)
    if transform not in scores.TRANSFORMS:
        return f"{call.op_type} is not compiled with {transform}"
    labels = call.dtypes[0] if call.op_type == "TreeEnsembleClassifier" else None
    if call.attributes.get("classlabels_strings") or (labels and labels.hasobject):
        return f"{call.op_type} is not compiled for labels that are strings"
    if call.op_type == "TreeEnsemble" and dtypes[0] not in (_F32, np.dtype(np.float64)):
        return f"{call.op_type} is not compiled for {dtypes[0]}"
    if call.op_type == "TreeEnsemble" and dtypes[0] != _F32 and transform != "NONE":
        return f"{call.op_type} is compiled with {transform} for float32"
    forest = _find_forest(call)
    if forest is not None and not target.takes_forest(forest):
        return f"{call.op_type} is not compiled for how these trees compare"
    return moved(call, dtypes, target)


def _find_forest(call: Call) -> Forest | None:
    """The forest that the attributes describe, if they describe one."""
    if any(call.attributes.get(name) is None for name in tree.required(call.op_type)):
        return None
    try:
        return tree.forest_of(namespace_of(np), call.op_type, call.attributes)
    except ValueError as error:
        raise_interruption(error)
        return None


def _forest(call: Call) -> Forest:
    forest = _find_forest(call)
    if forest is None:
        raise NotCompiled("the attributes describe no trees", call)
    return forest


def _transform(call: Call) -> str:
    return _name(call.attributes["post_transform"], tree.TRANSFORMS)


def _aggregate(call: Call) -> str:
    if call.op_type == "TreeEnsembleClassifier":
        return "SUM"
    return _name(call.attributes["aggregate_function"], tree.AGGREGATES)


def _name(given: str | int, names: tuple[str, ...]) -> str:
    """What an attribute says, or its number if that stands for nothing."""
    if isinstance(given, str):
        return given
    return names[given] if 0 <= given < len(names) else str(given)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, forest = given(inputs), _forest(call)
    if len(x.shape) not in (1, 2):
        raise NotCompiled(f"{call.op_type} of {x.shape}", call)
    if x.shape[-1] < max(1, forest.feature_count):
        raise NotCompiled(f"{call.op_type} of {x.shape[-1]} features", call)
    if _aggregate(call) not in tree.AGGREGATES:
        raise NotCompiled(f"{call.op_type} with {_aggregate(call)}", call)
    base = _base(call)
    if base is not None and len(base) not in (1, forest.target_count):
        raise NotCompiled(f"{len(base)} base values", call)


def _record(plan: Plan, call: Call) -> None:
    name, given_scores = call.inputs[0], call.outputs[-1]
    assert name is not None
    forest, x = _forest(call), plan.view(name)
    x = x if len(x.shape) == 2 else _as_row(x)
    shape = (x.shape[0], forest.target_count)
    classes, base = None, _base(call)
    if call.op_type == "TreeEnsembleClassifier":
        given_scores = call.output(1)
        classes, base = _classes(plan, call, base, shape)
    elif base is not None:
        base = np.broadcast_to(base, shape[1:])
    out = written(plan, given_scores, shape)
    transform, pairs = _transform(call), classes is not None and classes.paired
    if pairs and transform not in scores.ONE_BY_ONE:
        transform = "NONE"  # there is nothing to share out
    raw = out if transform == "NONE" else plan.recorder.temporary(_F32, shape)
    scoring = Scoring(forest, _aggregate(call), _array(base), classes)
    trees = plan.recorder.target.trees
    trees.record_trees(plan.recorder, x, raw, scoring, call.op_type)
    if raw is out:
        return
    if pairs:
        _record_pair(plan, raw, out, transform)
    else:
        scores.record_transformed(plan.recorder, raw, out, transform)


def _as_row(x: View) -> View:
    row = x.reshape((1, *x.shape))
    assert row is not None
    return row


def _record_pair(plan: Plan, raw: View, out: View, transform: str) -> None:
    """What both classes have after a transform of the score of the second."""
    first, second = (out.slice((0, place), (out.shape[0], 1)) for place in (0, 1))
    formula = Formula("f32")
    score = formula.read(raw.slice((0, 1), (out.shape[0], 1)))
    other, own = scores.pair(formula, score, transform, complement=False)
    outs = [first, second]
    formula.record_all(plan.recorder, [other, own], outs, transform.lower())


def _array(base: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    return None if base is None else np.ascontiguousarray(base)


def _base(call: Call) -> np.ndarray[Any, Any] | None:
    attributes = call.attributes
    if "base_values" not in attributes:
        return None
    found = tree.numbers(attributes["base_values"], attributes["base_values_as_tensor"])
    return np.asarray(found, np.float64) if len(found) else None


def _classes(
    plan: Plan,
    call: Call,
    base: np.ndarray[Any, Any] | None,
    shape: tuple[int, ...],
) -> tuple[Classes, np.ndarray[Any, Any] | None]:
    """How classes are found, and what is added to the score of each."""
    attributes, name = call.attributes, call.outputs[0]
    rows, count = shape
    labels = np.asarray(attributes["classlabels_int64s"], np.int64)
    if name is None:
        chosen = plan.recorder.temporary(np.dtype(np.int64), (rows,))
    else:
        chosen = plan.destination(name)
    sole = tree.sole_class(attributes["class_ids"])
    if count != 2 or sole is None:
        whole = None if base is None else np.broadcast_to(base, (count,))
        return Classes(labels, chosen), whole
    weights = tree.numbers(
        attributes["class_weights"], attributes["class_weights_as_tensor"]
    )
    positive = tree.none_negative(weights)
    paired = ""
    if sole == 0 and (base is None or len(base) < 2):
        paired = "complement" if positive else "negated"
    if base is not None and len(base) == 1:
        alone = np.zeros(2)
        alone[sole] = base[0]
        base = alone
    return Classes(labels, chosen, sole, 0.5 if positive else 0.0, paired), base


register(
    "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier "
    "ai.onnx.ml.TreeEnsembleRegressor",
    Operation(_record, _accepts, _check),
)
