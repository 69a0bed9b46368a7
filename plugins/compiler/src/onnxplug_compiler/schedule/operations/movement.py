"""Operators that put elements together, repeat them, or leave some out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled, integer, integers
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.layout.orders import CHANNELS
from onnxplug_compiler.schedule.copies import (
    record_concat,
    record_copies,
    record_copy,
)
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    alike,
    given,
    moved,
    register,
)


def _border(plan: Plan, call: Call) -> tuple[View, View]:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    return plan.view(source), plan.destination(output)


# Concat


def _check_concat(call: Call, inputs: Inputs, results: Results) -> None:
    joined = given(results).shape
    axis = normal_axis(int(call.attributes.get("axis", 1)), len(joined))
    shapes = [value.shape for value in inputs if value is not None]
    for shape in shapes:
        rest = (*shape[:axis], joined[axis], *shape[axis + 1 :])
        if len(shape) != len(joined) or rest != joined:
            raise NotCompiled(f"shapes {shapes} do not concatenate", call)


def _record_concat(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    shape = plan.known(output).shape
    axis = normal_axis(int(call.attributes.get("axis", 1)), len(shape))
    names = [name for name in call.inputs if name is not None]
    target = plan.destination(output)
    if axis != CHANNELS:
        sources = [plan.view(name) for name in names]
        record_concat(plan.recorder, sources, target, axis)
        return
    # what was made for nothing else may be there already
    start = 0
    missing: list[tuple[View, View]] = []
    for name in names:
        source = plan.view(name)
        starts = [0, start, *[0] * (len(shape) - 2)]
        if not plan.lies_within(name, output, start):
            missing.append((source, target.slice(starts, source.shape)))
        start += source.shape[axis]
    record_copies(plan.recorder, missing, f"Concat {'×'.join(map(str, shape))}")


register("Concat", Operation(_record_concat, alike, _check_concat))


# Tile


def _check_tile(call: Call, inputs: Inputs, results: Results) -> None:
    integers(call, given(inputs, 1), "the repeats")


def _record_tile(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    repeats = [n // max(size, 1) for n, size in zip(out.shape, x.shape, strict=True)]
    if 0 in out.shape:
        return
    pairs = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    apart = x.reshape([s for size in x.shape for s in (1, size)])
    target = out.reshape(pairs)
    assert apart is not None and target is not None
    record_copy(plan.recorder, apart.broadcast_to(pairs), target, label="Tile")


def _accepts_tile(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.version < 6:
        return "Tile is compiled since opset 6"
    return moved(call, dtypes, target)


register(
    "Tile", Operation(_record_tile, _accepts_tile, _check_tile, known=frozenset({1}))
)


# Pad


_Amounts: TypeAlias = Callable[[Call, Inputs], tuple[list[int], list[int]]]
"""How much is added before and after each axis; less than 0 is taken away."""


def _pads(call: Call, inputs: Inputs) -> tuple[list[int], list[int]]:
    """How much is added before and after each axis; less than 0 is taken away."""
    rank = len(given(inputs).shape)
    if call.attributes.get("pads") is not None:
        pads = [int(size) for size in call.attributes["pads"]]
    else:
        pads = integers(call, inputs[1], "the pads")
    axes: Sequence[int] = range(rank)
    if call.input(3) is not None:
        axes = normal_axes(integers(call, inputs[3], "the axes"), rank)
    if len(pads) != 2 * len(axes):
        raise NotCompiled(f"{len(pads)} pads for {len(axes)} axes", call)
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    return before, after


def _checked(amounts: _Amounts) -> Callable[[Call, Inputs, Results], None]:
    """A check that *amounts* make the result's shape of the input's."""

    def check(call: Call, inputs: Inputs, results: Results) -> None:
        x, out = given(inputs).shape, given(results).shape
        before, after = amounts(call, inputs)
        found = [b + n + a for b, n, a in zip(before, x, after, strict=True)]
        if tuple(found) != out:
            raise NotCompiled(f"{x} is padded to {found}, not {list(out)}", call)

    return check


def _record_pad(plan: Plan, call: Call) -> None:
    from onnxplug_compiler.schedule.pad import record_pad

    x, out = _border(plan, call)
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    before, after = _pads(call, inputs)
    value: np.ndarray | None = np.asarray(call.attributes.get("value", 0), x.dtype)
    name = call.input(2)
    if name is not None:
        value = plan.known(name).content
    mode = call.attributes.get("mode", "constant")
    record_pad(plan.recorder, x, out, before, after, mode=mode, value=value)


def _accepts_first(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return moved(call, dtypes[:1], target)


def _accepts_pad(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.version < 2:
        return "Pad is compiled since opset 2"
    return _accepts_first(call, dtypes, target)


register(
    "Pad",
    Operation(_record_pad, _accepts_pad, _checked(_pads), known=frozenset({1, 2, 3})),
)


# CenterCropPad


def _middle(call: Call, inputs: Inputs) -> tuple[list[int], list[int]]:
    """How much is added before and after each axis; less than 0 is taken away."""
    shape = given(inputs).shape
    axes: Sequence[int] = range(len(shape))
    if call.attributes["axes"] is not None:
        axes = normal_axes(call.attributes["axes"], len(shape))
    wanted = integers(call, inputs[1], "the shape")
    if len(wanted) != len(axes):
        raise NotCompiled(f"{len(wanted)} sizes for {len(axes)} axes", call)
    before, after = [0] * len(shape), [0] * len(shape)
    for axis, size in zip(axes, wanted, strict=True):
        missing = size - shape[axis]
        # an odd number leaves the smaller half at the start, cropped or padded
        before[axis] = missing // 2 if missing > 0 else -(-missing // 2)
        after[axis] = missing - before[axis]
    return before, after


def _record_middle(plan: Plan, call: Call) -> None:
    from onnxplug_compiler.schedule.pad import record_pad

    x, out = _border(plan, call)
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    before, after = _middle(call, inputs)
    zero = np.zeros((), x.dtype)
    record_pad(plan.recorder, x, out, before, after, value=zero, label=call.op_type)


register(
    "CenterCropPad",
    Operation(_record_middle, _accepts_first, _checked(_middle), known=frozenset({1})),
)


# Trilu


def _check_trilu(call: Call, inputs: Inputs, results: Results) -> None:
    if len(given(inputs).shape) < 2:
        raise NotCompiled("Trilu of what is no matrix", call)


def _record_trilu(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    diagonal = 0
    name = call.input(1)
    if name is not None:
        diagonal = integer(call, plan.known(name), "the diagonal")
    upper = bool(call.attributes.get("upper", 1))
    movement = plan.recorder.target.movement
    movement.record_trilu(plan.recorder, x, out, diagonal, upper=upper)


register(
    "Trilu",
    Operation(_record_trilu, moved, _check_trilu, known=frozenset({1})),
)


# CumSum and CumProd


def _record_cumulative(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    name = call.inputs[1]
    assert name is not None
    axis = integer(call, plan.known(name), "the axis")
    plan.recorder.target.reductions.record_cumulative(
        plan.recorder,
        x,
        out,
        normal_axis(axis, len(x.shape)),
        product=call.op_type == "CumProd",
        exclusive=bool(call.attributes.get("exclusive", 0)),
        reverse=bool(call.attributes.get("reverse", 0)),
    )


register(
    "CumProd CumSum",
    Operation(_record_cumulative, _accepts_first, known=frozenset({1})),
)
