"""Pooling against loops over windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .comparison import assert_near, assert_same, result_of, wide
from .sliding import Sliding
from .strategies import Draw, examples, is_float


class Pooled:
    """An input, its windows, and the attributes."""

    def __init__(self, draw: Draw, op_type: str, values: Any) -> None:
        self.dtype = draw.dtype(op_type)
        self.place = Sliding(draw, ceil=True)
        leading = draw.integer(0, 2), draw.integer(1, 2)
        self.x = draw.array(self.dtype, (*leading, *self.place.spatial), values)
        self.exact = np.zeros((*leading, *self.place.count), np.longdouble)
        self.attributes = {"kernel_shape": self.place.kernel, **self.place.attributes}

    @property
    def has_empty_windows(self) -> bool:
        """Gaps may be as wide as the input; of such windows nothing is told."""
        return not all(self.place.inside(window) for window in self.place.windows())


@examples(60)
def test_max_pool(draw: Draw) -> None:
    case = Pooled(draw, "MaxPool", draw.one_of(["whole", "finite"]))
    if case.has_empty_windows:
        return
    order = draw.integer(0, 1)
    indices = np.zeros(case.exact.shape, np.int64)
    x, spatial = wide(case.x), case.place.spatial
    for window in case.place.windows():
        positions = [position for _, position in case.place.inside(window)]
        for leading in np.ndindex(x.shape[:2]):
            values = [x[(*leading, *position)] for position in positions]
            best = values.index(max(values))
            case.exact[(*leading, *window)] = values[best]
            image = leading[0] * x.shape[1] + leading[1]
            position = positions[best]
            # columns first, or rows
            flat = int(
                np.ravel_multi_index(position, spatial, order="F" if order else "C")
            )
            indices[(*leading, *window)] = image * math.prod(spatial) + flat
    alone = result_of("MaxPool", case.x, **case.attributes)
    assert_near(alone, case.exact, case.dtype, 0)
    y, found = result_of(
        "MaxPool", case.x, storage_order=order, output_count=2, **case.attributes
    )
    assert_near(y, case.exact, case.dtype, 0)
    assert_same(found, indices)


@examples(60)
def test_average_pool(draw: Draw) -> None:
    case = Pooled(draw, "AveragePool", draw.one_of(["whole", "special"]))
    include = draw.integer(0, 1)
    if not include and case.has_empty_windows:
        return
    place = case.place
    magnitude = np.zeros(case.exact.shape, np.longdouble)
    for window in place.windows():
        inside = [wide(case.x)[(..., *p)] for _, p in place.inside(window)]
        # padding counts, but not what lies beyond it for the sake of ceil_mode
        padded = [
            position
            for _, position in place.elements(window)
            if all(
                -begin <= p < n + end
                for p, begin, n, end in zip(
                    position, place.begin, place.spatial, place.end, strict=True
                )
            )
        ]
        count = len(padded) if include else len(inside)
        if not count:
            return
        zero = np.zeros(case.x.shape[:2], np.longdouble)
        with np.errstate(all="ignore"):
            case.exact[(..., *window)] = sum(inside, zero) / count
            sizes = [np.nan_to_num(np.abs(v), posinf=0) for v in inside]
            magnitude[(..., *window)] = sum(sizes, zero) / count
    found = result_of(
        "AveragePool", case.x, count_include_pad=include, **case.attributes
    )
    units = 30 if case.dtype.itemsize > 2 else 1
    assert_near(found, case.exact, case.dtype, units, magnitude)


@examples(50)
def test_lp_pool(draw: Draw) -> None:
    case = Pooled(draw, "LpPool", "special")
    p = draw.one_of([1, 2, 3])
    for window in case.place.windows():
        inside = [wide(case.x)[(..., *at)] for _, at in case.place.inside(window)]
        zero = np.zeros(case.x.shape[:2], np.longdouble)
        total = sum((np.abs(values) ** p for values in inside), zero)
        case.exact[(..., *window)] = total ** (1 / np.longdouble(p))
    found = result_of("LpPool", case.x, p=p, **case.attributes)
    units = 30 if case.dtype.itemsize > 2 else 1
    assert_near(
        found, case.exact, case.dtype, units, np.nan_to_num(case.exact, posinf=0)
    )


@examples(50)
def test_global_pools(draw: Draw) -> None:
    op_type = draw.one_of(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    dtype = draw.dtype(op_type, kind=is_float)
    shape = draw.shape(3, empty=False)
    x = draw.array(dtype, shape, "special")
    axes = tuple(range(2, x.ndim))
    given = {}
    with np.errstate(all="ignore"):
        size = np.nan_to_num(np.abs(wide(x)), posinf=0).max(axis=axes, keepdims=True)
        if op_type == "GlobalAveragePool":
            exact = wide(x).mean(axis=axes, keepdims=True)
        elif op_type == "GlobalMaxPool":
            exact = wide(x).max(axis=axes, keepdims=True)
        else:
            given = {"p": draw.one_of([1, 2, 3])}
            total = (np.abs(wide(x)) ** given["p"]).sum(axis=axes, keepdims=True)
            exact = total ** (1 / np.longdouble(given["p"]))
            size = np.nan_to_num(exact, posinf=0)
    units = 240 if dtype.itemsize > 2 else 1
    found = result_of(op_type, x, **given)
    assert_near(found, exact, dtype, 0 if op_type == "GlobalMaxPool" else units, size)


@examples(35)
def test_max_unpool(draw: Draw) -> None:
    """What MaxPool took goes back to where it was, among zeros."""
    dtype = draw.dtype("MaxUnpool", "T1")
    rank = draw.integer(1, 3)
    kernel = [draw.integer(1, 3) for _ in range(rank)]
    counts = [draw.integer(1, 3) for _ in range(rank)]
    spatial = [k * n for k, n in zip(kernel, counts, strict=True)]
    x = draw.array(dtype, (draw.integer(1, 2), draw.integer(1, 2), *spatial), "finite")
    pooled, indices = result_of(
        "MaxPool", x, kernel_shape=kernel, strides=kernel, output_count=2
    )
    expected = np.zeros(x.shape, dtype)
    expected.reshape(-1)[indices.reshape(-1)] = pooled.reshape(-1)
    given = [np.array(x.shape, np.int64)] if draw.flag() else []
    found = result_of(
        "MaxUnpool", pooled, indices, *given, kernel_shape=kernel, strides=kernel
    )
    assert_same(found, expected)
