"""Pools as nodes of random graphs."""

from __future__ import annotations

import math
from typing import Any

from .random_graphs import F32, RandomGraph, inexact


def pool(g: RandomGraph) -> None:
    """Windows of any kind that does not leave a window without elements."""
    x = g.pick(lambda v: v.dtype == F32 and 3 <= len(v.shape) <= 5 and v.size > 0)
    if x is None:
        return
    choose = g.choose
    operator = choose.choice(["MaxPool", "AveragePool", "LpPool"])
    spatial = x.shape[2:]
    rank = len(spatial)
    kernel = [choose.choice([1, 2, 3, 3, min(n, 5), n]) for n in spatial]
    strides = [choose.choice([1, 1, 2, 3]) for _ in spatial]
    # gaps could hold all of a window that lies in the padding for the rest
    dilations = [
        choose.choice([1, 1, 2]) if (k - 1) * 2 < n else 1
        for k, n in zip(kernel, spatial, strict=True)
    ]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [0] * (2 * rank)
    for axis, (extent, dilation, n) in enumerate(
        zip(extents, dilations, spatial, strict=True)
    ):
        most = extent - 1 if dilation == 1 else 0
        pads[axis], pads[axis + rank] = choose.randint(0, most), choose.randint(0, most)
        pads[axis + rank] += max(extent - n - pads[axis] - pads[axis + rank], 0)
        if pads[axis + rank] > most:
            return
    ceil = choose.random() < 0.3
    counts = []
    for axis, (n, extent, stride) in enumerate(
        zip(spatial, extents, strides, strict=True)
    ):
        room = n + pads[axis] + pads[axis + rank] - extent
        count = (-(-room // stride) if ceil else room // stride) + 1
        # no window starts in the padding at the end
        counts.append(count - ((count - 1) * stride >= n + pads[axis]))
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil_mode": int(ceil),
    }
    shape = (*x.shape[:2], *counts)
    if math.prod(shape) > g.max_size:
        return
    if operator == "MaxPool":
        g.moved("MaxPool", x, shape, **attributes)
        return
    if operator == "AveragePool":
        attributes["count_include_pad"] = choose.randint(0, 1)
        error = inexact(x.error, x, x.magnitude, 8)
        g.add(operator, [x], shape, F32, x.magnitude, error, **attributes)
        return
    # near 0 the root of a square amplifies what was lost, to a square root of it
    elements = math.prod(kernel)
    p = choose.choice([1, 2])
    magnitude = x.magnitude * elements ** (1 / p)
    error = inexact(x.error * elements ** (1 / p), x, magnitude, 8)
    g.add(operator, [x], shape, F32, magnitude, error, p=p, **attributes)


def global_pool(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype == F32 and 3 <= len(v.shape) <= 5 and v.size > 0)
    if x is None:
        return
    operator = g.choose.choice(
        ["GlobalMaxPool", "GlobalAveragePool", "GlobalAveragePool", "GlobalLpPool"]
    )
    shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    if operator == "GlobalMaxPool":
        g.moved(operator, x, shape)
        return
    elements = math.prod(x.shape[2:])
    growth = 1.0 if operator == "GlobalAveragePool" else math.sqrt(elements)
    magnitude = x.magnitude * growth
    error = inexact(x.error * growth, x, magnitude, 8)
    g.add(operator, [x], shape, F32, magnitude, error)
