"""Normalisations of images: by given statistics, their own, and their neighbours.

They are put together from reductions and chains of element-wise operators, so that any
order of axes is as good as another.  Most models have none, so these are imported when
one is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import wide_dtype
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_fill
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

_INFERENCE_SINCE: Final = 7
"""The opset since which BatchNormalization of one output uses given statistics, also
where no attribute says that it is not to train."""

_GROUPS_UNTIL: Final = 20
"""The opset until which GroupNormalization has one scale for each group."""


def _border(plan: Plan, call: Call) -> tuple[View, View]:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    return plan.view(source), plan.destination(output)


def _parameters(plan: Plan, call: Call) -> list[View]:
    return [plan.view(name) for name in call.inputs[1:] if name is not None]


def _per_channel(view: View, rank: int) -> View:
    """A vector of channels, to be broadcast to [N, C, *spatial] of *rank*."""
    return _reshaped(view, (view.shape[0], *(1,) * (rank - 2)))


def _reshaped(view: View, shape: Sequence[int]) -> View:
    reshaped = view.reshape(shape)
    if reshaped is None:
        raise NotCompiled(f"the axes of {view.shape} do not become {tuple(shape)}")
    return reshaped


def _record_standardised(
    plan: Plan,
    x: View,
    out: View,
    mean: View,
    factor: View,
    shift: View,
    label: str,
) -> None:
    """``(x - mean) * factor + shift``; these are broadcast."""
    chain = Formula.wide(x)
    centered = chain.step("Sub", chain.read_wide(x), chain.read_wide(mean))
    scaled = chain.step("Mul", centered, chain.read_wide(factor))
    chain.record(
        plan.recorder, chain.step("Add", scaled, chain.read_wide(shift)), out, label
    )


def _factor(plan: Plan, variances: Sequence[View], epsilon: float, scale: View) -> View:
    """``scale / sqrt(sum of variances + epsilon)``, broadcast, in new memory."""
    chain = Formula.wide(scale)
    total, *more = (chain.read_wide(variance) for variance in variances)
    for variance in more:
        total = chain.step("Add", total, variance)
    root = chain.step("Sqrt", chain.step("Add", total, chain.number(epsilon)))
    shape = np.broadcast_shapes(variances[0].shape, scale.shape)
    out = plan.recorder.temporary(wide_dtype(scale.dtype), shape)
    result = chain.step("Div", chain.read_wide(scale), root)
    chain.record(plan.recorder, result, out, "Normalization")
    return out


# BatchNormalization


def _accepts_batch(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    trains = call.version < _INFERENCE_SINCE and not attributes.get("is_test", 0)
    if trains or attributes.get("training_mode", 0):
        return "BatchNormalization is not compiled to train"
    if any(name is not None for name in call.outputs[1:]):
        return "BatchNormalization is compiled with its first output only"
    if not attributes.get("spatial", 1):
        return "BatchNormalization is compiled with statistics of channels"
    return computed(call, dtypes, target)


def _check_batch(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [given(inputs, position).shape for position in range(5)]
    if len(shapes[0]) < 2 or any(shape != shapes[0][1:2] for shape in shapes[1:]):
        raise NotCompiled(f"BatchNormalization of {shapes}", call)


def _record_batch(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    epsilon = float(call.attributes["epsilon"])
    contents = [
        plan.known(name).content for name in call.inputs[1:] if name is not None
    ]
    wide = [np.asarray(c, np.float64) for c in contents if c is not None]
    if len(wide) == len(contents):
        with np.errstate(all="ignore"):
            slope = wide[0] / np.sqrt(wide[3] + epsilon)
            offset = wide[1] - wide[2] * slope
            both = [array.astype(wide_dtype(x.dtype)) for array in (slope, offset)]
        by, plus = (plan.recorder.constant(array) for array in both)
    else:
        scale, shift, mean, variance = _parameters(plan, call)
        by = _factor(plan, [variance], epsilon, scale)
        plus = plan.recorder.temporary(wide_dtype(x.dtype), shift.shape)
        chain = Formula.wide(x)
        moved = chain.step("Mul", chain.read_wide(mean), chain.read_wide(by))
        result = chain.step("Sub", chain.read_wide(shift), moved)
        chain.record(plan.recorder, result, plus, call.op_type)
    by, plus = (_per_channel(view, len(x.shape)) for view in (by, plus))
    chain = Formula.wide(x)
    scaled = chain.step("Mul", chain.read_wide(x), chain.read_wide(by))
    result = chain.step("Add", scaled, chain.read_wide(plus))
    chain.record(plan.recorder, result, out, call.op_type)


register("BatchNormalization", Operation(_record_batch, _accepts_batch, _check_batch))

# InstanceNormalization


def _check_instance(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [given(inputs, position).shape for position in range(3)]
    if len(shapes[0]) < 3 or any(shape != shapes[0][1:2] for shape in shapes[1:]):
        raise NotCompiled(f"InstanceNormalization of {shapes}", call)


def _record_instance(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    if not out.size:
        return
    epsilon = float(call.attributes["epsilon"])
    scale, shift = (_per_channel(view, 3) for view in _parameters(plan, call))
    rows = (*x.shape[:2], math.prod(x.shape[2:]))
    x, out = _reshaped(_evenly_spaced(plan, x, rows), rows), _reshaped(out, rows)
    if x.strides[2] == out.strides[2] == 1:
        plan.recorder.target.rows.record_norm(
            plan.recorder,
            x,
            out,
            epsilon=epsilon,
            scale=scale,
            bias=shift,
            label=call.op_type,
        )
        return
    reductions = plan.recorder.target.reductions
    mean, variance = reductions.record_moments(plan.recorder, x, (2,))
    factor = _factor(plan, [variance], epsilon, scale)
    _record_standardised(plan, x, out, mean, factor, shift, call.op_type)


def _evenly_spaced(plan: Plan, view: View, shape: Sequence[int]) -> View:
    """*view*, or a copy that takes *shape*."""
    return view if view.reshape(shape) is not None else plan.contiguous(view)


register(
    "InstanceNormalization", Operation(_record_instance, computed, _check_instance)
)

# GroupNormalization


def _groups(call: Call) -> int:
    return int(call.attributes["num_groups"])


def _accepts_group(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if int(call.attributes.get("stash_type", 1)) != 1:
        return "GroupNormalization is compiled to compute in float32"
    return computed(call, dtypes, target)


def _check_group(call: Call, inputs: Inputs, results: Results) -> None:
    x, *parameters = (given(inputs, position).shape for position in range(3))
    groups = _groups(call)
    if len(x) < 2 or groups < 1 or x[1] % groups:
        raise NotCompiled(f"GroupNormalization of {x} in {groups} groups", call)
    wanted = (groups if call.version <= _GROUPS_UNTIL else x[1],)
    if any(shape != wanted for shape in parameters):
        raise NotCompiled(f"GroupNormalization of {x} by {parameters}", call)


def _record_group(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    if not out.size:
        return
    groups = _groups(call)
    shape = (x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))
    x, out = _reshaped(_evenly_spaced(plan, x, shape), shape), _reshaped(out, shape)
    parameters = _parameters(plan, call)
    scale, shift = (
        _reshaped(view, (groups, view.shape[0] // groups, 1)) for view in parameters
    )
    recorder, reductions = plan.recorder, plan.recorder.target.reductions
    if x.strides[2] == 1 and shape[2] > 1 and shape[3] > 1:
        # channels are adjacent: each has its moments, of which a group's are made
        means, variances = reductions.record_moments(recorder, x, (3,))
        mean, between = reductions.record_moments(recorder, means, (2,))
        within = recorder.temporary(wide_dtype(x.dtype), mean.shape)
        reductions.record_reduce(recorder, "ReduceMean", variances, within, (2,))
        both = [within, between]
    else:
        mean, variance = reductions.record_moments(recorder, x, (2, 3))
        both = [variance]
    factor = _factor(plan, both, float(call.attributes["epsilon"]), scale)
    _record_standardised(plan, x, out, mean, factor, shift, call.op_type)


register("GroupNormalization", Operation(_record_group, _accepts_group, _check_group))

# LpNormalization


def _accepts_lp(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    p = call.attributes.get("p", 2)
    if p not in (1, 2):
        return f"LpNormalization is compiled for p of 1 and 2; found {p}"
    return computed(call, dtypes, target)


def _record_lp(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    if not out.size:
        return
    axis = normal_axis(int(call.attributes["axis"]), len(x.shape))
    shape = list(x.shape)
    shape[axis] = 1
    norm = plan.recorder.temporary(wide_dtype(x.dtype), shape)
    kind = f"ReduceL{call.attributes['p']}"
    reductions = plan.recorder.target.reductions
    reductions.record_reduce(plan.recorder, kind, x, norm, (axis,))
    divisor = plan.recorder.temporary(wide_dtype(x.dtype), shape)
    chain = Formula.wide(x)
    size = chain.read_wide(norm)
    is_zero = chain.step("Equal", size, chain.number(0.0), element="i1")
    result = chain.step("Where", is_zero, chain.number(1.0), size)
    chain.record(plan.recorder, result, divisor, call.op_type)
    chain = Formula.wide(x)
    result = chain.step("Div", chain.read_wide(x), chain.read_wide(divisor))
    chain.record(plan.recorder, result, out, call.op_type)


register("LpNormalization", Operation(_record_lp, _accepts_lp))

# LRN


def _check_lrn(call: Call, inputs: Inputs, results: Results) -> None:
    shape, size = given(inputs).shape, int(call.attributes["size"])
    if len(shape) < 2 or size < 1:
        raise NotCompiled(f"LRN of {shape} over {size} channels", call)


def _record_lrn(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    if not out.size:
        return
    attributes = call.attributes
    size = int(attributes["size"])
    # beyond the channels there is nothing to add, however far the window reaches
    before = min((size - 1) // 2, x.shape[1] - 1)
    window = before + 1 + min(size // 2, x.shape[1] - 1)
    chain = Formula.wide(x)
    value = chain.read_wide(x)
    parts = _window_sums(plan, x, before, window)
    total, *more = (chain.read_wide(part) for part in parts)
    for part in more:
        total = chain.step("Add", total, part)
    weighted = chain.step("Mul", total, chain.number(float(attributes["alpha"]) / size))
    base = chain.step("Add", weighted, chain.number(float(attributes["bias"])))
    beta = float(attributes["beta"])
    if beta == 0.75:
        root = chain.step("Sqrt", base)
        power = chain.step("Mul", root, chain.step("Sqrt", root))
    else:
        power = chain.step("Pow", base, chain.number(beta))
    chain.record(plan.recorder, chain.step("Div", value, power), out, call.op_type)


def _window_sums(plan: Plan, x: View, before: int, window: int) -> list[View]:
    """Arrays of x's shape that add up to the square sums over *window* channels, of
    which *before* are in front of each.

    Windows of 1, 2, 4 … channels are added up, each of two of the one before.
    """
    channels = x.shape[1]

    def channels_of(view: View, start: int, count: int) -> View:
        starts, sizes = [0] * len(view.shape), list(view.shape)
        starts[1], sizes[1] = start, count
        return view.slice(starts, sizes)

    def empty(count: int) -> View:
        shape = (x.shape[0], count, *x.shape[2:])
        return plan.recorder.ordered_like(x, shape, wide_dtype(x.dtype))

    sums, width = empty(channels + window - 1), 1
    after = window - 1 - before
    for start, count in ((0, before), (before + channels, after)):
        if count:
            border = channels_of(sums, start, count)
            record_fill(plan.recorder, np.zeros((), sums.dtype), border, label="LRN")
    chain = Formula.wide(x)
    value = chain.read_wide(x)
    inside = channels_of(sums, before, channels)
    chain.record(plan.recorder, chain.step("Mul", value, value), inside, "LRN")
    parts, offset = [], 0
    while True:
        if window & width:
            parts.append(channels_of(sums, offset, channels))
            offset += width
        if 2 * width > window:
            return parts
        count = sums.shape[1] - width
        wider = empty(count)
        chain = Formula.wide(x)
        one, other = (channels_of(sums, start, count) for start in (0, width))
        both = chain.step("Add", chain.read_wide(one), chain.read_wide(other))
        chain.record(plan.recorder, both, wider, "LRN")
        sums, width = wider, 2 * width


register("LRN", Operation(_record_lrn, computed, _check_lrn))

# MeanVarianceNormalization

_DEVIATION: Final = 1e-9
"""What the operator's definition adds to the standard deviation."""


def _moment_axes(call: Call, rank: int) -> tuple[int, ...]:
    """The axes of a mean; of none ONNX's reductions take all."""
    return normal_axes(call.attributes["axes"] or range(rank), rank)


def _check_moments(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if not _moment_axes(call, len(shape)):
        raise NotCompiled(f"{call.op_type} of {shape}", call)


def _record_moments(plan: Plan, call: Call) -> None:
    x, out = _border(plan, call)
    if not out.size:
        return
    axes = _moment_axes(call, len(x.shape))
    if x.dtype == np.float64:
        centered, variance = _moments_of_doubles(plan, x, axes)
        chain = Formula.of(x)
        difference = chain.read(centered)
    else:
        reductions = plan.recorder.target.reductions
        mean, variance = reductions.record_moments(
            plan.recorder, x, axes, label=call.op_type
        )
        chain = Formula.wide(x)
        difference = chain.step("Sub", chain.read_wide(x), chain.read_wide(mean))
    deviation = chain.step("Sqrt", chain.read_wide(variance))
    divisor = chain.step("Add", deviation, chain.number(_DEVIATION))
    result = chain.step("Div", difference, divisor)
    chain.record(plan.recorder, result, out, call.op_type)


def _moments_of_doubles(
    plan: Plan, x: View, axes: tuple[int, ...]
) -> tuple[View, View]:
    """What differs from the mean, and the variance: moments are of floats of at most
    32 bits, but reductions of all."""
    recorder, reductions = plan.recorder, plan.recorder.target.reductions
    kept = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    mean, variance = (recorder.temporary(x.dtype, kept) for _ in range(2))
    reductions.record_reduce(recorder, "ReduceMean", x, mean, axes)
    centered, squares = (recorder.temporary(x.dtype, x.shape) for _ in range(2))
    chain = Formula.of(x)
    difference = chain.step("Sub", chain.read(x), chain.read(mean))
    square = chain.step("Mul", difference, difference)
    chain.record_all(
        recorder, [difference, square], [centered, squares], "Normalization"
    )
    reductions.record_reduce(recorder, "ReduceMean", squares, variance, axes)
    return centered, variance


register(
    "MeanVarianceNormalization", Operation(_record_moments, computed, _check_moments)
)
