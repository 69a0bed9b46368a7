"""Softmax and norms of rows that one chunk would take too long for.

They are put together from reductions and chains over all rows, which have as many
chunks as they need.
"""

from __future__ import annotations

import numpy as np

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.reduction.commands import (
    record_moments,
    record_reduce,
)


def record_long_softmax(
    recorder: Recorder,
    x: View,
    out: View,
    axis: int,
    columns: int | None,
    parts: int,
    log: bool,
    label: str,
) -> None:
    """Softmax along an axis, as :func:`~.softmax.record_softmax`.

    Args:
        columns: the axis along vectors, if columns can be divided into *parts*.
    """
    if columns is not None:
        from onnxplug_cpu.compiler.kernels.normalization.softmax import record_softmax

        each = x.shape[columns] // parts
        for part, place in zip(
            x.cut(columns, each), out.cut(columns, each), strict=True
        ):
            record_softmax(recorder, part, place, axis=axis + 1, log=log, label=label)
        return
    shape = [1 if a == axis else size for a, size in enumerate(x.shape)]
    top, total = (recorder.temporary(x.dtype, shape) for _ in range(2))
    record_reduce(recorder, "ReduceMax", x, top, (axis,))
    formula = Formula.of(x)
    value = formula.step("Sub", formula.read(x), formula.read(top))
    if not log:
        value = formula.step("Exp", value)
    formula.record(recorder, value, out, label)
    kind = "ReduceLogSumExp" if log else "ReduceSum"
    record_reduce(recorder, kind, out, total, (axis,))
    formula = Formula.of(x)
    operator = "Sub" if log else "Div"
    value = formula.step(operator, formula.read(out), formula.read(total))
    formula.record(recorder, value, out, label)


def record_long_norm(
    recorder: Recorder,
    x: View,
    out: View,
    *,
    epsilon: float,
    centered: bool,
    scale: View | None,
    bias: View | None,
    mean: View | None,
    inverse: View | None,
    label: str,
) -> None:
    """Normalise rows, as :func:`~.norm.record_norm`."""
    axis = len(x.shape) - 1
    shape = (*x.shape[:axis], 1)
    if centered:
        center, variance = record_moments(recorder, x, (axis,), label=label)
    else:
        center, variance = None, recorder.temporary(x.dtype, shape)
        record_reduce(recorder, "ReduceSumSquare", x, variance, (axis,))
        count = recorder.constant(np.array(x.shape[axis], np.float32))
        formula = Formula("f32")
        value = formula.step("Div", formula.read(variance), formula.read(count))
        formula.record(recorder, value, variance, label)
    if inverse is None:
        inverse = recorder.temporary(x.dtype, shape)
    formula = Formula("f32")
    value = formula.read(variance)
    value = formula.step("Add", value, formula.number(epsilon))
    value = formula.step("Div", formula.number(1.0), formula.step("Sqrt", value))
    formula.record(recorder, value, inverse, label)
    if center is not None and mean is not None:
        record_copy(recorder, center, mean, label=label)
    formula = Formula("f32")
    value = formula.read(x)
    if center is not None:
        value = formula.step("Sub", value, formula.read(center))
    value = formula.step("Mul", value, formula.read(inverse))
    if scale is not None:
        value = formula.step("Mul", value, formula.read(scale))
    if bias is not None:
        value = formula.step("Add", value, formula.read(bias))
    formula.record(recorder, value, out, label)
