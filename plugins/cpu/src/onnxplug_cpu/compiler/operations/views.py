"""Operators that give their input's elements another shape, order or extent."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.ep.bounds import normal_axes, normal_axis
from onnxplug.ep.bounds import permutation as checked_permutation
from onnxplug_cpu.compiler.call import (
    Abstract,
    Call,
    NotCompiled,
    broadcast_shape,
    integers,
)
from onnxplug_cpu.compiler.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    any_fixed_size,
    register,
)


def _first(inputs: Inputs) -> Abstract:
    first = inputs[0]
    assert first is not None
    return first


def _axes(call: Call, inputs: Inputs, position: int) -> list[int] | None:
    """Axes, which older opsets have as an attribute; ``None`` if left out."""
    if "axes" in call.attributes:
        axes = call.attributes["axes"]
        return None if axes is None else [int(axis) for axis in axes]
    if call.input(position) is None:
        return None
    return integers(call, inputs[position], "the axes")


# shapes


def _reshape(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    if "shape" in call.attributes:
        wanted = [int(size) for size in call.attributes["shape"]]
    else:
        wanted = integers(call, inputs[1], "the shape")
    if not call.attributes.get("allowzero", 0):
        try:
            wanted = [
                x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)
            ]
        except IndexError:
            raise NotCompiled("a 0 in the shape has no dimension", call) from None
    if -1 in wanted:
        rest = -math.prod(wanted)
        if rest <= 0 or x.size % rest:
            raise NotCompiled(f"{x.shape} does not reshape to {wanted}", call)
        wanted[wanted.index(-1)] = x.size // rest
    if math.prod(wanted) != x.size:
        raise NotCompiled(f"{x.shape} does not reshape to {wanted}", call)
    return [Abstract(x.dtype, tuple(wanted))]


def _flatten(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    # the axis behind the last one is allowed, too
    rank = len(x.shape)
    axis = int(call.attributes["axis"])
    axis = axis if axis == rank else normal_axis(axis, rank)
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return [Abstract(x.dtype, shape)]


def _squeeze(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    axes = _axes(call, inputs, 1)
    if axes is None:
        axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    gone = normal_axes(axes, len(x.shape))
    if any(x.shape[axis] != 1 for axis in gone):
        raise NotCompiled(f"{x.shape} has no size 1 at {sorted(gone)}", call)
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in gone)
    return [Abstract(x.dtype, shape)]


def _unsqueeze(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    axes = _axes(call, inputs, 1) or []
    rank = len(x.shape) + len(axes)
    new = normal_axes(axes, rank)
    sizes = iter(x.shape)
    shape = tuple(1 if axis in new else next(sizes) for axis in range(rank))
    return [Abstract(x.dtype, shape)]


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


for _op_type, _infer in (
    ("Reshape", _reshape),
    ("Flatten", _flatten),
    ("Squeeze", _squeeze),
    ("Unsqueeze", _unsqueeze),
):
    register(
        _op_type,
        Operation(_infer, _record_reshaped, any_fixed_size, known=frozenset({1})),
    )


# the order of axes


def permutation(call: Call, rank: int) -> tuple[int, ...]:
    """The axes of a Transpose; reversed by default."""
    perm = call.attributes.get("perm")
    if perm is None:
        return tuple(reversed(range(rank)))
    return checked_permutation(perm, rank)


def _transpose(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    shape = tuple(x.shape[axis] for axis in permutation(call, len(x.shape)))
    return [Abstract(x.dtype, shape)]


def _record_transpose(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    view = plan.view(source)
    plan.alias(output, view.transpose(permutation(call, len(view.shape))))


register("Transpose", Operation(_transpose, _record_transpose, any_fixed_size))


# extents


def _expand(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    wanted = tuple(integers(call, inputs[1], "the shape"))
    return [Abstract(x.dtype, broadcast_shape([x.shape, wanted]))]


def _record_expand(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    plan.alias(output, plan.view(source).broadcast_to(plan.known(output).shape))


register(
    "Expand",
    Operation(_expand, _record_expand, any_fixed_size, known=frozenset({1})),
)


def _bounds(call: Call, inputs: Inputs) -> tuple[list[int], list[int], list[int]]:
    """Of Slice: for each axis the first index, the size and the step."""
    x = _first(inputs)
    rank = len(x.shape)
    attributes = call.attributes
    if "starts" in attributes:
        starts = [int(value) for value in attributes["starts"]]
        ends = [int(value) for value in attributes["ends"]]
        given = attributes.get("axes")
        axes = list(range(len(starts))) if given is None else [int(a) for a in given]
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
    first, size, step = [0] * rank, list(x.shape), [1] * rank
    axes = [*normal_axes(axes, rank)]
    for axis, start, end, by in zip(axes, starts, ends, steps, strict=True):
        span = _span(start, end, by, x.shape[axis])
        first[axis] = span.start if len(span) else 0
        size[axis], step[axis] = len(span), by
    return first, size, step


def _span(start: int, end: int, step: int, size: int) -> range:
    """The indices of one axis of Slice."""
    if step > 0:
        return range(*slice(start, end, step).indices(size))
    # unlike Python's, a backward slice reads element 0 from a start before it
    first = max(0, min(start + size if start < 0 else start, size - 1))
    last = max(-1, min(end + size if end < 0 else end, size - 1))
    return range(first, last, step) if size else range(0)


def _slice(call: Call, inputs: Inputs) -> list[Abstract]:
    _, size, _ = _bounds(call, inputs)
    return [Abstract(_first(inputs).dtype, tuple(size))]


def _record_slice(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    first, size, step = _bounds(call, inputs)
    plan.alias(output, plan.view(source).slice(first, size, step))


register(
    "Slice",
    Operation(
        _slice,
        _record_slice,
        any_fixed_size,
        known=frozenset({1, 2, 3, 4}),
    ),
)


_UNEQUAL_SINCE = 18
"""The opset before which Split without sizes is into equal parts."""


def _pieces(call: Call, inputs: Inputs) -> tuple[int, list[int]]:
    """Of Split: the axis, and the size of each piece."""
    x = _first(inputs)
    axis = normal_axis(int(call.attributes.get("axis") or 0), len(x.shape))
    count = len(call.outputs)
    if call.attributes.get("split") is not None:
        return axis, [int(size) for size in call.attributes["split"]]
    if call.input(1) is not None:
        return axis, integers(call, inputs[1], "the sizes")
    if call.attributes.get("num_outputs") not in (None, count):
        raise NotCompiled(f"{count} outputs and another num_outputs", call)
    size = x.shape[axis]
    if call.version < _UNEQUAL_SINCE and size % count:
        raise NotCompiled(f"{x.shape} does not split into {count} equal parts", call)
    piece = -(-size // count)
    return axis, [max(0, min(piece, size - start * piece)) for start in range(count)]


def _split(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    axis, sizes = _pieces(call, inputs)
    if len(sizes) != len(call.outputs) or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise NotCompiled(f"{x.shape} does not split into {sizes}", call)
    return [
        Abstract(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
        for size in sizes
    ]


def _record_split(plan: Plan, call: Call) -> None:
    source = call.inputs[0]
    assert source is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    axis, sizes = _pieces(call, inputs)
    view = plan.view(source)
    start = 0
    for name, size in zip(call.outputs, sizes, strict=True):
        starts = [0] * len(view.shape)
        starts[axis] = start
        extent = [*view.shape[:axis], size, *view.shape[axis + 1 :]]
        if name is not None:
            plan.alias(name, view.slice(starts, extent))
        start += size


register(
    "Split",
    Operation(_split, _record_split, any_fixed_size, known=frozenset({1})),
)


# as it is


def _identity(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    return [Abstract(x.dtype, x.shape)]


def _record_identity(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    plan.alias(output, plan.view(source))


register("Identity", Operation(_identity, _record_identity, any_fixed_size))


# the shape itself


def _sizes(call: Call, inputs: Inputs) -> list[Abstract]:
    x = _first(inputs)
    if call.op_type == "Size":
        content = np.array(x.size, np.int64)
    else:
        start, end = call.attributes.get("start", 0), call.attributes.get("end")
        content = np.array(x.shape[start:end], np.int64)
    return [Abstract.known(content, varies=True)]


def _never(plan: Plan, call: Call) -> None:
    raise AssertionError(f"{call.op_type} is known when planning")


def _anything(call: Call, dtypes: Dtypes) -> str | None:
    return None


register("Shape Size", Operation(_sizes, _never, _anything))
