"""Categories made numbers, and columns put together, of ``ai.onnx.ml``."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.tables import Keys
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_fill
from onnxplug_compiler.schedule.learned import I64, attribute, places
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
from onnxplug_kernels.ml.encode import (
    sorted_keys,
    unknown_category,
    values_and_default,
)

_MOST_REQUIRED: Final = 1 << 9
"""Categories at most of which there is an identity matrix."""

_BEYOND: Final = 2.0**62
"""What floats become at most that are no category."""


def _accepts_one_hot(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    categories = attributes["cats_int64s"]
    if attributes["cats_strings"]:
        return f"{call.op_type} is compiled for numbers"
    if not attributes["zeros"] and len(categories) > _MOST_REQUIRED:
        return f"{call.op_type} is compiled for fewer categories with zeros=0"
    if not categories or len(set(categories)) < len(categories):
        return f"{call.op_type} is compiled for categories that differ"
    return moved(call, dtypes, target)


def _record_one_hot(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    if not call.attributes["zeros"]:
        _record_required(plan, call, x, out)
        return
    formula = Formula.of(x)
    value = formula.read(x.reshape((*x.shape, 1)) or x)
    categories = attribute(call.attributes["cats_int64s"], I64)
    hot = formula.step(
        "Equal",
        _integer(formula, value, x),
        formula.read(plan.recorder.constant(categories)),
        element="i1",
    )
    formula.record(plan.recorder, formula.cast(hot, "f32"), out, call.op_type)


def _record_required(plan: Plan, call: Call, x: View, out: View) -> None:
    """Rows of the identity at the places of categories; what is none is an index
    outside, from which it can be told."""
    recorder = plan.recorder
    categories = attribute(call.attributes["cats_int64s"], I64)
    count = len(categories)
    if x.dtype != I64:
        formula, whole = Formula.of(x), recorder.temporary(I64, x.shape)
        value = _integer(formula, formula.read(x), x)
        formula.record(recorder, value, whole, call.op_type)
        x = whole
    ordered, found, _ = sorted_keys(categories)
    place = recorder.temporary(I64, x.shape)
    table = recorder.constant(np.arange(count + 1))
    keys = Keys(ordered, found, count, count)
    recorder.target.tables.record_lookup(recorder, x, keys, table, place, call.op_type)
    formula = Formula("i64")
    known, value = formula.read(place), formula.read(x)
    many, none = formula.number(count), formula.number(0)
    below = formula.step("Less", value, none, element="i1")
    down, up = formula.step("Sub", value, many), formula.step("Add", value, many)
    outside = formula.step("Where", below, down, up)
    lacks = formula.step("Equal", known, many, element="i1")
    index = recorder.temporary(I64, x.shape)
    chosen = formula.step("Where", lacks, outside, known)
    formula.record(recorder, chosen, index, call.op_type)
    identity = recorder.constant(np.eye(count, dtype=np.float32))
    indexing = recorder.target.indexing
    indexing.record_gather(recorder, identity, index, out, 0, label=call.op_type)
    check = recorder.checks[-1]

    def unknown(found: int) -> Exception:
        return unknown_category(found + count if found < 0 else found - count)

    recorder.checks[-1] = check._replace(error=unknown)


def _integer(formula: Formula, value: Number, x: View) -> Number:
    """An element as int64; NaN, and what int64 lacks, as no category."""
    if x.dtype.kind == "f":
        beyond = formula.number(_BEYOND)
        missing = formula.step("IsNaN", value, element="i1")
        value = formula.step("Where", missing, beyond, value)
        value = formula.step("Min", value, beyond)
        value = formula.step("Max", value, formula.number(-_BEYOND))
    return formula.cast(value, "i64")


register("ai.onnx.ml.OneHotEncoder", Operation(_record_one_hot, _accepts_one_hot))


def _accepts_label(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    found = _mapping(call)
    if isinstance(found, str):
        return found
    keys, values = found
    if keys.ordered.dtype != dtypes[0] or values.dtype != call.dtypes[0]:
        return f"{call.op_type} is not compiled for keys and values of other types"
    return moved(call, dtypes, target)


def _mapping(call: Call) -> tuple[Keys, np.ndarray[Any, Any]] | str:
    """What is looked for, and the values at its places; or why that is not known."""
    if "keys_int64s" not in call.attributes:
        return f"{call.op_type} of version 1 is not compiled"
    try:
        keys, values = values_and_default(call.attributes)
    except ValueError as error:
        return str(error)
    if keys.dtype.kind not in "iuf" or values.dtype.kind not in "iuf":
        return f"{call.op_type} is compiled for numbers"
    ordered, places, of_nan = sorted_keys(keys)
    other = len(values) - 1
    return Keys(ordered, places, of_nan if of_nan >= 0 else other, other), values


def _record_label(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    found = _mapping(call)
    assert not isinstance(found, str)
    keys, values = found
    recorder = plan.recorder
    table = recorder.constant(values)
    recorder.target.tables.record_lookup(recorder, x, keys, table, out, call.op_type)


register("ai.onnx.ml.LabelEncoder", Operation(_record_label, _accepts_label))


def _as_matrix(x: tuple[int, ...]) -> tuple[int, int]:
    if len(x) < 2:
        return 1, math.prod(x)
    return x[0], math.prod(x[1:])


def _widths(call: Call, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    stated = tuple(call.attributes["inputdimensions"])
    return stated or tuple(_as_matrix(shape)[1] for shape in shapes)


def _check_vectorizer(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [given(inputs, place).shape for place in range(len(inputs))]
    widths = _widths(call, shapes)
    if len(widths) != len(shapes) or any(width < 0 for width in widths):
        raise NotCompiled(f"{len(shapes)} inputs with the widths {widths}", call)
    if len({_as_matrix(shape)[0] for shape in shapes}) > 1:
        raise NotCompiled(f"inputs of {shapes}", call)


def _record_vectorizer(plan: Plan, call: Call) -> None:
    _, out = places(plan, call)
    views = [plan.view(name) for name in call.inputs if name is not None]
    start = 0
    for x, width in zip(
        views, _widths(call, [view.shape for view in views]), strict=True
    ):
        rows = plan.contiguous(x).reshape(_as_matrix(x.shape))
        assert rows is not None
        count = rows.shape[0]
        kept = min(width, rows.shape[1])
        if kept:
            formula = Formula(element_of(x.dtype) or "")
            value = formula.cast(formula.read(rows.slice((0, 0), (count, kept))), "f32")
            place = out.slice((0, start), (count, kept))
            formula.record(plan.recorder, value, place, call.op_type)
        if width > kept:
            rest = out.slice((0, start + kept), (count, width - kept))
            record_fill(plan.recorder, np.zeros((), np.float32), rest)
        start += width


register(
    "ai.onnx.ml.FeatureVectorizer",
    Operation(_record_vectorizer, moved, _check_vectorizer),
)
