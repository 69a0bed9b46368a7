"""Look-ups of 8-bit codes in tables that patterns made; see
:mod:`~...frontend.patterns.mapped`."""

from __future__ import annotations

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.patterns.mapped import OPERATOR
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Operation,
    Plan,
    register,
)


def _made_by_pattern(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _record(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x, recorder = plan.view(source), plan.recorder
    table = recorder.constant(np.frombuffer(call.attributes["table"], np.uint8))
    out = plan.destination(output)
    recorder.target.tables.record_mapped(recorder, x, table, out, call.op_type)


register(OPERATOR, Operation(_record, _made_by_pattern))
