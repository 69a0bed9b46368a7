"""Matrix products and determinants, in NumPy's widest floats and Python's integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .comparison import assert_near, assert_same, objects, result_of, wide, wrapped
from .formulas import product
from .strategies import (
    Array,
    Draw,
    Dtype,
    Shape,
    examples,
    is_float,
    is_integer,
    shapes_within,
)


def numbers(draw: Draw, dtype: Dtype, shape: Any) -> Array:
    return draw.array(dtype, shape, draw.one_of(["ordinary", "special", "whole"]))


def check(
    found: Array,
    dtype: Dtype,
    function: Any,
    operands: list[Array],
    terms: int,
    **magnitudes: Any,
) -> None:
    """*function* adds up at most so many products; with *magnitudes*, their sizes."""
    if is_integer(dtype):
        exact = np.asarray(function(*map(objects, operands)), object)
        assert_same(found, wrapped(exact, dtype))
        return
    with np.errstate(all="ignore"):
        exact = np.asarray(function(*map(wide, operands)))
        finite = [np.nan_to_num(np.abs(wide(x)), posinf=8) for x in operands]
        magnitude = np.asarray(function(*finite, **magnitudes))
    units = max(terms, 2) if dtype.itemsize > 2 else 1
    assert_near(found, exact, dtype, units, magnitude)


@examples(100)
def test_matmul(draw: Draw) -> None:
    dtype = draw.dtype("MatMul")
    batch = draw.shape(0, 2)
    rows, inner, columns = (draw.integer(0, 5) for _ in range(3))
    one, two = (draw.one_of(shapes_within(batch)) for _ in range(2))
    left, right = (*one, rows, inner), (*two, inner, columns)
    # a vector is one row, or one column
    a = numbers(draw, dtype, draw.one_of([left] * 3 + [(inner,)]))
    b = numbers(draw, dtype, draw.one_of([right] * 3 + [(inner,)]))
    check(result_of("MatMul", a, b), dtype, product, [a, b], inner + 1)


@examples(85)
def test_gemm(draw: Draw) -> None:
    dtype = draw.dtype("Gemm")
    rows, inner, columns = (draw.integer(0, 6) for _ in range(3))
    a_over, b_over = draw.integer(0, 1), draw.integer(0, 1)
    a = numbers(draw, dtype, (inner, rows) if a_over else (rows, inner))
    b = numbers(draw, dtype, (columns, inner) if b_over else (inner, columns))
    operands = [a, b]
    if draw.flag():
        shape = draw.one_of(shapes_within((rows, columns)))
        operands.append(numbers(draw, dtype, shape))
    # a fraction of an integer is rounded in no particular way
    factors = [1.0, 2.0, 0.0, 3.0] if is_integer(dtype) else [1.0, 0.5, -2.0, 0.75]
    alpha, beta = draw.one_of(factors), draw.one_of(factors)

    def function(a: Array, b: Array, c: Any = None, sign: Any = float) -> Array:
        kind = int if a.dtype == object else np.longdouble
        left, right = a.T if a_over else a, b.T if b_over else b
        y = product(left, right) * kind(sign(alpha))
        return y if c is None or beta == 0 else y + c * kind(sign(beta))

    found = result_of(
        "Gemm", *operands, alpha=alpha, beta=beta, transA=a_over, transB=b_over
    )
    check(found, dtype, function, operands, inner + 3, sign=abs)


@examples(130)
def test_einsum(draw: Draw) -> None:
    dtype = draw.dtype("Einsum")
    sizes = {label: draw.integer(0 if label == "k" else 1, 4) for label in "ijkl"}
    dotted = draw.flag()
    hidden = draw.shape(1, 2, empty=False) if dotted else ()
    hidden = tuple(min(size, 3) for size in hidden)
    terms, operands = [], []
    for _ in range(draw.integer(1, 3)):
        labels = "".join(draw.one_of("ijkl") for _ in range(draw.integer(0, 3)))
        inner: Shape = ()
        text = labels
        if dotted and draw.flag():
            inner = draw.one_of(shapes_within(hidden))
            at = draw.integer(0, len(labels))
            text = f"{labels[:at]}...{labels[at:]}"
            shape = [*(sizes[n] for n in labels[:at]), *inner]
            shape += [sizes[n] for n in labels[at:]]
        else:
            shape = [sizes[n] for n in labels]
        terms.append(text)
        operands.append(draw.array(dtype, shape, "whole"))
    equation = ",".join(terms)
    dots = "..." if "..." in equation else ""
    if draw.flag() or dots:
        used = sorted(set("".join(terms)) - {"."})
        kept = [label for label in used if draw.flag()]
        equation += "->" + dots + "".join(kept)
    spaced = equation.replace(",", " , ") if draw.flag() else equation
    found = result_of("Einsum", *operands, equation=spaced)
    if is_integer(dtype):
        # the sums are small enough for it
        exact = np.einsum(equation, *(x.astype(np.int64) for x in operands))
        assert_same(found, wrapped(exact.astype(object), dtype))
        return
    exact = np.asarray(np.einsum(equation, *map(wide, operands)))
    assert_near(found, exact, dtype, 1)


@examples(50)
def test_det(draw: Draw) -> None:
    """By Leibniz's formula."""
    dtype = draw.dtype("Det", kind=is_float)
    size = draw.integer(0, 4)
    x = draw.array(dtype, (*draw.shape(0, 1), size, size), "ordinary")
    exact = np.zeros(x.shape[:-2], np.longdouble)
    magnitude = np.zeros(x.shape[:-2], np.longdouble)
    for order in itertools.permutations(range(size)):
        swaps = sum(a > b for a, b in itertools.combinations(order, 2))
        chosen = [wide(x)[..., row, column] for row, column in enumerate(order)]
        term = math.prod(chosen, start=np.longdouble(1))
        exact = exact + (-1) ** swaps * term
        magnitude = magnitude + np.abs(term)
    # elimination may pass through larger numbers
    assert_near(result_of("Det", x), exact, dtype, 16, magnitude)
