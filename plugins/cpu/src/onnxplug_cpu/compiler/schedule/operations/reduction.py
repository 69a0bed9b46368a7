"""Reductions over axes."""

from __future__ import annotations

import numpy as np

from onnxplug.authoring.bounds import normal_axes
from onnxplug_cpu.compiler.frontend.call import Call, integers
from onnxplug_cpu.compiler.kernels.reduction.commands import KINDS, record_reduce
from onnxplug_cpu.compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    register,
)

_INTEGERS = frozenset("ReduceMax ReduceMin ReduceProd ReduceSum".split())


def _axes(call: Call, inputs: Inputs) -> tuple[int, ...]:
    """The axes to reduce, from the front; an input since opset 13 or 18."""
    x = inputs[0]
    assert x is not None
    axes: list[int] | None = None
    if call.input(1) is not None:
        axes = integers(call, inputs[1], "the axes")
    elif call.attributes.get("axes") is not None:
        axes = [int(axis) for axis in call.attributes["axes"]]
    if not axes:
        if call.attributes.get("noop_with_empty_axes", 0):
            return ()
        return tuple(range(len(x.shape)))
    return tuple(sorted(normal_axes(axes, len(x.shape))))


def _record(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    axes = _axes(call, inputs)
    record_reduce(
        plan.recorder, call.op_type, plan.view(source), plan.target(output), axes
    )


def _accepts(call: Call, dtypes: Dtypes) -> str | None:
    if dtypes[0] == F32:
        return None
    if call.op_type in _INTEGERS and dtypes[0] in (
        np.dtype(np.int32),
        np.dtype(np.int64),
    ):
        return None
    return f"{call.op_type} is not compiled for {dtypes[0]}"


register(" ".join(KINDS), Operation(_record, _accepts, known=frozenset({1})))
