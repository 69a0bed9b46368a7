"""Keys and values that are codes: how many there are, and copies of them as floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.formula import Formula

if TYPE_CHECKING:
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.recording import Recorder

_F32: Final = np.dtype(np.float32)


def codes_of(view: View) -> int:
    """Elements of a row: of uint8 a byte has two."""
    return view.shape[-1] * (2 if view.dtype_name == "uint8" else 1)


def as_floats(recorder: Recorder, view: View) -> View:
    """A copy of int8, or of pairs of 4 bits in uint8, in float32."""
    out = recorder.temporary(_F32, (*view.shape[:-1], codes_of(view)))
    if view.dtype_name == "int8":
        formula = Formula("f32")
        formula.record(recorder, formula.read_wide(view), out, "Cast")
        return out
    for number in range(2):
        formula = Formula("f32")
        pair, eight = formula.read_wide(view), formula.number(8.0)
        parts = formula.step("Mul", pair, formula.number(1 / 16))
        code = formula.step("Floor", parts)
        if number == 0:
            upper = formula.step("Mul", code, formula.number(16.0))
            code = formula.step("Sub", pair, upper)
        starts = (*[0] * (len(out.shape) - 1), number)
        steps = (*[1] * (len(out.shape) - 1), 2)
        part = out.slice(starts, view.shape, steps)
        formula.record(recorder, formula.step("Sub", code, eight), part, "Cast")
    return out
