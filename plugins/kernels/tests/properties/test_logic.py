"""Comparisons, truth values, bits and choice against Python's operators."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from .comparison import assert_same, objects, result_of, wide, wrapped
from .strategies import Draw, examples, is_float, is_integer


@pytest.mark.parametrize(
    ("op_type", "function"),
    [
        ("Equal", operator.eq),
        ("Greater", operator.gt),
        ("GreaterOrEqual", operator.ge),
        ("Less", operator.lt),
        ("LessOrEqual", operator.le),
    ],
)
@examples(40)
def test_comparisons(op_type: str, function: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    a, b = (draw.array(dtype, shape) for shape in draw.shapes())
    one, two = ((objects if is_integer(dtype) else as_is)(x) for x in (a, b))
    with np.errstate(invalid="ignore"):
        expected = np.vectorize(function, otypes=[bool])(one, two)
    assert_same(result_of(op_type, a, b), expected)


def as_is(x: Any) -> Any:
    return wide(x) if is_float(x.dtype) else x


@pytest.mark.parametrize(
    ("op_type", "function"),
    [("And", operator.and_), ("Or", operator.or_), ("Xor", operator.xor)],
)
@examples(20)
def test_truth(op_type: str, function: Any, draw: Draw) -> None:
    a, b = (draw.array(bool, shape) for shape in draw.shapes())
    expected = np.vectorize(function, otypes=[bool])(a, b)
    assert_same(result_of(op_type, a, b), expected)


@examples(20)
def test_not(draw: Draw) -> None:
    x = draw.array(bool, draw.shape())
    assert_same(result_of("Not", x), x == np.False_)


@pytest.mark.parametrize(
    ("op_type", "function"),
    [
        ("BitwiseAnd", operator.and_),
        ("BitwiseOr", operator.or_),
        ("BitwiseXor", operator.xor),
    ],
)
@examples(25)
def test_bits(op_type: str, function: Any, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    a, b = (draw.array(dtype, shape) for shape in draw.shapes())
    expected = wrapped(function(objects(a), objects(b)), dtype)
    assert_same(result_of(op_type, a, b), expected)


@examples(25)
def test_bitwise_not(draw: Draw) -> None:
    dtype = draw.dtype("BitwiseNot")
    x = draw.array(dtype, draw.shape())
    assert_same(result_of("BitwiseNot", x), wrapped(-1 - objects(x), dtype))


@examples(40)
def test_bit_shift(draw: Draw) -> None:
    """By less than all bits: C, whose operator it is, defines no more."""
    dtype = draw.dtype("BitShift")
    shape_of_x, shape_of_y = draw.shapes()
    x = draw.array(dtype, shape_of_x)
    y = draw.integers(0, dtype.itemsize * 8 - 1, shape_of_y, dtype)
    direction = draw.one_of(["LEFT", "RIGHT"])
    shift = operator.lshift if direction == "LEFT" else operator.rshift
    expected = np.vectorize(shift, otypes=[object])(objects(x), objects(y))
    assert_same(
        result_of("BitShift", x, y, direction=direction), wrapped(expected, dtype)
    )


@examples(40)
def test_is_inf(draw: Draw) -> None:
    x = draw.array(draw.dtype("IsInf", "T1"), draw.shape())
    wanted = {
        name: draw.integer(0, 1)
        for name in ("detect_negative", "detect_positive")
        if draw.flag()
    }
    expected = np.zeros(x.shape, bool)
    if wanted.get("detect_negative", 1):
        expected |= wide(x) == -np.inf
    if wanted.get("detect_positive", 1):
        expected |= wide(x) == np.inf
    assert_same(result_of("IsInf", x, **wanted), expected)


@examples(30)
def test_is_nan(draw: Draw) -> None:
    x = draw.array(draw.dtype("IsNaN", "T1"), draw.shape())
    assert_same(result_of("IsNaN", x), np.asarray(wide(x) != wide(x)))


@examples(50)
def test_where(draw: Draw) -> None:
    dtype = draw.dtype("Where")
    one, two, three = draw.shapes(3)
    condition = draw.array(bool, one)
    x, y = draw.array(dtype, two), draw.array(dtype, three)
    shape = np.broadcast_shapes(one, two, three)
    condition_, x_, y_ = (np.broadcast_to(a, shape) for a in (condition, x, y))
    expected = np.empty(shape, dtype)
    for place in np.ndindex(shape):
        expected[place] = x_[place] if condition_[place] else y_[place]
    assert_same(result_of("Where", condition, x, y), expected)
