"""Operators that choose elements by their order."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled, integer
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

_I64 = np.dtype(np.int64)


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return moved(call, dtypes[:1], target)


def _check_arg(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if not shape or shape[normal_axis(int(call.attributes["axis"]), len(shape))] == 0:
        raise NotCompiled(f"{call.op_type} of {shape}", call)


def _record_arg(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, out = plan.view(source), plan.destination(output)
    axis = normal_axis(int(call.attributes["axis"]), len(x.shape))
    if len(out.shape) < len(x.shape):
        out = _with_axis(out, axis)
    plan.recorder.target.selection.record_arg_extreme(
        plan.recorder,
        x,
        out,
        axis,
        largest=call.op_type == "ArgMax",
        last=bool(call.attributes.get("select_last_index", 0)),
    )


def _with_axis(view: View, axis: int) -> View:
    shape = (*view.shape[:axis], 1, *view.shape[axis:])
    strides = (*view.strides[:axis], 0, *view.strides[axis:])
    return View(view.buffer, view.offset, view.dtype, shape, strides)


register("ArgMax ArgMin", Operation(_record_arg, _accepts, _check_arg))


def _check_top(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if not shape:
        raise NotCompiled("TopK of a scalar", call)
    size = shape[normal_axis(int(call.attributes["axis"]), len(shape))]
    count = call.attributes.get("k")
    if count is None:
        count = integer(call, given(inputs, 1), "the number of elements")
    if not 0 <= count <= size:
        raise NotCompiled(f"{count} of {size} elements", call)


def _record_top(plan: Plan, call: Call) -> None:
    source, values, indices = call.inputs[0], call.outputs[0], call.output(1)
    assert source is not None and values is not None
    x, found = plan.view(source), plan.destination(values)
    if indices is None:
        places = plan.recorder.temporary(_I64, found.shape)
    else:
        places = plan.destination(indices)
    axis = normal_axis(int(call.attributes["axis"]), len(x.shape))
    largest = bool(call.attributes.get("largest", 1))
    plan.recorder.target.selection.record_top(
        plan.recorder, x, found, places, axis, largest=largest
    )


register("TopK", Operation(_record_top, _accepts, _check_top, known=frozenset({1})))


# Hardmax

_ALONG_AXIS_SINCE: Final = 13
"""The opset before which axes from the given one on were those of one row."""


def _rows(call: Call, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The shape in which the largest elements are found, and along which axis."""
    axis, rank = int(call.attributes["axis"]), len(shape)
    if call.version >= _ALONG_AXIS_SINCE:
        return shape, normal_axis(axis, rank)
    lead = rank if axis == rank else normal_axis(axis, rank)
    return (math.prod(shape[:lead]), math.prod(shape[lead:])), 1


def _record_hardmax(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, out = plan.view(source), plan.destination(output)
    if not out.size:
        return
    shape, axis = _rows(call, x.shape)
    if shape != x.shape:
        x, out = (_as_matrix(plan, view, shape) for view in (x, out))
    recorder = plan.recorder
    places = recorder.temporary(_I64, (*shape[:axis], 1, *shape[axis + 1 :]))
    recorder.target.selection.record_arg_extreme(
        recorder, x, places, axis, largest=True
    )
    along = [shape[axis] if each == axis else 1 for each in range(len(shape))]
    numbers = recorder.constant(np.arange(shape[axis])).reshape(along)
    assert numbers is not None
    formula = Formula.of(out)
    first = formula.step(
        "Equal", formula.read(places), formula.read(numbers), element="i1"
    )
    ends = formula.number(1.0), formula.number(0.0)
    formula.record(recorder, formula.step("Where", first, *ends), out, call.op_type)


def _as_matrix(plan: Plan, view: View, shape: tuple[int, ...]) -> View:
    matrix = plan.contiguous(view).reshape(shape)
    assert matrix is not None
    return matrix


register("Hardmax", Operation(_record_hardmax, computed))
