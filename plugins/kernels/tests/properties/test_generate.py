"""Arrays from attributes, shapes and bounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from onnx import helper

from .comparison import assert_near, assert_same, narrow, result_of, wrapped
from .strategies import Draw, examples, is_float


@examples(35)
def test_constant_of_shape(draw: Draw) -> None:
    shape = draw.shape()
    dtype = draw.dtype("ConstantOfShape", "T2")
    value = draw.array(dtype, (1,)) if draw.flag() else None
    given = {} if value is None else {"value": value}
    expected = np.empty(shape, np.float32 if value is None else dtype)
    expected[...] = 0 if value is None else value[0]
    sizes = np.array(shape, np.int64)
    assert_same(result_of("ConstantOfShape", sizes, **given), expected)


@examples(35)
def test_eye_like(draw: Draw) -> None:
    x = draw.array(draw.dtype("EyeLike", "T1"), draw.shape(2, 2))
    dtype = draw.dtype("EyeLike", "T2")
    k = draw.integer(-6, 6)
    given = (
        {"dtype": int(helper.np_dtype_to_tensor_dtype(dtype))} if draw.flag() else {}
    )
    expected = np.zeros(x.shape, dtype if given else x.dtype)
    for row, column in np.ndindex(x.shape):
        if column - row == k:
            expected[row, column] = 1
    assert_same(result_of("EyeLike", x, k=k, **given), expected)


@examples(70)
def test_range(draw: Draw) -> None:
    """Of quarters, which no type has to round."""
    dtype = draw.dtype("Range")
    unit = Fraction(1, 4) if is_float(dtype) else Fraction(1)
    start, limit = (draw.integer(-30, 30) * unit for _ in range(2))
    delta = draw.one_of([1, -1, 2, -3, 7]) * unit
    count = max(math.ceil((limit - start) / delta), 0)
    numbers = [start + i * delta for i in range(count)]
    inputs = [narrow(np.array(float(n)), dtype) for n in (start, limit, delta)]
    found = result_of("Range", *inputs)
    if is_float(dtype):
        exact = np.array([float(n) for n in numbers], np.longdouble)
        assert_near(found, exact, dtype, 0)
    else:
        expected = np.array([int(n) for n in numbers], object)
        assert_same(found, wrapped(expected, dtype))
