"""Convolutions of whole numbers, which are exact, against loops over windows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .comparison import assert_near, assert_same, result_of, wide
from .formulas import ROUNDED
from .sliding import Sliding
from .strategies import Array, Draw, examples, is_float


@examples(50)
def test_conv(draw: Draw) -> None:
    dtype, place = draw.dtype("Conv"), Sliding(draw)
    group = draw.integer(1, 3)
    depth, filters = draw.integer(1, 3), group * draw.integer(1, 2)
    x = draw.array(dtype, (draw.integer(0, 2), group * depth, *place.spatial), "whole")
    w = draw.array(dtype, (filters, depth, *place.kernel), "whole")
    b = draw.array(dtype, (filters,), "whole") if draw.flag() else None
    given = {"kernel_shape": place.kernel} if draw.flag() else {}
    if group > 1 or draw.flag():
        given["group"] = group
    exact = place.convolved(wide(x), wide(w), group)
    if b is not None:
        exact += wide(b).reshape(-1, *(1,) * len(place.count))
    found = result_of("Conv", x, w, b, **given, **place.attributes)
    assert_near(found, exact, dtype, ROUNDED)


@examples(50)
def test_conv_transpose(draw: Draw) -> None:
    dtype = draw.dtype("ConvTranspose")
    rank = draw.integer(1, 3)

    def each(low: int, high: int) -> list[int]:
        return [draw.integer(low, high) for _ in range(rank)]

    spatial, kernel = each(1, 5 if rank < 3 else 3), each(1, 3)
    strides, dilations = each(1, 3), each(1, 2)
    group, depth, filters = (draw.integer(1, n) for n in (2, 3, 2))
    given: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    # less than a stride is added to the output, and no more is taken off than it has
    extra = [draw.integer(0, stride - 1) for stride in strides]
    if draw.flag():
        given["output_padding"] = extra
    else:
        extra = [0] * rank
    whole = [
        stride * (n - 1) + more + (k - 1) * dilation + 1
        for stride, n, more, k, dilation in zip(
            strides, spatial, extra, kernel, dilations, strict=True
        )
    ]
    match draw.one_of(["pads", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"]):
        case "pads":
            begin, end = each(0, 2), each(0, 2)
            if min(n - b - e for n, b, e in zip(whole, begin, end, strict=True)) < 1:
                return
            given["pads"] = [*begin, *end]
            shape = [n - b - e for n, b, e in zip(whole, begin, end, strict=True)]
        case "VALID":
            given["auto_pad"] = "VALID"
            begin, shape = [0] * rank, whole
        case rule:
            if rule == "output_shape":
                shape = [n - draw.integer(0, min(n - 1, 3)) for n in whole]
                given["output_shape"] = shape
            else:
                given["auto_pad"] = rule
                shape = [n * stride for n, stride in zip(spatial, strides, strict=True)]
                if any(n < m for n, m in zip(whole, shape, strict=True)):
                    return  # there is nothing to take off, and nothing to add
            totals = [n - m for n, m in zip(whole, shape, strict=True)]
            upper = rule == "SAME_UPPER"
            begin = [t // 2 if upper else t - t // 2 for t in totals]
    x = draw.array(dtype, (draw.integer(0, 2), group * depth, *spatial), "whole")
    w = draw.array(dtype, (group * depth, filters, *kernel), "whole")
    b = draw.array(dtype, (group * filters,), "whole") if draw.flag() else None
    exact = np.zeros((x.shape[0], group * filters, *shape), np.longdouble)
    for index in itertools.product(*map(range, kernel)):
        for source in itertools.product(*map(range, spatial)):
            target = [
                s * stride + i * dilation - first
                for s, stride, i, dilation, first in zip(
                    source, strides, index, dilations, begin, strict=True
                )
            ]
            if not all(0 <= t < n for t, n in zip(target, shape, strict=True)):
                continue
            for channel in range(group * depth):
                first = channel // depth * filters
                exact[(slice(None), slice(first, first + filters), *target)] += (
                    wide(x)[(slice(None), channel, *source)][:, None]
                    * wide(w)[(channel, slice(None), *index)]
                )
    if b is not None:
        exact += wide(b).reshape(-1, *(1,) * rank)
    found = result_of("ConvTranspose", x, w, b, **given)
    assert_near(found, exact, dtype, ROUNDED)


@examples(35)
def test_deform_conv(draw: Draw) -> None:
    """The shares of neighbours are quarters, so exact as well."""
    dtype, place = draw.dtype("DeformConv"), Sliding(draw, most=4)
    # padding is given by numbers alone
    if "auto_pad" in place.attributes or len(place.kernel) != 2:
        return
    group, offset_group, depth = (draw.integer(1, 2) for _ in range(3))
    channels, filters = 2 * depth, 2
    batch, size = draw.integer(1, 2), math.prod(place.kernel)
    x = draw.array(dtype, (batch, channels, *place.spatial), "whole")
    w = draw.array(dtype, (filters, channels // group, *place.kernel), "whole")
    quarters = np.array([0, 0.5, -0.5, 1, 0.25, -1.75, 9, -9]).astype(dtype)
    shape = (batch, offset_group * size * 2, *place.count)
    offset = draw.of(quarters, shape)
    b = draw.array(dtype, (filters,), "whole") if draw.flag() else None
    mask = None
    if draw.flag():
        mask = draw.of(quarters, (batch, offset_group * size, *place.count))
    exact = np.zeros((batch, filters, *place.count), np.longdouble)
    for window in place.windows():
        for number, (index, position) in enumerate(place.elements(window)):
            for image, channel in np.ndindex(batch, channels):
                part = channel // (channels // offset_group)
                at = 2 * (part * size + number)
                point = [
                    float(position[axis]) + float(offset[(image, at + axis, *window)])
                    for axis in range(2)
                ]
                pixel = between(wide(x)[image, channel], point)
                if mask is not None:
                    pixel *= wide(mask)[(image, part * size + number, *window)]
                chosen = channel // (channels // group)
                for filter_ in range(filters):
                    if filter_ // (filters // group) == chosen:
                        inner = channel % (channels // group)
                        weight = wide(w)[(filter_, inner, *index)]
                        exact[(image, filter_, *window)] += pixel * weight
    if b is not None:
        exact += wide(b).reshape(-1, 1, 1)
    found = result_of(
        "DeformConv",
        x, w, offset, b, mask,
        group=group,
        offset_group=offset_group,
        **place.attributes,
    )  # fmt: skip
    assert_near(found, exact, dtype, ROUNDED)


def between(image: Array, point: list[float]) -> Any:
    """*image* at a point between its elements; zero outside."""
    total = np.longdouble(0)
    for corner in itertools.product(
        *((math.floor(p), math.floor(p) + 1) for p in point)
    ):
        if all(0 <= c < n for c, n in zip(corner, image.shape, strict=True)):
            shares = [1 - abs(p - c) for p, c in zip(point, corner, strict=True)]
            total += image[corner] * math.prod(shares)
    return total


@examples(35)
def test_causal_conv_with_state(draw: Draw) -> None:
    dtype = draw.dtype("CausalConvWithState")
    batch, channels, length, size = (draw.integer(1, n) for n in (2, 3, 5, 4))
    x = draw.array(dtype, (batch, channels, length), "whole")
    w = draw.array(dtype, (channels, 1, size), "whole")
    b = draw.array(dtype, (channels,), "whole") if draw.flag() else None
    past = None
    before = np.zeros((batch, channels, size - 1), dtype)
    if draw.flag():
        past = before = draw.array(dtype, before.shape, "whole")
    activation = draw.one_of(["none", "silu", "swish"])
    whole = np.concatenate([before, x], axis=2)
    exact = np.zeros(x.shape, np.longdouble)
    for time, k in np.ndindex(length, size):
        exact[:, :, time] += wide(whole)[:, :, time + k] * wide(w)[:, 0, k]
    if b is not None:
        exact += wide(b)[:, None]
    if activation != "none":
        exact = exact / (1 + np.exp(-exact))
    y, state = result_of(
        "CausalConvWithState", x, w, b, past, activation=activation, output_count=2
    )
    assert_near(y, exact, dtype, ROUNDED if activation == "none" else 6)
    assert_same(state, whole[:, :, length:])


@examples(35)
def test_col2im(draw: Draw) -> None:
    dtype = draw.dtype("Col2Im", kind=is_float)
    place = Sliding(draw)
    if "auto_pad" in place.attributes:
        return  # it has no such attribute
    batch, channels = draw.integer(0, 2), draw.integer(1, 2)
    size, blocks = math.prod(place.kernel), math.prod(place.count)
    x = draw.array(dtype, (batch, channels * size, blocks), "whole")
    exact = np.zeros((batch, channels, *place.spatial), np.longdouble)
    columns = wide(x).reshape(batch, channels, *place.kernel, *place.count)
    for window in place.windows():
        for index, position in place.inside(window):
            exact[(..., *position)] += columns[(..., *index, *window)]
    image, block = np.array(place.spatial), np.array(place.kernel)
    found = result_of("Col2Im", x, image, block, **place.attributes)
    assert_near(found, exact, dtype, ROUNDED)
