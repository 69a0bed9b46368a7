"""Numbers made ready for a predictor, of ``ai.onnx.ml``: scaled, filled in, chosen."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.learned import F32, attribute, places, widened
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

_NORMS: Final = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}


def _computed_as(x: View) -> str:
    """What is computed with: float64 where float32 would lose something of *x*."""
    return "f32" if x.dtype == F32 else "f64"


def _constant(plan: Plan, call: Call, name: str, dtype: np.dtype[Any]) -> View:
    """The numbers of an attribute, which are made an array once for the call."""
    return plan.recorder.constant(attribute(call.attributes[name], dtype))


def _check_per_feature(call: Call, inputs: Inputs, *attributes: str) -> None:
    shape = given(inputs).shape
    features = shape[-1] if shape else 1
    for name in attributes:
        count = len(call.attributes[name])
        if count not in (1, features):
            raise NotCompiled(f"{count} numbers for {features} features", call)


# one element after the other


def _check_scaler(call: Call, inputs: Inputs, results: Results) -> None:
    _check_per_feature(call, inputs, "offset", "scale")


def _record_scaler(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    element = _computed_as(x)
    dtype = np.dtype(np.float32 if element == "f32" else np.float64)
    formula = Formula(element)
    offset = formula.read(_constant(plan, call, "offset", dtype))
    shifted = formula.step("Sub", formula.cast(formula.read(x), element), offset)
    scale = formula.read(_constant(plan, call, "scale", dtype))
    result = formula.cast(formula.step("Mul", shifted, scale), "f32")
    formula.record(plan.recorder, result, out, call.op_type)


register("ai.onnx.ml.Scaler", Operation(_record_scaler, moved, _check_scaler))


def _record_binarizer(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    element = _computed_as(x)
    formula = Formula(element)
    threshold = formula.number(float(call.attributes["threshold"]))
    value = formula.cast(formula.read(x), element)
    above = formula.step("Greater", value, threshold, element="i1")
    result = formula.cast(above, element_of(x.dtype) or element)
    formula.record(plan.recorder, result, out, call.op_type)


register("ai.onnx.ml.Binarizer", Operation(_record_binarizer, moved))


def _imputed(x: np.dtype[Any]) -> tuple[str, str]:
    """The attributes of an Imputer for elements of a type."""
    kind = "float" if x.kind == "f" else "int64"
    return f"imputed_value_{kind}s", f"replaced_value_{kind}"


def _check_imputer(call: Call, inputs: Inputs, results: Results) -> None:
    _check_per_feature(call, inputs, _imputed(given(inputs).dtype)[0])


def _record_imputer(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    values, attribute = _imputed(x.dtype)
    formula, replaced = Formula.of(x), call.attributes[attribute]
    value = formula.read(x)
    if math.isnan(replaced):
        missing = formula.step("IsNaN", value, element="i1")
    else:
        missing = formula.step("Equal", value, formula.number(replaced), element="i1")
    imputed = formula.read(_constant(plan, call, values, x.dtype))
    result = formula.step("Where", missing, imputed, value)
    formula.record(plan.recorder, result, out, call.op_type)


register("ai.onnx.ml.Imputer", Operation(_record_imputer, moved, _check_imputer))


# one row after the other


def _accepts_normalizer(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    norm = call.attributes["norm"]
    if norm not in _NORMS:
        return f"{call.op_type} is not compiled with the norm {norm}"
    if dtypes[0] != F32 and "f64" not in target.elements(_NORMS[norm]):
        return f"{call.op_type} is compiled for float32; found {dtypes[0]}"
    return moved(call, dtypes, target)


def _check_normalizer(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if not shape or not shape[-1]:
        raise NotCompiled(f"{call.op_type} of {shape}", call)


def _record_normalizer(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    recorder, axis, element = plan.recorder, len(x.shape) - 1, _computed_as(x)
    x = widened(plan, x)
    norm = recorder.temporary(x.dtype, (*x.shape[:-1], 1))
    reduction = _NORMS[call.attributes["norm"]]
    recorder.target.reductions.record_reduce(recorder, reduction, x, norm, (axis,))
    formula = Formula(element)
    size = formula.read(norm)
    none = formula.step("Equal", size, formula.number(0.0), element="i1")
    divisor = formula.step("Where", none, formula.number(1.0), size)
    result = formula.cast(formula.step("Div", formula.read(x), divisor), "f32")
    formula.record(recorder, result, out, call.op_type)


register(
    "ai.onnx.ml.Normalizer",
    Operation(_record_normalizer, _accepts_normalizer, _check_normalizer),
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
    x, out = places(plan, call)
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
