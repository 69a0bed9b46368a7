"""RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import is_half
from onnxplug_compiler.ir.recurrent import GATES, Activation, Cell, Layer
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)
from onnxplug_kernels.rnn import DIRECTIONS, USUAL_ACTIVATIONS, named_activations

_LENGTHS: Final = 4
"""The position of the lengths of sequences."""


def _directions(call: Call) -> tuple[str, ...]:
    found = DIRECTIONS.get(str(call.attributes["direction"]).lower())
    if found is None:
        raise NotCompiled(f"direction {call.attributes['direction']!r}", call)
    return found


def _cells(call: Call) -> list[Cell]:
    """The cell of each direction.

    Raises:
        NotCompiled: attributes are none of the operator's; the array tier says so.
    """
    attributes, kind = call.attributes, call.op_type
    count = len(_directions(call))
    usual = USUAL_ACTIVATIONS[kind]
    names = attributes["activations"] or [*usual] * count
    clip = attributes["clip"]
    if len(names) != len(usual) * count or not (clip is None or clip >= 0):
        raise NotCompiled(f"{len(names)} activations, or the clip {clip}", call)
    try:
        chosen = named_activations(
            names, attributes["activation_alpha"], attributes["activation_beta"]
        )
    except ValueError as error:
        raise NotCompiled(str(error), call) from error
    activations = [Activation(*each) for each in chosen]
    return [
        Cell(
            kind,
            tuple(activations[n * len(usual) : (n + 1) * len(usual)]),
            None if clip is None else float(np.float32(clip)),
            call.input(7) is not None,
            bool(attributes.get("input_forget", 0)),
            bool(attributes.get("linear_before_reset", 0)),
        )
        for n in range(count)
    ]


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    lengths = dtypes[_LENGTHS] if len(dtypes) > _LENGTHS else None
    if lengths not in (None, np.dtype(np.int32)):
        return f"{call.op_type} is not compiled for lengths of {lengths}"
    given = [
        dtype
        for position, dtype in enumerate(dtypes)
        if position != _LENGTHS and dtype is not None
    ]
    if target.has_narrow_factors and given[0] == F32 and is_half(given[1]):
        given[1:3] = [F32 if dtype == given[1] else dtype for dtype in given[1:3]]
    return computed(call, given, target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, w, r = (given(inputs, position).shape for position in range(3))
    _cells(call)
    count = len(_directions(call))
    gates = GATES[call.op_type]
    if len(x) != 3 or len(w) != 3 or len(r) != 3:
        raise NotCompiled(f"X, W and R have shapes {x}, {w} and {r}", call)
    batch = x[0 if call.attributes["layout"] else 1]
    hidden = r[2]
    wanted: list[tuple[int, ...] | None] = [
        None,
        (count, gates * hidden, x[2]),
        (count, gates * hidden, hidden),
        (count, 2 * gates * hidden),
        (batch,),
    ]
    state = (count, batch, hidden)
    if call.attributes["layout"]:
        state = (batch, count, hidden)
    wanted += [state, state, (count, 3 * hidden)]
    for value, shape in zip(inputs, wanted, strict=False):
        if value is not None and shape is not None and value.shape != shape:
            raise NotCompiled(f"{call.op_type} of {value.shape} for {shape}", call)
    if call.attributes["hidden_size"] not in (None, hidden):
        raise NotCompiled(f"hidden_size is not {hidden}", call)


def _record(plan: Plan, call: Call) -> None:
    batch_first = bool(call.attributes["layout"])

    def read(position: int) -> View | None:
        name = call.input(position)
        return None if name is None else plan.view(name)

    def state(position: int) -> View | None:
        view = read(position)
        return None if view is None else directions_first(plan.contiguous(view))

    def directions_first(view: View) -> View:
        return view.transpose((1, 0, 2)) if batch_first else view

    def wanted(position: int) -> View | None:
        name = call.output(position)
        return None if name is None else plan.destination(name)

    x, w, r = read(0), read(1), read(2)
    assert x is not None and w is not None and r is not None
    y, last_h, last_c = (wanted(position) for position in range(3))
    if batch_first:
        x = x.transpose((1, 0, 2))
        y = None if y is None else y.transpose((1, 2, 0, 3))
    cells = _cells(call)
    reverse = tuple(each == "reverse" for each in _directions(call))
    layer = Layer(
        x,
        w,
        r,
        read(3),
        read(_LENGTHS),
        state(5),
        state(6),
        read(7),
        y,
        None if last_h is None else directions_first(last_h),
        None if last_c is None else directions_first(last_c),
        reverse,
    )
    record = plan.recorder.target.recurrent.record_recurrent
    if len({repr(cell) for cell in cells}) == 1:
        record(plan.recorder, cells[0], layer, call.op_type)
        return
    for number, cell in enumerate(cells):
        record(plan.recorder, cell, layer.direction(number), call.op_type)


register("GRU LSTM RNN", Operation(_record, _accepts, _check, any_output=True))
