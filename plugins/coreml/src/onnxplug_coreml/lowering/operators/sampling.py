"""Pictures read at points that are computed."""

from __future__ import annotations

from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, lowers, numbers
from onnxplug_coreml.lowering.program import Value

_MODES: Final = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}
_PADDINGS: Final = ("zeros", "border", "reflection")

_F32: Final = ep.DataType.FLOAT32


@lowers("GridSample")
def _grid_sample(call: Call) -> Value:
    """[N, C, H, W] at the points of [N, H', W', 2], as weighted rows of [N·H·W, C]."""
    call.require_type(0, *FLOATS)
    call.require_type(1, *FLOATS)
    mode = _MODES.get(call.attribute("mode", "linear"))
    if mode is None:
        raise call.refuse_attribute("mode", ", ".join(_MODES))
    padding = call.attribute("padding_mode", "zeros")
    if padding not in _PADDINGS:
        raise call.refuse_attribute("padding_mode", ", ".join(_PADDINGS))
    build, x = call.build, call.operand(0)
    if x.rank != 4:
        raise Refused(ep.RefusalCode.RANK, "takes pictures: [N, C, H, W]")
    count, channels, *sizes = numbers(x.shape)
    _, *wanted, _ = numbers(call.shape(1))
    pixels = sizes[0] * sizes[1]
    if count * pixels > np.iinfo(np.int32).max:
        raise Refused(ep.RefusalCode.OTHER, "more pixels than int32 can count")
    rows = build.reshape(
        build.transpose(build.cast(x, _F32), (0, 2, 3, 1)), (count * pixels, channels)
    )
    grid = build.reshape(
        build.cast(call.operand(1), _F32), (count, wanted[0] * wanted[1], 2)
    )
    aligned = bool(call.attribute("align_corners", 0))
    down, across = (
        _taps(build, build.between(grid, 2, at, at + 1), size, mode, padding, aligned)
        for at, size in ((1, sizes[0]), (0, sizes[1]))
    )
    first = np.arange(count, dtype=np.int32).reshape(count, 1, 1) * np.int32(pixels)
    width = build.scalar(sizes[1], ep.DataType.INT32)
    total: Value | None = None
    for row, high in down:
        start = build("add", build("mul", row, width), build.constant(first))
        for column, wide in across:
            index = build.reshape(build("add", start, column), grid.shape[:2])
            found = build("gather", rows, index, axis=0)
            share = build("mul", found, build("mul", high, wide))
            total = share if total is None else build("add", total, share)
    assert total is not None
    picture = build.reshape(
        build.transpose(total, (0, 2, 1)), (count, channels, *wanted)
    )
    return build.cast(picture, x.dtype)


def _taps(
    build: Builder, at: Value, size: int, mode: str, padding: str, aligned: bool
) -> list[tuple[Value, Value]]:
    """The elements to read along an axis, as int32, and their weights.

    Args:
        at: where points are, from -1 to 1: between the centres of the outermost
            elements if they are *aligned*, else between their edges.
    """
    edge = 0.0 if aligned else 0.5
    low, high = -edge, size - 1 + edge

    def number(value: float) -> Value:
        return build.scalar(value, _F32)

    def between(x: Value, least: float, most: float) -> Value:
        return build("minimum", build("maximum", x, number(least)), number(most))

    point = build("mul", build("add", at, number(1)), number(0.5))
    point = build("add", build("mul", point, number(high - low)), number(low))
    if mode == "nearest":
        point = build("round", point)
    if padding == "reflection" and high > low:
        point = _reflected(build, point, low, high)
    if padding != "zeros":
        point = between(point, 0, size - 1)
    # beyond the neighbours of the edge all is alike, and int32 has no infinity
    point = between(point, -2, size + 1)
    if mode == "nearest":
        places = [(point, number(1))]
    else:
        near = build("floor", point)
        share = build("sub", point, near)
        places = [
            (near, build("sub", number(1), share)),
            (build("add", near, number(1)), share),
        ]
    taps = []
    for place, weight in places:
        inside = between(place, 0, size - 1)
        if padding == "zeros":
            is_there = build.cast(build("equal", inside, place), _F32)
            weight = build("mul", weight, is_there)
        # what becomes of NaN in a cast is left open
        index = build.cast(inside, ep.DataType.INT32)
        first, last = (build.scalar(end, ep.DataType.INT32) for end in (0, size - 1))
        index = build("minimum", build("maximum", index, first), last)
        taps.append((index, weight))
    return taps


def _reflected(build: Builder, point: Value, low: float, high: float) -> Value:
    """Points beyond two mirrors, at *low* and *high*, as they are between them."""

    def number(value: float) -> Value:
        return build.scalar(value, _F32)

    span = high - low
    away = build("abs", build("sub", point, number(low)))
    times = build("floor", build("divide", away, number(span)))
    rest = build("sub", away, build("mul", times, number(span)))
    pairs = build("floor", build("mul", times, number(0.5)))
    odd = build("greater", times, build("mul", pairs, number(2)))
    return build(
        "select",
        odd,
        build("sub", number(high), rest),
        build("add", rest, number(low)),
    )
