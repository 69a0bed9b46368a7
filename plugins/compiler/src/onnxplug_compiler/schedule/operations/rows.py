"""Operators over the last axes: softmax and norms."""

from __future__ import annotations

import math

from onnxplug.authoring.bounds import normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled
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
    register,
)

_ONE_AXIS_SINCE = 13
"""The opset before which Softmax is over all axes from the given one on."""


def _record_softmax(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, out = plan.view(source), plan.destination(output)
    axis = normal_axis(int(call.attributes["axis"]), len(x.shape))
    if call.version < _ONE_AXIS_SINCE and axis != len(x.shape) - 1:
        matrix = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        x, out, axis = _reshaped(plan.contiguous(x), matrix), _reshaped(out, matrix), 1
    plan.recorder.target.rows.record_softmax(
        plan.recorder,
        x,
        out,
        axis=axis,
        log=call.op_type == "LogSoftmax",
        label=call.op_type,
    )


def _reshaped(view: View, shape: tuple[int, ...]) -> View:
    reshaped = view.reshape(shape)
    if reshaped is None:
        raise NotCompiled(f"the axes of {view.shape} do not become {shape}")
    return reshaped


register("Softmax LogSoftmax", Operation(_record_softmax, computed))


# norms


def _check_norm(call: Call, inputs: Inputs, results: Results) -> None:
    if len(call.outputs) > 1 and not given(inputs).size:
        raise NotCompiled("statistics of no elements", call)


def _record_norm(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x = plan.view(source)
    axis = normal_axis(int(call.attributes["axis"]), len(x.shape))
    rows = (*x.shape[:axis], math.prod(x.shape[axis:]))
    if axis != len(x.shape) - 1:
        x = plan.contiguous(x)
    statistics = [
        None if name is None else _reshaped(plan.destination(name), (*rows[:-1], 1))
        for name in (call.output(1), call.output(2))
    ]
    plan.recorder.target.rows.record_norm(
        plan.recorder,
        _reshaped(x, rows),
        _reshaped(plan.destination(output, padded_rows=axis == len(x.shape) - 1), rows),
        epsilon=float(call.attributes["epsilon"]),
        centered=call.op_type == "LayerNormalization",
        scale=_parameter(plan, call.input(1), rows, x.shape[axis:]),
        bias=_parameter(plan, call.input(2), rows, x.shape[axis:]),
        mean=statistics[0],
        inverse=statistics[1],
        label=call.op_type,
    )


def _parameter(
    plan: Plan, name: str | None, rows: tuple[int, ...], shape: tuple[int, ...]
) -> View | None:
    """The scale or the bias, repeated for all rows."""
    if name is None:
        return None
    view = plan.view(name)
    if len(view.shape) > len(shape):
        if math.prod(view.shape[: -len(shape)]) != 1:
            raise NotCompiled("a scale that differs from row to row")
        view = _reshaped(view, view.shape[-len(shape) :])
    row = view.broadcast_to(shape).reshape(rows[-1:])
    if row is None:
        raise NotCompiled("a scale that is broadcast within a row")
    return row.broadcast_to(rows)


def _accepts_norm(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if int(call.attributes.get("stash_type", 1)) != 1:
        return f"{call.op_type} is compiled to compute in float32"
    return computed(call, [dtype for dtype in dtypes if dtype is not None], target)


register(
    "LayerNormalization RMSNormalization",
    Operation(_record_norm, _accepts_norm, _check_norm),
)
