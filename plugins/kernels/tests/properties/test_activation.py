"""Activation functions against their formulas in NumPy's widest floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .comparison import assert_near, assert_same, narrow, result_of, wide
from .formulas import ACTIVATIONS, NUMBERS, sigmoid
from .strategies import Draw, examples, is_integer, shapes_within


@pytest.mark.parametrize("op_type", ACTIVATIONS)
@examples(35)
def test_functions(op_type: str, draw: Draw) -> None:
    formula = ACTIVATIONS[op_type]
    x = draw.array(draw.dtype(op_type), draw.shape())
    given: dict[str, Any] = formula.drawn(draw)
    if op_type == "Celu" and given.get("alpha") == 0:
        del given["alpha"]  # it is divided by
    if op_type == "Gelu" and draw.flag():
        given["approximate"] = draw.one_of(["none", "tanh"])
    formula.check(result_of(op_type, x, **given), x, **given)


@examples(35)
def test_prelu(draw: Draw) -> None:
    dtype = draw.dtype("PRelu")
    shape = draw.shape()
    x = draw.array(dtype, shape, "special")
    # a slope that is no number would turn positive elements into NaN as well
    slope = draw.array(dtype, draw.one_of(shapes_within(shape)), "ordinary")
    with np.errstate(all="ignore"):
        exact = np.where(wide(x) < 0, wide(x) * wide(slope), wide(x))
    assert_near(result_of("PRelu", x, slope), exact, dtype, 1)


@examples(35)
def test_swiglu(draw: Draw) -> None:
    dtype, shape = draw.dtype("SwiGLU"), draw.shape()
    a, b = (draw.array(dtype, shape, "special") for _ in range(2))
    alpha = draw.one_of(NUMBERS)
    with np.errstate(all="ignore"):
        exact = wide(a) * sigmoid(alpha * wide(a)) * wide(b)
        size = np.nan_to_num(np.abs(wide(a) * wide(b)))
    assert_near(result_of("SwiGLU", a, b, alpha=alpha), exact, dtype, 6, size)


@examples(50)
def test_shrink(draw: Draw) -> None:
    dtype = draw.dtype("Shrink")
    x = draw.array(dtype, draw.shape(), "special")
    # a fraction of an integer is rounded in no particular way
    bias = draw.one_of([1.0, 0.0, -2.0] if is_integer(dtype) else [0.5, 0.0, -1.5])
    lambd = draw.one_of([0.5, 0.0, 1.5, 2.0])
    if is_integer(dtype):
        # and one beyond the type is not defined
        x = np.clip(x, 0 if dtype.kind == "u" else -4, 4)
        bias = -abs(bias) if dtype.kind == "u" else bias
    with np.errstate(all="ignore"):
        whole = wide(x)
        exact = np.where(
            whole < -lambd, whole + bias, np.where(whole > lambd, whole - bias, 0)
        )
    assert_near(result_of("Shrink", x, bias=bias, lambd=lambd), exact, dtype, 1)


@examples(35)
def test_dropout_in_inference(draw: Draw) -> None:
    dtype = draw.dtype("Dropout")
    x = draw.array(dtype, draw.shape())
    ratio = narrow(np.array(0.75), dtype) if draw.flag() else None
    training = np.array(False) if draw.flag() else None
    y, mask = result_of("Dropout", x, ratio, training, output_count=2)
    assert_same(y, x)
    assert_same(mask, np.ones(x.shape, bool))


@examples(35)
def test_dropout_in_training(draw: Draw) -> None:
    # eight bits would not hold the quotients
    dtype = draw.dtype("Dropout", kind=lambda dtype: dtype.itemsize > 1)
    x = draw.array(dtype, draw.shape(), "positive")
    ratio = draw.one_of([0.5, 0.0, 0.75])
    y, mask = result_of(
        "Dropout",
        x,
        np.array(ratio, dtype),
        np.array(True),
        seed=draw.integer(0, 9),
        output_count=2,
    )
    assert mask.dtype == bool
    assert mask.shape == x.shape
    assert_near(y, np.where(mask, wide(x) / (1 - ratio), 0), dtype, 1)
    if ratio == 0:
        assert mask.all()
