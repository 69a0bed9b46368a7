"""Convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxplug import ep
from onnxplug.authoring.bounds import split_pads
from onnxplug_coreml.lowering.builder import Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.primitives import Pairs
from onnxplug_coreml.lowering.program import Shape, Value
from onnxplug_coreml.lowering.target import Engine
from onnxplug_kernels.windows import place_windows

_MOST_SPATIAL = 3


@lowers("Conv")
def _convolve(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x, weight = call.operand(0), call.operand(1)
    kernel = numbers(weight.shape)[2:]
    _require_spatial(len(kernel))
    _require_kernel(call, kernel)
    strides = _each(call, "strides", len(kernel))
    dilations = _each(call, "dilations", len(kernel))
    return call.build(
        "conv",
        x,
        weight,
        call.optional(2),
        strides=strides,
        dilations=dilations,
        pads=_pads(call, x.shape[2:], kernel, strides, dilations),
        groups=call.attribute("group", 1),
    )


@lowers("ConvTranspose")
def _convolve_transposed(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x, weight = call.operand(0), call.operand(1)
    kernel = numbers(weight.shape)[2:]
    spatial = len(kernel)
    _require_spatial(spatial)
    _require_kernel(call, kernel)
    strides = _each(call, "strides", spatial)
    dilations = _each(call, "dilations", spatial)
    extra = _each(call, "output_padding", spatial, 0)
    sizes = numbers(x.shape)[2:]
    full = [
        (size - 1) * stride + (width - 1) * dilation + 1 + more
        for size, width, stride, dilation, more in zip(
            sizes, kernel, strides, dilations, extra, strict=True
        )
    ]
    wanted = numbers(call.output_shape())[2:]
    shaped = bool(call.attribute("output_shape"))
    how = call.attribute("auto_pad", "NOTSET")
    given = call.attribute("pads")
    pads: list[tuple[int, int]] = []
    for axis, (there, asked) in enumerate(zip(full, wanted, strict=True)):
        if how in ("NOTSET", "VALID") and not shaped:
            cut = (given[axis], given[axis + spatial]) if given else (0, 0)
        else:
            total = there - asked
            small = total // 2
            upper = how == "SAME_UPPER"
            cut = (small, total - small) if upper else (total - small, small)
        pads.append(cut)
    build, groups = call.build, call.attribute("group", 1)
    # engines cut off as much before as after
    if all(before == after >= 0 for before, after in pads):
        return build(
            "conv_transpose", x, weight, call.optional(2), strides=strides,
            dilations=dilations, pads=tuple(pads), output_pads=extra, groups=groups,
        )  # fmt: skip
    found = build(
        "conv_transpose", x, weight, None, strides=strides, dilations=dilations,
        pads=((0, 0),) * spatial, output_pads=(0,) * spatial, groups=groups,
    )  # fmt: skip
    grown = [
        (max(-before, 0), max(more - after, 0))
        for (before, after), more in zip(pads, extra, strict=True)
    ]
    for axis, ((before, after), more) in enumerate(zip(pads, extra, strict=True)):
        size = numbers(found.shape)[axis + 2]
        stop = size - max(after - more, 0)
        found = build.between(found, axis + 2, max(before, 0), stop)
    if any(map(any, grown)):
        around = ((0, 0), (0, 0), *grown)
        found = build("pad", found, mode="constant", pads=around, value=0)
    bias = call.optional(2)
    if bias is None:
        return found
    wide = build.reshape(bias, (*bias.shape, *(1,) * spatial))
    return build("add", found, wide)


@lowers("MaxPool")
def _max_pool(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    kernel = tuple(call.attribute("kernel_shape"))
    call.ignore("storage_order")
    _require_spatial(len(kernel))
    if call.wants(1):
        raise Refused(ep.RefusalCode.OTHER, "MaxPool that gives indices")
    strides = _each(call, "strides", len(kernel))
    dilations = _each(call, "dilations", len(kernel))
    if call.target.engine is Engine.ML_PROGRAM and set(dilations) != {1}:
        raise call.refuse_attribute("dilations", "1 for MLProgram")
    pads = _pads(call, x.shape[2:], kernel, strides, dilations)
    return call.build(
        "max_pool", x, kernel=kernel, strides=strides, dilations=dilations,
        pads=_grown(call, x.shape[2:], kernel, strides, dilations, pads),
    )  # fmt: skip


@lowers("AveragePool")
def _average_pool(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    kernel = tuple(call.attribute("kernel_shape"))
    ones = (1,) * len(kernel)
    _require_spatial(len(kernel))
    if tuple(call.attribute("dilations", ones)) != ones:
        raise call.refuse_attribute("dilations", "1")
    strides = _each(call, "strides", len(kernel))
    pads = _pads(call, x.shape[2:], kernel, strides, ones)
    grown = _grown(call, x.shape[2:], kernel, strides, ones, pads)
    counts = bool(call.attribute("count_include_pad", 0))
    if counts and grown != pads:
        raise call.refuse_attribute(
            "ceil_mode", "0 where the sizes are not whole, with count_include_pad"
        )
    return call.build(
        "avg_pool", x, kernel=kernel, strides=strides, pads=grown, count_pads=counts
    )


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    x = call.operand(0)
    axes = tuple(range(2, x.rank))
    if not axes:
        return x
    primitive = "reduce_mean" if "Average" in call.op_type else "reduce_max"
    return call.build(primitive, x, axes=axes, keep=True)


def _require_spatial(count: int) -> None:
    if not 1 <= count <= _MOST_SPATIAL:
        raise Refused(
            ep.RefusalCode.RANK, f"{count} spatial dimensions; takes 1, 2 and 3"
        )


def _require_kernel(call: Call, kernel: Sequence[int]) -> None:
    if tuple(call.attribute("kernel_shape", kernel)) != tuple(kernel):
        raise call.refuse_attribute("kernel_shape", f"the weight's {list(kernel)}")
    if call.target.engine is Engine.ML_PROGRAM:
        call.content(1)
        if call.has(2):
            call.content(2)


def _each(call: Call, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    return tuple(call.attribute(name, (default,) * count))


def _pads(
    call: Call,
    sizes: Shape,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Pairs:
    """Before and after each spatial dimension, as ``pads`` or ``auto_pad`` say."""
    count = len(kernel)
    call.ignore("pads")
    match call.attribute("auto_pad", "NOTSET"):
        case "NOTSET":
            flat = call.attribute("pads")
            if flat and min(flat) < 0:
                raise call.refuse_attribute("pads", "none that is negative")
            return tuple(zip(*split_pads(flat, count), strict=True))
        case "VALID":
            return ((0, 0),) * count
        case how:
            windows = place_windows(
                numbers(sizes), kernel, strides=strides, dilations=dilations,
                auto_pad=how,
            )  # fmt: skip
            return tuple(zip(windows.begin, windows.end, strict=True))


def _grown(
    call: Call,
    sizes: Shape,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pairs,
) -> Pairs:
    """*pads*, with as much more behind as the last window of ``ceil_mode`` needs."""
    if not call.attribute("ceil_mode", 0):
        return pads
    windows = place_windows(
        numbers(sizes), kernel, strides=strides, dilations=dilations,
        pads=tuple(itertools.chain(*zip(*pads, strict=True))), ceil_mode=1,
    )  # fmt: skip
    return tuple(
        (before, max(span - size - before, after))
        for (before, after), span, size in zip(
            pads, windows.spans, numbers(sizes), strict=True
        )
    )
