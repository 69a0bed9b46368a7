"""Operators that give their input's elements another shape, order or extent."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug.authoring.bounds import normal_axes, normal_axis, sliced_range
from onnxplug.authoring.bounds import permutation as checked_permutation
from onnxplug_compiler.frontend.call import (
    Call,
    NotCompiled,
    broadcasts_to,
    integers,
)
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy, record_fill
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

# shapes


def _check_numbers(call: Call, inputs: Inputs, what: str) -> None:
    """Take a second input for a vector of integers only, if there is one."""
    if call.input(1) is not None:
        integers(call, inputs[1], what)


def _check_size(call: Call, inputs: Inputs, results: Results) -> None:
    x, y = given(inputs), given(results)
    _check_numbers(call, inputs, "the shape")
    if x.size != y.size:
        raise NotCompiled(f"{x.shape} does not reshape to {y.shape}", call)


def _check_ones(call: Call, inputs: Inputs, results: Results) -> None:
    """Only sizes of 1 may come or go."""
    x, y = given(inputs), given(results)
    axes = inputs[1] if call.input(1) is not None else None
    if axes is not None:  # of a single one models have a scalar
        integers(call, axes, "the axes", min(len(axes.shape), 1))
    if [size for size in x.shape if size != 1] != [s for s in y.shape if s != 1]:
        raise NotCompiled(f"{x.shape} does not become {y.shape}", call)


def _record_reshaped(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    view = plan.view(source)
    shape = plan.known(output).shape
    reshaped = view.reshape(shape)
    if reshaped is None:
        reshaped = plan.contiguous(view).reshape(shape)
        assert reshaped is not None
    plan.alias(output, reshaped)


for _op_types, _check in (
    ("Reshape Flatten", _check_size),
    ("Squeeze Unsqueeze", _check_ones),
):
    register(
        _op_types,
        Operation(
            _record_reshaped,
            moved,
            check=_check,
            known=frozenset({1}),
        ),
    )


# the order of axes


def permutation(call: Call, rank: int) -> tuple[int, ...]:
    """The axes of a Transpose; reversed by default."""
    perm = call.attributes.get("perm")
    if perm is None:
        return tuple(reversed(range(rank)))
    return checked_permutation(perm, rank)


def _record_transpose(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    view = plan.view(source)
    plan.alias(output, view.transpose(permutation(call, len(view.shape))))


register("Transpose", Operation(_record_transpose, moved))


# blocks


def _blocks(call: Call, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The axes of what DepthToSpace and SpaceToDepth move, and their new order.

    Raises:
        NotCompiled: *shape* has no such blocks.
    """
    size, mode = int(call.attributes["blocksize"]), call.attributes.get("mode", "DCR")
    if len(shape) != 4 or size < 1 or mode not in ("DCR", "CRD"):
        raise NotCompiled(f"blocks of {size} in {shape}, {mode}", call)
    batch, channels, height, width = shape
    depth_first = mode == "DCR"
    if call.op_type == "SpaceToDepth":
        axes = [batch, channels, height // size, size, width // size, size]
        order = [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4]
    elif depth_first:
        axes = [batch, size, size, channels // size**2, height, width]
        order = [0, 3, 4, 1, 5, 2]
    else:
        axes = [batch, channels // size**2, size, size, height, width]
        order = [0, 1, 4, 2, 5, 3]
    if math.prod(axes) != math.prod(shape):
        raise NotCompiled(f"blocks of {size} in {shape}", call)
    return axes, order


def _check_blocks(call: Call, inputs: Inputs, results: Results) -> None:
    x, y = given(inputs), given(results)
    axes, order = _blocks(call, x.shape)
    moved_axes = [axes[axis] for axis in order]
    if call.op_type == "SpaceToDepth":
        joined = [*moved_axes[:1], math.prod(moved_axes[1:4]), *moved_axes[4:]]
    else:
        batch, depth, *rest = moved_axes
        joined = [batch, depth, rest[0] * rest[1], rest[2] * rest[3]]
    if tuple(joined) != y.shape:
        raise NotCompiled(f"{x.shape} does not become {y.shape}", call)


def _record_blocks(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x = plan.view(source)
    axes, order = _blocks(call, x.shape)
    apart = x.reshape(axes) or plan.contiguous(x).reshape(axes)
    assert apart is not None
    placed = apart.transpose(order)
    target = plan.destination(output).reshape(placed.shape)
    assert target is not None
    record_copy(plan.recorder, placed, target, label=call.op_type)


register("DepthToSpace SpaceToDepth", Operation(_record_blocks, moved, _check_blocks))


# extents


def _check_expand(call: Call, inputs: Inputs, results: Results) -> None:
    x, y = given(inputs), given(results)
    _check_numbers(call, inputs, "the shape")
    if not broadcasts_to(x.shape, y.shape):
        raise NotCompiled(f"{x.shape} does not expand to {y.shape}", call)


def _record_expand(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    plan.alias(output, plan.view(source).broadcast_to(plan.known(output).shape))


register(
    "Expand",
    Operation(
        _record_expand,
        moved,
        check=_check_expand,
        known=frozenset({1}),
    ),
)


def _bounds(call: Call, inputs: Inputs) -> tuple[list[int], list[int]]:
    """Of Slice: for each axis the first index and the step."""
    x = given(inputs)
    rank = len(x.shape)
    attributes = call.attributes
    if "starts" in attributes:
        starts = [int(value) for value in attributes["starts"]]
        ends = [int(value) for value in attributes["ends"]]
        stated = attributes.get("axes")
        axes = list(range(len(starts))) if stated is None else [int(a) for a in stated]
        steps = [1] * len(starts)
    else:
        starts = integers(call, inputs[1], "the start")
        ends = integers(call, inputs[2], "the end")
        axes = (
            integers(call, inputs[3], "the axes")
            if call.input(3) is not None
            else list(range(len(starts)))
        )
        steps = (
            integers(call, inputs[4], "the step")
            if call.input(4) is not None
            else [1] * len(starts)
        )
    first, step = [0] * rank, [1] * rank
    axes = [*normal_axes(axes, rank)]
    for axis, start, end, by in zip(axes, starts, ends, steps, strict=True):
        span = sliced_range(x.shape[axis], start, end, by)
        first[axis] = span.start if len(span) else 0
        step[axis] = by
    return first, step


def _record_slice(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    first, step = _bounds(call, inputs)
    sizes = plan.known(output).shape
    plan.alias(output, plan.view(source).slice(first, sizes, step))


register(
    "Slice",
    Operation(
        _record_slice,
        moved,
        known=frozenset({1, 2, 3, 4}),
    ),
)


def _split_axis(call: Call, rank: int) -> int:
    return normal_axis(int(call.attributes.get("axis") or 0), rank)


def _check_split(call: Call, inputs: Inputs, results: Results) -> None:
    x = given(inputs)
    _check_numbers(call, inputs, "the sizes")
    axis = _split_axis(call, len(x.shape))
    sizes = [None if value is None else value.shape[axis] for value in results]
    if (
        len(sizes) != len(call.outputs)
        or None in sizes
        or sum(filter(None, sizes)) != x.shape[axis]
    ):
        raise NotCompiled(f"{x.shape} does not split into {sizes}", call)


def _record_split(plan: Plan, call: Call) -> None:
    source = call.inputs[0]
    assert source is not None
    view = plan.view(source)
    axis = _split_axis(call, len(view.shape))
    start = 0
    for name, piece in zip(call.outputs, plan.results(call), strict=True):
        assert piece is not None
        size = piece.shape[axis]
        starts = [0] * len(view.shape)
        starts[axis] = start
        extent = [*view.shape[:axis], size, *view.shape[axis + 1 :]]
        if name is not None:
            plan.alias(name, view.slice(starts, extent))
        start += size


register(
    "Split",
    Operation(
        _record_split,
        moved,
        check=_check_split,
        known=frozenset({1}),
    ),
)


# as it is


def _record_identity(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    plan.alias(output, plan.view(source))


register("Identity", Operation(_record_identity, moved))


def _accepts_bits(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    result = call.dtypes[0]
    if result == np.dtype(bool) and dtypes[0] != result:
        return "BitCast is not compiled to bool, which not all bits are"
    return moved(call, (dtypes[0], result), target)


def _check_bits(call: Call, inputs: Inputs, results: Results) -> None:
    source, result = given(inputs).dtype, given(results).dtype
    if source.itemsize != result.itemsize:
        raise NotCompiled(f"BitCast of {source} to {result}", call)


def _record_bits(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    x = plan.view(source)
    dtype = plan.known(output).dtype
    plan.alias(output, View(x.buffer, x.offset, dtype, x.shape, x.strides))


register("BitCast", Operation(_record_bits, _accepts_bits, _check_bits))


_ATTRIBUTE_UNTIL: Final = 11
"""The opset until which Dropout's ratio is an attribute."""

_TRAINS_UNTIL: Final = 6
"""The opset until which Dropout trains unless an attribute says that it is not to."""


def _accepts_dropout(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    if call.version <= _TRAINS_UNTIL:
        trains = not attributes.get("is_test") and attributes.get("ratio") != 0
    else:
        trains = call.input(2) is not None
    if trains:
        return "Dropout is not compiled to train"
    return moved(call, dtypes[:1], target)


def _check_dropout(call: Call, inputs: Inputs, results: Results) -> None:
    if call.version <= _ATTRIBUTE_UNTIL or call.input(1) is None:
        return
    content = given(inputs, 1).content
    ratio = None if content is None or content.size != 1 else content.reshape(())
    if ratio is None or not 0 <= float(ratio) < 1:
        raise NotCompiled(f"Dropout has a ratio of {ratio}", call)


def _record_dropout(plan: Plan, call: Call) -> None:
    _record_identity(plan, call)
    mask = call.output(1)
    if mask is not None:
        target = plan.destination(mask)
        ones = np.ones((), target.dtype)
        record_fill(plan.recorder, ones, target, label=call.op_type)


register(
    "Dropout",
    Operation(_record_dropout, _accepts_dropout, _check_dropout, known=frozenset({1})),
)
