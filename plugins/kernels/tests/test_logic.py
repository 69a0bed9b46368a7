"""Comparisons, truth values and bits against Python's operators."""

from __future__ import annotations

import math
import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .node_oracles import run

INTEGERS = [
    np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
]
NUMBERS = [*INTEGERS, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def elementwise(function: Any, *arrays: Any) -> list[Any]:
    flat = [array.reshape(-1).tolist() for array in np.broadcast_arrays(*arrays)]
    return [function(*values) for values in zip(*flat, strict=True)]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shapes", [((3, 4), (4,)), ((), ()), ((0,), (1,))])
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
def test_comparisons(op_type: str, function: Any, shapes: Any, dtype: Any) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.integers(0, 3, shape).astype(dtype) for shape in shapes)
    result = run(op_type, a, b)
    assert isinstance(result, np.ndarray)
    assert result.dtype == bool
    assert result.shape == np.broadcast_shapes(*shapes)
    assert result.reshape(-1).tolist() == elementwise(function, a, b)


def test_nan_equals_nothing() -> None:
    x = np.array([math.nan], dtype=ml_dtypes.bfloat16)
    with np.errstate(invalid="ignore"):
        assert not run("Equal", x, x).any()
        assert not run("LessOrEqual", x, x).any()


def test_equal_strings() -> None:
    a = np.array([["a", "bc"], ["", "d"]], dtype=object)
    result = run("Equal", a, np.array(["a", "d"], dtype=object))
    assert result.dtype == bool
    assert result.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("op_type", "function"),
    [("And", operator.and_), ("Or", operator.or_), ("Xor", operator.xor)],
)
def test_truth_values(op_type: str, function: Any) -> None:
    a = np.array([[False, True]] * 3)
    b = np.array([[False], [True], [True]])
    result = run(op_type, a, b)
    assert result.dtype == bool
    assert result.reshape(-1).tolist() == elementwise(function, a, b)
    column = b[:, 0]
    old = run(op_type, a, column, version=6, broadcast=1, axis=0)
    np.testing.assert_array_equal(old, result)


def test_not() -> None:
    assert run("Not", np.array([True, False])).tolist() == [False, True]
    assert run("Not", np.array(True)).shape == ()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("op_type", "function"),
    [
        ("BitwiseAnd", operator.and_),
        ("BitwiseOr", operator.or_),
        ("BitwiseXor", operator.xor),
    ],
)
def test_bits(op_type: str, function: Any, dtype: Any) -> None:
    a = np.array([[0b1100], [0b1010]], dtype=dtype)
    b = np.array([0b0110, 0b0011, 0], dtype=dtype)
    result = run(op_type, a, b)
    assert result.dtype == dtype
    assert result.reshape(-1).tolist() == elementwise(function, a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_not(dtype: Any) -> None:
    x = np.array([0, 1, 100], dtype=dtype)
    result = run("BitwiseNot", x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.array([-1, -2, -101]).astype(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("shape", [(), (40,)])
def test_shift(direction: str, dtype: Any, shape: Any) -> None:
    """As opset 28 says, whatever the amount."""
    bits = dtype.itemsize * 8
    signed = dtype.kind == "i"
    for value in (0, 1, 5, 100, *((-1, -5, -128) if signed else ())):
        for amount in (0, 1, 7, bits - 1, bits, bits + 1, *((-1,) if signed else ())):
            if not 0 <= amount < bits:
                expected = -1 if direction == "RIGHT" and value < 0 else 0
            elif direction == "RIGHT":
                expected = value >> amount
            else:
                expected = (value << amount) % 2**bits
                if signed and expected >= 2 ** (bits - 1):
                    expected -= 2**bits
            x, y = np.full(shape, value, dtype), np.full(shape, amount, dtype)
            result = run("BitShift", x, y, direction=direction, version=28)
            assert isinstance(result, np.ndarray)
            assert (result.dtype, result.shape) == (dtype, shape)
            assert (result == expected).all(), (value, amount)


def test_shift_has_two_directions() -> None:
    x = np.array([1], dtype=np.uint8)
    with pytest.raises(ValueError, match="LEFT or RIGHT"):
        run("BitShift", x, x, direction="UP")


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fn,
    ],
)
@pytest.mark.parametrize("negative", [0, 1])
@pytest.mark.parametrize("positive", [0, 1])
def test_infinity(dtype: Any, negative: int, positive: int) -> None:
    x = np.array([math.inf, -math.inf, 1, math.nan]).astype(dtype)
    has_infinity = dtype is not ml_dtypes.float8_e4m3fn
    result = run("IsInf", x, detect_negative=negative, detect_positive=positive)
    assert result.dtype == bool
    expected = [positive and has_infinity, negative and has_infinity, False, False]
    assert result.tolist() == [bool(value) for value in expected]
    assert run("IsNaN", x).tolist() == [not has_infinity, not has_infinity, False, True]


@pytest.mark.parametrize("dtype", [*NUMBERS, bool, object, np.complex64])
def test_where(dtype: Any) -> None:
    x = np.array([[1], [0]]).astype(dtype)
    y = np.array(0).astype(dtype)
    result = run("Where", np.array([True, False, True]), x, y)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.array([[1, 0, 1], [0] * 3]).astype(dtype))
