"""Pools of the compiled tier against loops over windows in NumPy's widest floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.tests.properties.comparison import assert_near, wide
from ....kernels.tests.properties.sliding import Sliding
from ....kernels.tests.properties.strategies import Array, Draw, examples
from .compiled import Compiled, Node

F32 = np.dtype(np.float32)


def pooled(op_type: str, x: Array, **attributes: Any) -> Array:
    node = Node(op_type, ("x",), x.dtype, attributes)
    return Compiled({"y": node}, {"x": x.dtype}).run(x=x)["y"]


class Pooled:
    """An input, its windows, and what the elements of each are."""

    def __init__(self, draw: Draw, values: str, dtype: Any = F32) -> None:
        self.place = Sliding(draw, ceil=True)
        leading = draw.integer(0, 2), draw.one_of([1, 2, 17, 80])
        self.x = draw.array(dtype, (*leading, *self.place.spatial), values)
        self.attributes = {"kernel_shape": self.place.kernel, **self.place.attributes}
        self.inside = {
            window: [
                wide(self.x)[(..., *position)]
                for _, position in self.place.inside(window)
            ]
            for window in self.place.windows()
        }
        self.zeros = np.zeros((*leading, *self.place.count), np.longdouble)

    @property
    def has_empty_windows(self) -> bool:
        """Gaps may be as wide as the input; of such windows nothing is told."""
        return not all(self.inside.values())

    def counted(self, window: tuple[int, ...]) -> int:
        """How many elements lie in the input or in its padding."""
        place = self.place
        return sum(
            all(
                -begin <= p < n + end
                for p, begin, n, end in zip(
                    position, place.begin, place.spatial, place.end, strict=True
                )
            )
            for _, position in place.elements(window)
        )


@examples(40)
def test_max_pool(draw: Draw) -> None:
    case = Pooled(draw, draw.one_of(["whole", "special"]))
    if case.has_empty_windows:
        return
    for window, values in case.inside.items():
        case.zeros[(..., *window)] = np.max(values, axis=0)
    found = pooled("MaxPool", case.x, **case.attributes)
    assert_near(found, case.zeros, F32, 0)


@examples(60)
def test_max_pool_of_bytes(draw: Draw) -> None:
    case = Pooled(draw, "any", np.dtype(draw.one_of([np.uint8, np.int8])))
    if case.has_empty_windows:
        return
    for window, values in case.inside.items():
        case.zeros[(..., *window)] = np.max(values, axis=0)
    found = pooled("MaxPool", case.x, **case.attributes)
    np.testing.assert_array_equal(found, case.zeros.astype(case.x.dtype))


@examples(40)
def test_average_pool(draw: Draw) -> None:
    case = Pooled(draw, draw.one_of(["whole", "special"]))
    include = draw.integer(0, 1)
    if case.has_empty_windows:
        return
    magnitude = case.zeros.copy()
    with np.errstate(all="ignore"):
        for window, values in case.inside.items():
            count = case.counted(window) if include else len(values)
            case.zeros[(..., *window)] = np.sum(values, axis=0) / count
            sizes = np.nan_to_num(np.abs(values), posinf=0)
            magnitude[(..., *window)] = np.sum(sizes, axis=0) / count
    found = pooled("AveragePool", case.x, count_include_pad=include, **case.attributes)
    assert_near(found, case.zeros, F32, 30, magnitude)


@examples(40)
def test_lp_pool(draw: Draw) -> None:
    case = Pooled(draw, "special")
    p = draw.one_of([1, 2, 3])
    if case.has_empty_windows:
        return
    for window, values in case.inside.items():
        total = np.sum(np.abs(values) ** p, axis=0)
        case.zeros[(..., *window)] = total ** (1 / np.longdouble(p))
    found = pooled("LpPool", case.x, p=p, **case.attributes)
    size = np.nan_to_num(case.zeros, posinf=0)
    assert_near(found, case.zeros, F32, 30, size)


@examples(30)
def test_global_pools(draw: Draw) -> None:
    op_type = draw.one_of(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    spatial = [draw.integer(1, 20) for _ in range(draw.integer(1, 3))]
    shape = (draw.integer(0, 2), draw.one_of([1, 3, 33]), *spatial)
    x = draw.array(F32, shape, "special")
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
    found = pooled(op_type, x, **given)
    assert_near(found, exact, F32, 0 if op_type == "GlobalMaxPool" else 30, size)
