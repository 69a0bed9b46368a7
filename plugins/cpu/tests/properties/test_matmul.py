"""Products of the compiled tier against sums in NumPy's widest floats."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....kernels.tests.properties.comparison import assert_near, wide
from ....kernels.tests.properties.formulas import product
from ....kernels.tests.properties.strategies import (
    Array,
    Draw,
    examples,
    shapes_within,
    table_of,
)
from .compiled import Compiled, Node

FLOAT32 = np.dtype(np.float32)
ROWS = (1, 2, 3, 5, 6, 7, 12, 17, 32, 33, 0)
COLUMNS = (1, 3, 8, 15, 16, 17, 32, 48, 50, 65, 0)
INNER = (1, 2, 7, 16, 31, 64, 100, 385, 0)
DEPTH, WIDTH = 19, 37
"""Of a constant factor."""


def check(
    found: Array, a: Array, b: Array, c: Any = None, alpha: float = 1, beta: float = 1
) -> None:
    def result(a: Array, b: Array, c: Any, alpha: float, beta: float) -> Array:
        y = product(a, b) * np.longdouble(alpha)
        return np.asarray(y if c is None else y + c * np.longdouble(beta))

    operands = [None if x is None else wide(x) for x in (a, b, c)]
    with np.errstate(all="ignore"):
        exact = result(*operands, alpha, beta)
        sizes = [
            None if x is None else np.nan_to_num(np.abs(x), posinf=8) for x in operands
        ]
        size = result(*sizes, abs(alpha), abs(beta))
    assert_near(found, exact, FLOAT32, a.shape[-1] + 4, size)


@functools.cache
def products() -> Compiled:
    return Compiled(
        {"y": Node("MatMul", ("a", "b"), FLOAT32)}, {"a": FLOAT32, "b": FLOAT32}
    )


def values(draw: Draw) -> Any:
    return draw.one_of(["ordinary", "ordinary", "special"])


@examples(36)
def test_matmul(draw: Draw) -> None:
    batch = draw.one_of([(), (), (2,), (3, 2), (2, 1, 2), (0,)])
    one, two = (draw.one_of(shapes_within(batch)) for _ in range(2))
    rows, inner, columns = map(draw.one_of, (ROWS, INNER, COLUMNS))
    left, right = (*one, rows, inner), (*two, inner, columns)
    # a vector is one row, or one column
    left = draw.one_of([left] * 5 + [(inner,)])
    right = draw.one_of([right] * 5 + [(inner,)])
    a = draw.array(FLOAT32, left, values(draw))
    b = draw.array(FLOAT32, right, values(draw))
    check(products().run(a=a, b=b)["y"], a, b)


def weights(*shape: int) -> Array:
    table = table_of(FLOAT32, "ordinary")
    places = np.random.default_rng(3).integers(0, len(table), shape)
    return np.asarray(table[places])


@functools.cache
def weighted() -> Compiled:
    nodes = {
        "rows": Node("MatMul", ("x", weights(DEPTH, WIDTH)), FLOAT32),
        "column": Node("MatMul", ("x", weights(DEPTH)), FLOAT32),
        "stack": Node("MatMul", ("x", weights(2, DEPTH, 5)), FLOAT32),
    }
    return Compiled(nodes, {"x": FLOAT32})


@examples(24)
def test_matmul_with_weights(draw: Draw) -> None:
    batch = draw.one_of([(), (3,), (5, 2), (2, 3, 1), (0,)])
    rows = draw.one_of(ROWS)
    # the stack has two matrices
    batch = (*batch[:-1], 2) if batch and batch[-1] != 1 else batch
    x = draw.array(FLOAT32, (*batch, rows, DEPTH), values(draw))
    for name, result in weighted().run(x=x).items():
        check(result, x, weighted().nodes[name].inputs[1])  # type: ignore[arg-type]


@functools.cache
def gemms() -> Compiled:
    nodes = {
        "plain": Node("Gemm", ("a", "b"), FLOAT32),
        "sum": Node("Gemm", ("a", "b", "c"), FLOAT32, {"alpha": 0.5, "beta": -2.0}),
        "left": Node("Gemm", ("at", "b", "c"), FLOAT32, {"transA": 1}),
        "right": Node("Gemm", ("a", "bt", "c"), FLOAT32, {"transB": 1, "beta": 0.5}),
        "both": Node("Gemm", ("at", "bt"), FLOAT32, {"transA": 1, "transB": 1}),
    }
    return Compiled(nodes, dict.fromkeys(("a", "b", "c", "at", "bt"), FLOAT32))


@examples(30)
def test_gemm(draw: Draw) -> None:
    rows, inner, columns = map(draw.one_of, (ROWS, INNER, COLUMNS))
    a = draw.array(FLOAT32, (rows, inner), values(draw))
    b = draw.array(FLOAT32, (inner, columns), values(draw))
    c = draw.array(FLOAT32, draw.one_of(shapes_within((rows, columns))), values(draw))
    found = gemms().run(a=a, b=b, c=c, at=a.T, bt=b.T)
    check(found["plain"], a, b)
    check(found["sum"], a, b, c, 0.5, -2.0)
    check(found["left"], a, b, c)
    check(found["right"], a, b, c, 1, 0.5)
    check(found["both"], a, b)
