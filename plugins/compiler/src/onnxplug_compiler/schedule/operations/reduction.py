"""Reductions over axes."""

from __future__ import annotations

from onnxplug.authoring.bounds import normal_axes
from onnxplug_compiler.frontend.call import Call, integers
from onnxplug_compiler.ir.families import REDUCTIONS
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    moved,
    register,
)


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
    plan.recorder.target.reductions.record_reduce(
        plan.recorder, call.op_type, plan.view(source), plan.destination(output), axes
    )


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return moved(call, dtypes[:1], target)


register(" ".join(REDUCTIONS), Operation(_record, _accepts, known=frozenset({1})))
