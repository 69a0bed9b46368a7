"""Convolutions of each channel along time, which carry what they saw last.

Source: ONNX operator CausalConvWithState-27.  It is the concatenation of the state and
the input, windows of each channel, and an activation.
"""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_concat, record_padded
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

_LINEAR: Final = "none"
_ACTIVATIONS: Final = (_LINEAR, "silu", "swish")
"""The operator's; the last two are names of one."""


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    activation = call.attributes["activation"]
    if activation not in _ACTIVATIONS:
        return f"{call.op_type} has no activation {activation!r}"
    return computed(call, dtypes, target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, weights = given(inputs).shape, given(inputs, 1).shape
    wanted = [x, weights]
    if len(x) == 3 and len(weights) == 3 and weights[2]:
        wanted = [x, (x[1], 1, weights[2]), (x[1],), (*x[:2], weights[2] - 1)]
    for value, shape in zip(inputs, wanted, strict=False):
        if value is not None and (value.shape != shape or len(wanted) < 4):
            raise NotCompiled(f"{call.op_type} of {x} with {value.shape}", call)


def _record(plan: Plan, call: Call) -> None:
    x, weights = _read(plan, call, 0), _read(plan, call, 1)
    assert x is not None and weights is not None
    past, memory = _read(plan, call, 3), weights.shape[2] - 1
    sequence = x
    if past is not None and memory:
        shape = (*x.shape[:2], memory + x.shape[2])
        sequence = plan.recorder.ordered_like(x, shape)
        record_concat(plan.recorder, [past, x], sequence, 2, label=call.op_type)
    _record_result(plan, call, sequence, weights)
    if call.output(1) is not None:
        _record_state(plan, call, sequence, memory)


def _read(plan: Plan, call: Call, position: int) -> View | None:
    name = call.input(position)
    return None if name is None else plan.view(name)


def _record_result(plan: Plan, call: Call, sequence: View, weights: View) -> None:
    """The windows, their bias and their activation.

    Args:
        sequence: the input behind what was before it, unless that is zeros.
    """
    name, windows = call.outputs[0], plan.recorder.target.windows
    assert name is not None
    if windows is None:
        raise NotCompiled(f"no windows of {call.op_type}", call)
    out, bias = plan.destination(name), _read(plan, call, 2)
    element = element_of(out.dtype)
    assert element is not None
    if not out.size:
        return
    chain = Formula.wide(out)
    value = chain.tile()
    if bias is not None:
        per_channel = bias.reshape((bias.shape[0], 1))
        assert per_channel is not None
        value = chain.step("Add", value, chain.read_wide(per_channel))
    if call.attributes["activation"] != _LINEAR:
        value = chain.step("Mul", value, chain.step("Sigmoid", value))
    before = out.shape[2] + weights.shape[2] - 1 - sequence.shape[2]
    windows.record_depthwise(
        plan.recorder,
        sequence,
        weights,
        out,
        strides=(1,),
        dilations=(1,),
        pads=(before, 0),
        epilogue=chain.epilogue([chain.cast(value, element)], [out]),
        label=call.op_type,
    )


def _record_state(plan: Plan, call: Call, sequence: View, memory: int) -> None:
    """The last *memory* positions, with zeros before a shorter sequence."""
    name = call.outputs[1]
    assert name is not None
    state, time = plan.destination(name), sequence.shape[2]
    if not state.size:
        return
    kept = min(time, memory)
    last = sequence.slice((0, 0, time - kept), (*sequence.shape[:2], kept))
    starts = (0, 0, memory - kept)
    record_padded(plan.recorder, last, state, starts, label=call.op_type)


register("CausalConvWithState", Operation(_record, _accepts, _check))
