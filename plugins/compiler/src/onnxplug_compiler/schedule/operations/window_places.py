"""Operators for which it matters where the elements of windows are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug.authoring.bounds import per_axis, split_pads
from onnxplug_compiler.frontend.call import Call, NotCompiled, integers
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.windows import Slide, slides_of
from onnxplug_compiler.schedule.coded import as_shape
from onnxplug_compiler.schedule.copies import record_copy, record_padded
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

if TYPE_CHECKING:
    from onnxplug_compiler.ir.images import WindowPlaces
    from onnxplug_kernels.windows import Windows

_I64: Final = np.dtype(np.int64)
_SPATIAL_AXES: Final = (1, 2, 3)


def family(plan: Plan) -> WindowPlaces:
    """The target's, which has it for one of its operators."""
    found = plan.recorder.target.window_places
    assert found is not None
    return found


def _placed(
    call: Call, spatial: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Windows, list[Slide]]:
    """The windows of *call* over an image, and how they slide.

    Raises:
        NotCompiled: there are none that kernels take.
    """
    from onnxplug_kernels.windows import place_windows

    if len(spatial) not in _SPATIAL_AXES or len(kernel) != len(spatial):
        raise NotCompiled(f"{call.op_type} of {spatial} with {kernel}", call)
    names = "strides", "pads", "dilations"
    given = {name: call.attributes[name] for name in names}
    try:
        windows = place_windows(spatial, kernel, **given)
    except ValueError as error:
        raise NotCompiled(str(error), call) from error
    pads = (*windows.begin, *windows.end)
    return windows, slides_of(kernel, windows.strides, windows.dilations, pads)


# Col2Im


def _check_fold(call: Call, inputs: Inputs, results: Results) -> None:
    x, out = given(inputs).shape, given(results).shape
    image = tuple(integers(call, inputs[1], "the image's shape"))
    kernel = tuple(integers(call, inputs[2], "the block's shape"))
    windows, _ = _placed(call, image, kernel)
    size, count = math.prod(kernel), math.prod(windows.count)
    if len(x) != 3 or x[1] % size or x[2] != count:
        raise NotCompiled(f"Col2Im of {x} with blocks {kernel} in {image}", call)
    if out != (x[0], x[1] // size, *image):
        raise NotCompiled(f"Col2Im gives {out}", call)


def _record_fold(plan: Plan, call: Call) -> None:
    source, second, third = call.inputs
    output = call.outputs[0]
    assert source and second and third and output
    x, out = plan.view(source), plan.destination(output)
    kernel = tuple(integers(call, plan.known(third), "the block's shape"))
    windows, slides = _placed(call, out.shape[2:], kernel)
    apart = as_shape(plan, x, (*out.shape[:2], *kernel, *windows.count))
    family(plan).record_fold(plan.recorder, apart, out, slides)


def _accepts_first(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return computed(call, dtypes[:1], target)


register(
    "Col2Im", Operation(_record_fold, _accepts_first, _check_fold, frozenset({1, 2}))
)


# DeformConv


def _sizes(call: Call, x: tuple[int, ...]) -> tuple[int, int]:
    """How many groups of channels and of offsets there are.

    Raises:
        NotCompiled: they do not divide the channels.
    """
    groups, offsets = (int(call.attributes[name]) for name in ("group", "offset_group"))
    if groups < 1 or offsets < 1 or x[1] % offsets:
        raise NotCompiled(f"{groups} and {offsets} groups of {x[1]} channels", call)
    return groups, offsets


def _check_deformed(call: Call, inputs: Inputs, results: Results) -> None:
    x, w = given(inputs).shape, given(inputs, 1).shape
    if len(x) < 3 or len(w) != len(x) or 0 in (*x, *w):
        raise NotCompiled(f"DeformConv of {x} with {w}", call)
    groups, offsets = _sizes(call, x)
    kernel = call.attributes.get("kernel_shape")
    windows, _ = _placed(call, x[2:], w[2:])
    if x[1] != w[1] * groups or w[0] % groups or tuple(kernel or w[2:]) != w[2:]:
        raise NotCompiled(f"weights {w} of {groups} groups for {x}", call)
    rows = offsets * math.prod(w[2:])
    wanted = {
        2: (x[0], rows * (len(x) - 2), *windows.count),
        3: w[:1],
        4: (x[0], rows, *windows.count),
    }
    for position, shape in wanted.items():
        each = inputs[position] if position < len(inputs) else None
        if each is not None and each.shape != shape:
            raise NotCompiled(
                f"input {position} of DeformConv has shape {each.shape}; expected "
                f"{shape}",
                call,
            )
    if given(results).shape != (x[0], w[0], *windows.count):
        raise NotCompiled(f"DeformConv gives {given(results).shape}", call)


def _record_deformed(plan: Plan, call: Call) -> None:
    names = [call.input(position) for position in range(5)]
    views = [None if name is None else plan.view(name) for name in names]
    x, w, moved, bias, mask = views
    output = call.outputs[0]
    assert x is not None and w is not None and moved is not None and output is not None
    target = plan.destination(output)
    if not target.size:
        return
    groups, offsets = _sizes(call, x.shape)
    windows, slides = _placed(call, x.shape[2:], w.shape[2:])
    size, area = math.prod(w.shape[2:]), math.prod(windows.count)
    images, channels = x.shape[:2]
    columns = plan.recorder.temporary(x.dtype, (images, channels, size, *windows.count))
    lead = images, offsets, size
    moved = as_shape(plan, moved, (*lead, len(slides), *windows.count))
    if mask is not None:
        mask = as_shape(plan, mask, (*lead, *windows.count))
    family(plan).record_deformed(plan.recorder, x, moved, mask, columns, slides)
    filters, depth = w.shape[0] // groups, w.shape[1] * size
    a = as_shape(plan, w, (1, groups, filters, depth))
    b = as_shape(plan, columns, (images, groups, depth, area))
    out = target.reshape((images, groups, filters, area))
    result = out or plan.recorder.temporary(x.dtype, (images, groups, filters, area))
    after = None
    if bias is not None:
        formula = Formula.wide(result)
        total = formula.tile()
        added = as_shape(plan, bias, (1, groups, filters, 1))
        total = formula.step("Add", total, formula.read_wide(added))
        element = element_of(result.dtype)
        assert element is not None
        after = formula.epilogue([formula.cast(total, element)], [result])
    plan.recorder.target.contractions.record_matmul(
        plan.recorder, a, b, result, epilogue=after, label="DeformConv"
    )
    if out is None:
        record_copy(plan.recorder, as_shape(plan, result, target.shape), target)


register("DeformConv", Operation(_record_deformed, computed, _check_deformed))


# MaxUnpool


def _unpooled(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the array whose elements the indices number."""
    rank = len(shape) - 2
    attributes = call.attributes
    begin, end = split_pads(attributes["pads"], rank)
    spatial = zip(
        shape[2:],
        per_axis("strides", attributes["strides"], rank),
        per_axis("kernel_shape", attributes["kernel_shape"], rank),
        begin,
        end,
        strict=True,
    )
    return (
        *shape[:2],
        *((size - 1) * step + taps - a - b for size, step, taps, a, b in spatial),
    )


def _check_unpool(call: Call, inputs: Inputs, results: Results) -> None:
    x, places, out = given(inputs).shape, given(inputs, 1).shape, given(results).shape
    if len(x) < 3 or places != x or 0 in x:
        raise NotCompiled(f"MaxUnpool of {x} with indices {places}", call)
    try:
        whole = _unpooled(call, x)
    except ValueError as error:
        raise NotCompiled(str(error), call) from error
    if min(whole) < 1 or whole[:2] != out[:2] or any(map(int.__lt__, out, whole)):
        raise NotCompiled(f"MaxUnpool of {x} gives {out}", call)


def _record_unpool(plan: Plan, call: Call) -> None:
    source, second, output = call.inputs[0], call.inputs[1], call.outputs[0]
    assert source is not None and second is not None and output is not None
    x, places, target = plan.view(source), plan.view(second), plan.destination(output)
    recorder, shape = plan.recorder, _unpooled(call, x.shape)
    size = math.prod(shape)
    # other than ScatterElements' no index counts from the end
    formula = Formula.of(places)
    number = formula.read(places)
    zero, beyond = (
        formula.read(recorder.constant(np.array(n, _I64))) for n in (0, size)
    )
    wrong = formula.step("Less", number, zero, element="i1")
    checked = recorder.temporary(_I64, x.shape)
    number = formula.step("Where", wrong, beyond, number)
    formula.record(recorder, number, checked, call.op_type)
    whole = target.reshape((size,)) if target.shape == shape else None
    if whole is None:
        whole = recorder.temporary(x.dtype, (size,))
    nothing = recorder.constant(np.zeros((), x.dtype)).broadcast_to((size,))
    recorder.target.indexing.record_scatter_elements(
        recorder,
        nothing,
        as_shape(plan, checked, (x.size,)),
        as_shape(plan, x, (x.size,)),
        whole,
        0,
        label=call.op_type,
    )
    if target.shape != shape:
        inner = as_shape(plan, whole, shape)
        record_padded(recorder, inner, target, [0] * len(shape), label=call.op_type)
    elif target.reshape((size,)) is None:
        record_copy(recorder, as_shape(plan, whole, shape), target)


register(
    "MaxUnpool",
    Operation(_record_unpool, _accepts_first, _check_unpool, frozenset({2})),
)
