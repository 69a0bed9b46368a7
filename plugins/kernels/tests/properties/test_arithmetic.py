"""Arithmetic against NumPy's widest floats, and Python's integers."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
import pytest

from .comparison import (
    assert_near,
    assert_same,
    objects,
    result_of,
    wide,
    wrapped,
)
from .formulas import (
    ROUNDED,
    ROUNDING,
    TRANSCENDENTAL,
    quotient,
    remainder,
    without_undefined_quotients,
)
from .strategies import Draw, dtypes_of, examples, is_float, is_integer, limits

FUNCTIONS = ROUNDING | {name: TRANSCENDENTAL[name] for name in ("Erf", "Exp", "Log")}


@pytest.mark.parametrize("op_type", FUNCTIONS)
@examples(35)
def test_functions_of_floats(op_type: str, draw: Draw) -> None:
    x = draw.array(draw.dtype(op_type, kind=is_float), draw.shape())
    found = result_of(op_type, x)
    FUNCTIONS[op_type].check(found, x)
    if op_type in ("Abs", "Ceil", "Floor", "Neg", "Round", "Sqrt"):
        # also zeros have signs
        with np.errstate(invalid="ignore"):
            exact = FUNCTIONS[op_type].function(wide(x))
        number = ~np.isnan(exact)
        np.testing.assert_array_equal(
            np.signbit(wide(found)[number]), np.signbit(exact[number])
        )


@pytest.mark.parametrize(
    ("op_type", "function"),
    [
        ("Abs", np.abs),
        ("Neg", np.negative),
        ("Sign", np.sign),
    ],
)
@examples(20)
def test_functions_of_integers(op_type: str, function: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type, kind=is_integer)
    x = draw.array(dtype, draw.shape())
    if dtype.kind == "i":
        # the smallest integer has no opposite
        x = np.maximum(x, limits(dtype)[0] + 1)
    assert_same(result_of(op_type, x), wrapped(function(objects(x)), dtype))


@pytest.mark.parametrize(
    ("op_type", "function"),
    [
        ("Add", operator.add),
        ("Sub", operator.sub),
        ("Mul", operator.mul),
        ("Div", operator.truediv),
    ],
)
@examples(60)
def test_two_operands(op_type: str, function: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    a, b = (draw.array(dtype, shape) for shape in draw.shapes())
    if is_float(dtype):
        with np.errstate(all="ignore"):
            exact = function(wide(a), wide(b))
        assert_near(result_of(op_type, a, b), exact, dtype, ROUNDED)
        return
    if op_type == "Div":
        a, b = without_undefined_quotients(a, b)
        function = quotient
    assert_same(
        result_of(op_type, a, b), wrapped(function(objects(a), objects(b)), dtype)
    )


@examples(70)
def test_mod(draw: Draw) -> None:
    dtype = draw.dtype("Mod")
    a, b = (draw.array(dtype, shape) for shape in draw.shapes())
    if is_float(dtype):
        # of floats ONNX has the C function alone
        with np.errstate(all="ignore"):
            exact = np.fmod(wide(a), wide(b))
        assert_near(result_of("Mod", a, b, fmod=1), exact, dtype, 0)
        return
    a, b = without_undefined_quotients(a, b)
    fmod = draw.flag()
    function = remainder if fmod else operator.mod
    exact = wrapped(function(objects(a), objects(b)), dtype)
    assert_same(result_of("Mod", a, b, fmod=fmod), exact)


@examples(60)
def test_pow_of_floats(draw: Draw) -> None:
    dtype = draw.dtype("Pow", kind=is_float)
    other = draw.one_of([dtype, *dtypes_of("Pow", "T1")])
    shape_of_x, shape_of_y = draw.shapes()
    x = draw.array(dtype, shape_of_x)
    # in floats some integers become others, odd ones even
    y = draw.array(other, shape_of_y, "any" if is_float(other) else "whole")
    with np.errstate(all="ignore"):
        exact = wide(x) ** wide(y)
    assert_near(result_of("Pow", x, y), exact, dtype, 1)


@examples(50)
def test_pow_of_integers(draw: Draw) -> None:
    dtype = draw.dtype("Pow", kind=is_integer)
    other = draw.dtype("Pow", "T1")
    shape_of_x, shape_of_y = draw.shapes()
    x = draw.array(dtype, shape_of_x, "whole")
    y = draw.array(other, shape_of_y, "whole")
    if np.any(x == 0):
        y = np.maximum(y, np.zeros((), other))  # infinity is no integer
    exact = np.vectorize(lambda x, y: math.trunc(x ** int(y)), otypes=[object])
    assert_same(result_of("Pow", x, y), wrapped(exact(objects(x), y), dtype))


@examples(60)
def test_clip(draw: Draw) -> None:
    dtype = draw.dtype("Clip")
    x = draw.array(dtype, draw.shape())
    low, high = (
        draw.array(dtype, (), "finite") if draw.flag() else None for _ in range(2)
    )
    wider = objects if is_integer(dtype) else wide
    exact = wider(x)
    ends = [np.array(end, exact.dtype) for end in extremes(dtype)]
    with np.errstate(all="ignore"):
        exact = np.maximum(exact, ends[0] if low is None else wider(low))
        exact = np.minimum(exact, ends[1] if high is None else wider(high))
    assert_near(result_of("Clip", x, low, high), exact, dtype, 0)


def extremes(dtype: Any) -> tuple[Any, Any]:
    """The smallest and the largest number."""
    if is_integer(dtype):
        return limits(dtype)
    largest = {2: 65504.0, 4: (2 - 2.0**-23) * 2.0**127, 8: (2 - 2.0**-52) * 2.0**1023}
    end = largest[dtype.itemsize]
    if dtype.name == "bfloat16":
        end = (2 - 2.0**-7) * 2.0**127
    return -end, end


@pytest.mark.parametrize(
    ("op_type", "function"), [("Max", np.maximum), ("Min", np.minimum)]
)
@examples(40)
def test_extremes(op_type: str, function: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    inputs = several(draw, dtype)
    with np.errstate(all="ignore"):
        exact = functools.reduce(function, map(wide, inputs))
    assert_near(result_of(op_type, *inputs), exact, dtype, 0)


@pytest.mark.parametrize("op_type", ["Sum", "Mean"])
@examples(40)
def test_totals(op_type: str, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    inputs = several(draw, dtype)
    with np.errstate(all="ignore"):
        exact = functools.reduce(operator.add, map(wide, inputs))
        size = functools.reduce(operator.add, map(np.abs, map(wide, inputs)))
        if op_type == "Mean":
            exact, size = exact / len(inputs), size
    assert_near(result_of(op_type, *inputs), exact, dtype, len(inputs), size)


def several(draw: Draw, dtype: Any) -> list[Any]:
    """One to four arrays that broadcast together."""
    return [draw.array(dtype, shape) for shape in draw.shapes(draw.integer(1, 4))]


@examples(15)
def test_clip_of_many(draw: Draw) -> None:
    """Another function computes it."""
    dtype = draw.dtype("Clip")
    few = draw.array(dtype, (5,))
    low, high = (
        draw.integers(0, 2, (), dtype) if draw.flag() else None for _ in range(2)
    )
    found = result_of("Clip", np.resize(few, (4000, 5)), low, high)
    expected = result_of("Clip", few, low, high)
    assert_same(found, np.resize(expected, found.shape))
