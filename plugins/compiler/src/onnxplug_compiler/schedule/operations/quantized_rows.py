"""Softmax and norms of rows between codes, which a pattern made; see
:mod:`~...frontend.patterns.quantised`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import in_steps, quantised
from onnxplug_compiler.schedule.coded import as_shape
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Operation,
    Plan,
    register,
)

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Support
    from onnxplug_compiler.ir.views import View


def _made_by_pattern(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _record(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    codes, out = plan.view(source), plan.destination(output)
    *lead, columns = codes.shape
    shape = (math.prod(lead), columns)
    codes, target = as_shape(plan, codes, shape), out.reshape(shape)
    # channels that are written where others join them have gaps
    written = target or plan.recorder.temporary(out.dtype, shape)
    scale, zero, y_scale, y_zero = (_number(plan, call, at) for at in range(1, 5))
    assert scale is not None and y_scale is not None, "of both calls"
    factor, addend = (_row(plan, call, at, columns) for at in (5, 6))

    def record(recorder: Recorder[Any], x: View, y: View) -> None:
        rows, attributes = recorder.target.rows, call.attributes
        if attributes["operator"] == "Softmax":
            rows.record_softmax(recorder, x, y, label="Softmax")
            return
        rows.record_norm(
            recorder,
            x,
            y,
            epsilon=float(attributes["epsilon"]),
            centered=attributes["operator"] == "LayerNormalization",
            scale=factor,
            bias=addend,
            label=attributes["operator"],
        )

    chain, element = Formula("f32"), element_of(out.dtype)
    assert element is not None
    steps = in_steps(chain, chain.tile(), chain.read(y_scale), "f32")
    offset = None if y_zero is None else chain.read_wide(y_zero)
    value = quantised(chain, steps, offset, element)
    family = plan.recorder.target.coded_rows
    assert family is not None, "the pattern asks for it"
    family.record_between_codes(
        plan.recorder,
        codes,
        scale,
        zero,
        record,
        chain.epilogue([value], [written]),
        label=call.attributes["operator"],
    )
    if target is None:
        record_copy(plan.recorder, as_shape(plan, written, out.shape), out)


def _number(plan: Plan, call: Call, position: int) -> View | None:
    name = call.input(position)
    return None if name is None else as_shape(plan, plan.view(name), ())


def _row(plan: Plan, call: Call, position: int, columns: int) -> View | None:
    """What columns are multiplied with, or what is added; one number is for all."""
    name = call.input(position)
    return None if name is None else plan.view(name).broadcast_to((columns,))


register("QuantizedRows", Operation(_record, _made_by_pattern))
