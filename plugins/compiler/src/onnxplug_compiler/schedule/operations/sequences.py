"""ReverseSequence, as rows that are gathered."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.authoring.bounds import normal_axes
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    moved,
    register,
)

_I64 = np.dtype(np.int64)


def _axes(call: Call, rank: int) -> tuple[int, int]:
    """Along which axes times and sequences lie."""
    attributes = call.attributes
    axes = (int(attributes["time_axis"]), int(attributes["batch_axis"]))
    if rank < 2 or set(axes) != {0, 1}:
        raise NotCompiled(f"time and batch along axes {axes} of {rank}", call)
    time, batch = normal_axes(axes, rank)
    return time, batch


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[1] != _I64:
        return f"{call.op_type} is not compiled for lengths of {dtypes[1]}"
    return moved(call, dtypes[:1], target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    shape, lengths = given(inputs).shape, given(inputs, 1).shape
    _, batch = _axes(call, len(shape))
    if lengths != (shape[batch],):
        raise NotCompiled(f"lengths of shape {lengths} for {shape}", call)


def _record(plan: Plan, call: Call) -> None:
    source, given_lengths, output = call.inputs[0], call.inputs[1], call.outputs[0]
    assert source is not None and given_lengths is not None and output is not None
    x, lengths, out = (
        plan.contiguous(plan.view(source)),
        plan.view(given_lengths),
        plan.destination(output),
    )
    if 0 in x.shape:
        return
    time, _ = _axes(call, len(x.shape))
    indices = _indices(plan, x.shape[:2], time, lengths)
    rows, each = math.prod(x.shape[:2]), math.prod(x.shape[2:])
    data, flat, target = (
        x.reshape((rows, each)),
        indices.reshape((rows,)),
        out.reshape((rows, each)),
    )
    assert data is not None and flat is not None and target is not None
    recorder, steps = plan.recorder, x.shape[time]

    def error(row: int) -> Exception:
        length = row - rows if row > 0 else row + rows
        return ValueError(
            f"ReverseSequence of {length} elements, but axis {time} of the input has "
            f"{steps}"
        )

    known = len(recorder.checks)
    recorder.target.indexing.record_gather(
        recorder, data, flat, target, 0, label=call.op_type
    )
    recorder.checks[known:] = [
        check._replace(error=error) for check in recorder.checks[known:]
    ]


def _indices(plan: Plan, shape: tuple[int, ...], time: int, lengths: View) -> View:
    """Which row each row is, [times, sequences] or the other way round.

    A length that there is not is as far from 0, or from the number of rows, as a row
    that there is not either.
    """
    recorder, batch = plan.recorder, 1 - time
    steps, count = shape[time], shape[batch]

    def along(axis: int, view: View) -> View:
        sizes = [1, 1]
        sizes[axis] = view.shape[0]
        reshaped = view.reshape(sizes)
        assert reshaped is not None
        return reshaped

    def numbers(axis: int, factor: int) -> View:
        return along(axis, recorder.constant(np.arange(shape[axis]) * factor))

    formula = Formula("i64")
    length, step = formula.read(along(batch, lengths)), formula.read(numbers(time, 1))
    sequence = formula.read(numbers(batch, 1 if time == 0 else steps))
    last = formula.step("Sub", length, formula.number(1))
    within = formula.step("Less", step, length, element="i1")
    place = formula.step("Where", within, formula.step("Sub", last, step), step)
    distance = formula.number(count if time == 0 else 1)
    row = formula.step("Add", formula.step("Mul", place, distance), sequence)
    rows = formula.number(steps * count)
    below = formula.step("Less", length, formula.number(0), element="i1")
    above = formula.step("Greater", length, formula.number(steps), element="i1")
    row = formula.step("Where", above, formula.step("Add", length, rows), row)
    row = formula.step("Where", below, formula.step("Sub", length, rows), row)
    out = recorder.temporary(_I64, shape)
    formula.record(recorder, row, out, "ReverseSequence rows")
    return out


register("ReverseSequence", Operation(_record, _accepts, _check))
