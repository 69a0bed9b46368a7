"""Arrays that are made of numbers, not of other arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.copies import record_copy, record_fill
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_FARTHEST: Final = 1 << 30
"""Rows and columns whose numbers are compared."""

_MOST_NUMBERS: Final = 1 << 25
"""Elements of a result that are computed when planning."""


def _accepts_result(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts a result of elements that the target makes."""
    elements, result = target.elements(call.op_type), call.dtypes[0]
    if result is None or element_of(result) not in elements:
        return f"{call.op_type} is not compiled for {result}"
    return None


# ConstantOfShape


def _record_constant(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    target, value = plan.destination(output), call.attributes.get("value")
    content = np.zeros((), np.float32) if value is None else np.asarray(value)
    record_fill(plan.recorder, content, target, label=call.op_type)


register(
    "ConstantOfShape",
    Operation(_record_constant, _accepts_result, known=frozenset({0})),
)


# EyeLike


def _check_eye(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(results).shape
    if len(shape) != 2 or max(shape) >= _FARTHEST or given(inputs).shape != shape:
        raise NotCompiled(f"EyeLike of {given(inputs).shape}", call)


def _record_eye(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    out = plan.destination(output)
    if not out.size:
        return
    rows, columns = out.shape
    diagonal = max(-rows, min(int(call.attributes["k"]), columns))
    formula = Formula("i32")
    lines = np.arange(rows, dtype=np.int32).reshape(rows, 1) + np.int32(diagonal)
    first, second = (
        formula.read(plan.recorder.constant(numbers))
        for numbers in (lines, np.arange(columns, dtype=np.int32))
    )
    found = formula.step("Equal", first, second, element="i1")
    formula.record(plan.recorder, found, out, call.op_type)


register("EyeLike", Operation(_record_eye, _accepts_result, _check_eye))


# What is computed of a few numbers when planning


def _check_numbers(call: Call, inputs: Inputs, results: Results) -> None:
    if given(results).size > _MOST_NUMBERS:
        raise NotCompiled(f"{call.op_type} of {given(results).shape}", call)


def _record_numbers(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None and call.function is not None
    contents = [
        None if name is None else plan.known(name).content for name in call.inputs
    ]
    try:
        found = np.asarray(call.function(*contents))
    except ValueError as error:
        raise NotCompiled(str(error), call) from error
    record_copy(
        plan.recorder,
        plan.recorder.constant(found),
        plan.destination(output),
        label=call.op_type,
    )


register(
    "BlackmanWindow HammingWindow HannWindow MelWeightMatrix",
    Operation(
        _record_numbers, _accepts_result, _check_numbers, known=frozenset(range(5))
    ),
)
