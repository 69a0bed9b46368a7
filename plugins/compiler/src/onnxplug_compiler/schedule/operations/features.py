"""Features made ready for a predictor, and linear predictors, of ``ai.onnx.ml``."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    moved,
    register,
)
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.prepared import attribute_array

_F32: Final = np.dtype(np.float32)
_NORMS: Final = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
_TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX")


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts float32: results are of that type, whatever the input's is."""
    if dtypes[0] != _F32:
        return f"{call.op_type} is compiled for float32; found {dtypes[0]}"
    return computed(call, dtypes, target)


def _places(plan: Plan, call: Call) -> tuple[View, View]:
    """The first input, and where the output goes."""
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    return plan.view(source), plan.destination(output)


def _constant(plan: Plan, call: Call, attribute: str) -> View:
    """The numbers of an attribute as float32, which are made once for the call."""
    numbers = call.attributes[attribute]
    return plan.recorder.constant(attribute_array(namespace_of(np), numbers, _F32))


def _check_per_feature(call: Call, inputs: Inputs, *attributes: str) -> None:
    shape = given(inputs).shape
    features = shape[-1] if shape else 1
    for attribute in attributes:
        count = len(call.attributes[attribute])
        if count not in (1, features):
            raise NotCompiled(f"{count} numbers for {features} features", call)


# one element after the other


def _check_scaler(call: Call, inputs: Inputs, results: Results) -> None:
    _check_per_feature(call, inputs, "offset", "scale")


def _record_scaler(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    formula = Formula("f32")
    offset = formula.read(_constant(plan, call, "offset"))
    shifted = formula.step("Sub", formula.read(x), offset)
    scale = formula.read(_constant(plan, call, "scale"))
    result = formula.step("Mul", shifted, scale)
    formula.record(plan.recorder, result, out, call.op_type)


register("ai.onnx.ml.Scaler", Operation(_record_scaler, _accepts, _check_scaler))


def _record_binarizer(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    formula = Formula("f32")
    threshold = formula.number(float(call.attributes["threshold"]))
    above = formula.step("Greater", formula.read(x), threshold, element="i1")
    formula.record(plan.recorder, formula.step("Cast", above), out, call.op_type)


register("ai.onnx.ml.Binarizer", Operation(_record_binarizer, _accepts))


def _check_imputer(call: Call, inputs: Inputs, results: Results) -> None:
    _check_per_feature(call, inputs, "imputed_value_floats")


def _record_imputer(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    formula, replaced = Formula("f32"), float(call.attributes["replaced_value_float"])
    value = formula.read(x)
    if math.isnan(replaced):
        missing = formula.step("IsNaN", value, element="i1")
    else:
        missing = formula.step("Equal", value, formula.number(replaced), element="i1")
    imputed = formula.read(_constant(plan, call, "imputed_value_floats"))
    result = formula.step("Where", missing, imputed, value)
    formula.record(plan.recorder, result, out, call.op_type)


register("ai.onnx.ml.Imputer", Operation(_record_imputer, _accepts, _check_imputer))


# one row after the other


def _check_normalizer(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if call.attributes["norm"] not in _NORMS or not shape or not shape[-1]:
        raise NotCompiled(f"the norm {call.attributes['norm']} of {shape}", call)


def _record_normalizer(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    recorder, axis = plan.recorder, len(x.shape) - 1
    norm = recorder.temporary(_F32, (*x.shape[:-1], 1))
    reduction = _NORMS[call.attributes["norm"]]
    recorder.target.reductions.record_reduce(recorder, reduction, x, norm, (axis,))
    formula = Formula("f32")
    size = formula.read(norm)
    none = formula.step("Equal", size, formula.number(0.0), element="i1")
    divisor = formula.step("Where", none, formula.number(1.0), size)
    result = formula.step("Div", formula.read(x), divisor)
    formula.record(recorder, result, out, call.op_type)


register(
    "ai.onnx.ml.Normalizer", Operation(_record_normalizer, _accepts, _check_normalizer)
)


def _accepts_linear(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    transform = call.attributes["post_transform"]
    if transform not in _TRANSFORMS:
        return f"{call.op_type} is not compiled with {transform}"
    return _accepts(call, dtypes, target)


def _check_regressor(call: Call, inputs: Inputs, results: Results) -> None:
    shape, attributes = given(inputs).shape, call.attributes
    targets = int(attributes["targets"])
    if len(shape) not in (1, 2) or not shape[-1]:
        raise NotCompiled(f"{call.op_type} of {shape}", call)
    if len(attributes["coefficients"]) != targets * shape[-1] or not targets:
        raise NotCompiled(f"coefficients for {targets} targets of {shape}", call)
    if attributes["intercepts"] and len(attributes["intercepts"]) not in (1, targets):
        raise NotCompiled(f"intercepts for {targets} targets", call)


def _record_regressor(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    recorder, targets = plan.recorder, int(call.attributes["targets"])
    rows = plan.contiguous(x).reshape((x.size // x.shape[-1], x.shape[-1]))
    matrix = _constant(plan, call, "coefficients").reshape((targets, x.shape[-1]))
    scores = out.reshape((x.size // x.shape[-1], targets))
    assert rows is not None and matrix is not None and scores is not None
    product = recorder.temporary(_F32, scores.shape)
    recorder.target.contractions.record_matmul(
        recorder, rows, matrix.transpose((1, 0)), product, label=call.op_type
    )
    transform = call.attributes["post_transform"]
    formula = Formula("f32")
    score = formula.read(product)
    if call.attributes["intercepts"]:
        intercepts = formula.read(_constant(plan, call, "intercepts"))
        score = formula.step("Add", score, intercepts)
    if transform == "LOGISTIC":
        score = formula.step("Sigmoid", score)
    if transform != "SOFTMAX":
        formula.record(recorder, formula.step("Identity", score), scores, call.op_type)
        return
    sums = recorder.temporary(_F32, scores.shape)
    formula.record(recorder, formula.step("Identity", score), sums, call.op_type)
    recorder.target.rows.record_softmax(recorder, sums, scores, label="softmax")


register(
    "ai.onnx.ml.LinearRegressor",
    Operation(_record_regressor, _accepts_linear, _check_regressor),
)


# columns


def _accepts_extractor(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[1] != np.dtype(np.int64):
        return f"{call.op_type} is not compiled for indices of {dtypes[1]}"
    return moved(call, dtypes[:1], target)


def _check_extractor(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if not shape or not shape[-1]:
        raise NotCompiled(f"columns of {shape}", call)


def _record_extractor(plan: Plan, call: Call) -> None:
    x, out = _places(plan, call)
    name = call.inputs[1]
    assert name is not None
    chosen = plan.contiguous(plan.view(name))
    indices = chosen.reshape((chosen.size,))
    rows = x if len(x.shape) > 1 else x.reshape((1, *x.shape))
    assert rows is not None and indices is not None
    axis = len(rows.shape) - 1
    columns = out.reshape((*rows.shape[:-1], chosen.size))
    assert columns is not None
    indexing = plan.recorder.target.indexing
    indexing.record_gather(plan.recorder, rows, indices, columns, axis)


register(
    "ai.onnx.ml.ArrayFeatureExtractor",
    Operation(_record_extractor, _accepts_extractor, _check_extractor),
)
