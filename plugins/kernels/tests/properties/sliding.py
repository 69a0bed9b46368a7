"""Windows over arrays, element by element, as the texts of Conv and pools have it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .strategies import Array, Draw, Shape


class Sliding:
    """Attributes of windows over spatial axes, and where each of their elements lies.

    Attributes:
        attributes: as the node has them; some that are usual are left out.
        spatial: the sizes of the input.
        count: how many windows there are along each axis.
    """

    def __init__(self, draw: Draw, *, ceil: bool = False, most: int = 7) -> None:
        rank = draw.one_of([2, 2, 1, 3])
        side = min(most, {1: 12, 2: 6, 3: 4}[rank])
        self.kernel = [draw.integer(1, 3) for _ in range(rank)]
        strides = [draw.integer(1, 3) for _ in range(rank)] if draw.flag() else None
        dilations = [draw.integer(1, 2) for _ in range(rank)] if draw.flag() else None
        self.strides = strides or [1] * rank
        self.dilations = dilations or [1] * rank
        extents = [
            (k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)
        ]
        self.attributes: dict[str, Any] = {}
        if strides:
            self.attributes["strides"] = strides
        if dilations:
            self.attributes["dilations"] = dilations
        rule = draw.one_of(["", "", "", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
        if rule:
            self.attributes["auto_pad"] = rule
        pads = [0] * (2 * rank)
        if not rule and draw.flag():
            pads = [draw.integer(0, extent - 1) for extent in (*extents, *extents)]
            self.attributes["pads"] = pads
        ceil_mode = draw.integer(0, 1) if ceil and not rule.startswith("SAME") else 0
        if ceil_mode:
            self.attributes["ceil_mode"] = 1
        self.spatial = []
        self.begin, self.end, self.count = [], [], []
        for axis, (extent, stride) in enumerate(
            zip(extents, self.strides, strict=True)
        ):
            begin, end = pads[axis], pads[axis + rank]
            size = draw.integer(max(1, extent - begin - end), max(side, extent))
            if rule.startswith("SAME"):
                count = math.ceil(size / stride)
                total = max((count - 1) * stride + extent - size, 0)
                begin = total // 2 if rule == "SAME_UPPER" else total - total // 2
                end = total - begin
            else:
                steps = (size + begin + end - extent) / stride
                up = ceil_mode and rule != "VALID"
                count = (math.ceil(steps) if up else math.floor(steps)) + 1
                # no window starts in the padding at the end
                if (count - 1) * stride >= size + begin:
                    count -= 1
            self.spatial.append(size)
            self.begin.append(begin)
            self.end.append(end)
            self.count.append(count)

    def windows(self) -> Iterator[Shape]:
        return itertools.product(*map(range, self.count))

    def elements(self, window: Shape) -> Iterator[tuple[Shape, Shape]]:
        """(index in the kernel, position in the input, which may be outside)."""
        for index in itertools.product(*map(range, self.kernel)):
            position = tuple(
                w * stride - begin + i * dilation
                for w, stride, begin, i, dilation in zip(
                    window, self.strides, self.begin, index, self.dilations, strict=True
                )
            )
            yield index, position

    def inside(self, window: Shape) -> list[tuple[Shape, Shape]]:
        """Those elements that lie in the input."""
        return [
            (index, position)
            for index, position in self.elements(window)
            if all(0 <= p < n for p, n in zip(position, self.spatial, strict=True))
        ]

    def convolved(self, x: Array, w: Array, group: int) -> Array:
        """[N, C, *spatial] with weights [M, C / group, *kernel], in their type."""
        exact = np.zeros((x.shape[0], w.shape[0], *self.count), x.dtype)
        depth, each = w.shape[1], w.shape[0] // group
        for window in self.windows():
            for index, position in self.inside(window):
                for filter_ in range(w.shape[0]):
                    first = filter_ // each * depth
                    pixels = x[(slice(None), slice(first, first + depth), *position)]
                    term = (pixels * w[(filter_, slice(None), *index)]).sum(axis=1)
                    exact[(slice(None), filter_, *window)] += term
        return exact
