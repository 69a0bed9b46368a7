"""Element-wise operators: examples of the pages, and Python's own functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.operators import Desc
from .examples import assert_documented, assert_rejected, evaluate, f32, i32, u32

RANDOM = np.random.default_rng(1).uniform(-3, 3, (2, 3, 4)).astype(np.float32)
POSITIVE = np.abs(RANDOM) + np.float32(0.25)
WITHIN_1 = RANDOM / np.float32(3.1)

UNARY: list[tuple[str, Any, Callable[[float], float]]] = [
    ("IDENTITY", RANDOM, float),
    ("ABS", RANDOM, abs),
    ("ACOS", WITHIN_1, math.acos),
    ("ASIN", WITHIN_1, math.asin),
    ("ATAN", RANDOM, math.atan),
    ("CEIL", RANDOM, math.ceil),
    ("COS", RANDOM, math.cos),
    ("EXP", RANDOM, math.exp),
    ("FLOOR", RANDOM, math.floor),
    ("LOG", POSITIVE, math.log),
    ("RECIP", POSITIVE, lambda x: 1 / x),
    ("SIN", RANDOM, math.sin),
    ("SQRT", POSITIVE, math.sqrt),
    ("TAN", RANDOM, math.tan),
    ("ACOSH", POSITIVE + np.float32(1), math.acosh),
    ("ASINH", RANDOM, math.asinh),
    ("ATANH", WITHIN_1, math.atanh),
    ("COSH", RANDOM, math.cosh),
    ("ERF", RANDOM, lambda x: 1 - math.erfc(x)),
    ("SINH", RANDOM, math.sinh),
    ("TANH", RANDOM, math.tanh),
]


def each(function: Callable[..., float], *arrays: Any) -> np.ndarray[Any, Any]:
    """A function of Python's floats, in the data type of the first array."""
    found = [
        function(*values)
        for values in zip(*(a.ravel().tolist() for a in arrays), strict=True)
    ]
    return np.array(found).reshape(arrays[0].shape).astype(arrays[0].dtype)


@pytest.mark.parametrize("data_type", [np.float32, np.float16])
@pytest.mark.parametrize(("name", "x", "reference"), UNARY, ids=[u[0] for u in UNARY])
def test_functions_of_one_tensor(
    name: str, x: Any, reference: Callable[[float], float], data_type: Any
) -> None:
    x = x.astype(data_type)
    (found,) = evaluate(
        f"ELEMENT_WISE_{name}", InputTensor=x, OutputTensor=x, ScaleBias=None
    )
    np.testing.assert_array_max_ulp(found, each(reference, x), 1)


def test_scale_and_bias_come_first() -> None:
    scale_bias = Desc("SCALE_BIAS", {"Scale": 2.0, "Bias": -1.0})
    (found,) = evaluate(
        "ELEMENT_WISE_ABS",
        InputTensor=f32([0, 1, -3]),
        OutputTensor=f32([0, 0, 0]),
        ScaleBias=scale_bias,
    )
    np.testing.assert_array_equal(found, f32([1, 1, 7]))


ROUNDING = f32([-2.5, -1.5, -0.5, 0.5, 0.49999997, 1.5, 2.5, 2.75, -2.75])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("HALVES_TO_NEAREST_EVEN", [-2, -2, 0, 0, 0, 2, 2, 3, -3]),
        ("TOWARD_ZERO", [-2, -1, 0, 0, 0, 1, 2, 2, -2]),
        ("TOWARD_INFINITY", [-3, -2, -1, 1, 0, 2, 3, 3, -3]),
    ],
)
def test_round(mode: str, expected: list[float]) -> None:
    assert_documented(
        "ELEMENT_WISE_ROUND",
        InputTensor=ROUNDING,
        OutputTensor=f32(expected),
        RoundingMode=mode,
    )


def test_signs() -> None:
    for name, expected in (("SIGN", [0, -1, 1, 0]), ("NEGATE", [0, 2, -3, np.nan])):
        assert_documented(
            f"ELEMENT_WISE_{name}",
            InputTensor=f32([0, -2, 3, np.nan]),
            OutputTensor=f32(expected),
        )


@pytest.mark.parametrize("data_type", [np.float32, np.int32, np.uint8])
def test_clip(data_type: Any) -> None:
    fields: dict[str, Any] = {
        "InputTensor": np.array([0, 3, 9, 200], data_type),
        "OutputTensor": np.array([2, 3, 9, 100], data_type),
        "ScaleBias": None,
    }
    low, high = (
        np.array(each, data_type).tobytes().ljust(8, b"\0") for each in (2, 100)
    )
    assert_documented("ELEMENT_WISE_CLIP", Min=2.0, Max=100.0, **fields)
    name = np.dtype(data_type).name.upper()
    one = fields | {"Min": low, "Max": high}
    assert_documented("ELEMENT_WISE_CLIP1", MinMaxDataType=name, **one)
    wrong = one | {"MinMaxDataType": "INT8"}
    assert_rejected("ELEMENT_WISE_CLIP1", "MinMaxDataType must match", **wrong)
    fields["OutputTensor"] = np.array([2, 3, 9, 200], data_type)
    assert_documented("ELEMENT_WISE_THRESHOLD", Min=2.0, **fields)


def test_clip_has_the_upper_bound_where_the_bounds_cross() -> None:
    assert_documented(
        "ELEMENT_WISE_CLIP",
        InputTensor=f32([0, 9]),
        OutputTensor=f32([1, 1]),
        ScaleBias=None,
        Min=5.0,
        Max=1.0,
    )


def test_powers() -> None:
    for x, y, expected in (
        (f32([-2, -2, 4, 0]), f32([3, 0.5, 0.5, 0]), f32([-8, np.nan, 2, 1])),
        (f32([2, 3, -1]), i32([2, -1, 5]), f32([4, 1 / 3, -1])),
        (i32([3, -3, 2, -1, 1, 5]), i32([4, 3, 31, -3, -2, -1]), None),
        (i32([46341, 7]), f32([1, 2]), i32([46341, 49])),
    ):
        if expected is None:
            expected = i32([81, -27, -(2**31), -1, 1, 0])
        assert_documented(
            "ELEMENT_WISE_POW",
            InputTensor=x,
            ExponentTensor=y,
            OutputTensor=expected,
            ScaleBias=None,
        )
    assert_documented(
        "ELEMENT_WISE_CONSTANT_POW",
        InputTensor=f32([-2, 3]),
        OutputTensor=f32([4, 9]),
        ScaleBias=None,
        Exponent=2.0,
    )


def test_cast() -> None:
    for source, target in (
        (f32([1.9, -1.9, np.nan, 3e9, -np.inf]), i32([1, -1, 0, 2**31 - 1, -(2**31)])),
        (f32([1.9, -1.9, 3e9]), u32([1, 0, 3_000_000_000])),
        (f32([300, -1]), np.array([44, 255 + 1 - 256], np.uint8)),
        (i32([300, -1]), np.array([44, 255], np.uint8)),
        (f32([65520, 2049, 2051]), np.array([np.inf, 2048, 2052], np.float16)),
        (np.array([2**53 + 1]), np.array([2.0**53])),
        (f32([1e19]), np.array([2**63 - 1])),
    ):
        assert_documented("CAST", InputTensor=source, OutputTensor=target)


A, B = RANDOM, np.random.default_rng(2).uniform(0.5, 3, RANDOM.shape).astype("f4")

BINARY: list[tuple[str, Callable[[float, float], float]]] = [
    ("ADD", lambda a, b: a + b),
    ("SUBTRACT", lambda a, b: a - b),
    ("MULTIPLY", lambda a, b: a * b),
    ("DIVIDE", lambda a, b: a / b),
    ("MAX", max),
    ("MIN", min),
    ("MEAN", lambda a, b: (a + b) / 2),
    ("MODULUS_FLOOR", lambda a, b: a % b),
    ("MODULUS_TRUNCATE", math.fmod),
    ("DIFFERENCE_SQUARE", lambda a, b: (a - b) * (a - b)),
    ("ATAN_YX", math.atan2),
]


@pytest.mark.parametrize(("name", "reference"), BINARY, ids=[b[0] for b in BINARY])
def test_functions_of_two_tensors(
    name: str, reference: Callable[[float, float], float]
) -> None:
    (found,) = evaluate(f"ELEMENT_WISE_{name}", ATensor=A, BTensor=B, OutputTensor=A)
    np.testing.assert_array_max_ulp(found, each(reference, A, B), 1)


LEFT, RIGHT = i32([7, -7, 7, -7, 5, 2**31 - 1]), i32([2, 2, -2, -2, 5, 1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ADD", [9, -5, 5, -9, 10, -(2**31)]),
        ("SUBTRACT", [5, -9, 9, -5, 0, 2**31 - 2]),
        ("MULTIPLY", [14, -14, -14, 14, 25, 2**31 - 1]),
        ("DIVIDE", [3, -3, -3, 3, 1, 2**31 - 1]),
        ("MODULUS_FLOOR", [1, 1, -1, -1, 0, 0]),
        ("MODULUS_TRUNCATE", [1, -1, 1, -1, 0, 0]),
        ("MAX", [7, 2, 7, -2, 5, 2**31 - 1]),
        ("MIN", [2, -7, -2, -7, 5, 1]),
        ("MEAN", [4, -2, 2, -4, 5, 2**30]),
    ],
)
def test_integers(name: str, expected: list[int]) -> None:
    assert_documented(
        f"ELEMENT_WISE_{name}",
        ATensor=LEFT,
        BTensor=RIGHT,
        OutputTensor=i32(expected),
    )


def test_a_division_of_integers_by_zero_sets_all_bits() -> None:
    for name in ("DIVIDE", "MODULUS_FLOOR", "MODULUS_TRUNCATE"):
        assert_documented(
            f"ELEMENT_WISE_{name}",
            ATensor=u32([5]),
            BTensor=u32([0]),
            OutputTensor=u32([2**32 - 1]),
        )


def test_a_nan_loses_against_numbers() -> None:
    nan = f32([np.nan])
    for name in ("MAX", "MIN"):
        assert_documented(
            f"ELEMENT_WISE_{name}", ATensor=nan, BTensor=f32([2]), OutputTensor=f32([2])
        )
    assert_documented("ACTIVATION_RELU", InputTensor=nan, OutputTensor=f32([0]))


COMPARISONS = {
    "EQUALS": [0, 1, 0, 0],
    "GREATER_THAN": [1, 0, 0, 0],
    "LESS_THAN": [0, 0, 1, 0],
    "GREATER_THAN_OR_EQUAL": [1, 1, 0, 0],
    "LESS_THAN_OR_EQUAL": [0, 1, 1, 0],
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str) -> None:
    for output in (np.uint8, np.uint32):
        assert_documented(
            f"ELEMENT_WISE_LOGICAL_{name}",
            ATensor=f32([2, 1, 0, np.nan]),
            BTensor=f32([1, 1, 1, 1]),
            OutputTensor=np.array(COMPARISONS[name], output),
        )
    assert_rejected(
        f"ELEMENT_WISE_LOGICAL_{name}",
        "DataType must be the same",
        ATensor=f32([1]),
        BTensor=i32([1]),
        OutputTensor=u32([1]),
    )


def test_logic_takes_what_is_not_zero_for_true() -> None:
    a, b = np.array([0, 0, 2, 2], np.uint8), np.array([0, 4, 0, 4], np.uint8)
    for name, expected in (
        ("AND", [0, 0, 0, 1]),
        ("OR", [0, 1, 1, 1]),
        ("XOR", [0, 1, 1, 0]),
    ):
        output = np.array(expected, np.uint8)
        fields: dict[str, Any] = {"ATensor": a, "BTensor": b, "OutputTensor": output}
        assert_documented(f"ELEMENT_WISE_LOGICAL_{name}", **fields)
    output = np.array([1, 0, 0], np.uint8)
    assert_documented(
        "ELEMENT_WISE_LOGICAL_NOT", InputTensor=a[1:], OutputTensor=output
    )


def test_if() -> None:
    assert_documented(
        "ELEMENT_WISE_IF",
        ConditionTensor=np.array([[1, 0], [1, 1]], np.uint8),
        ATensor=i32([[1, 2], [3, 4]]),
        BTensor=i32([[9, 8], [7, 6]]),
        OutputTensor=i32([[1, 8], [3, 4]]),
    )


def test_bits() -> None:
    assert_documented(
        "ELEMENT_WISE_BIT_COUNT",
        InputTensor=u32([[0, 123], [456, 789]]),
        OutputTensor=u32([[0, 6], [4, 5]]),
    )
    assert_documented(
        "ELEMENT_WISE_BIT_NOT",
        InputTensor=np.array([[0, 128], [42, 255]], np.uint8),
        OutputTensor=np.array([[255, 127], [213, 0]], np.uint8),
    )
    for name, expected in (("AND", 0b1000), ("OR", 0b1110), ("XOR", 0b0110)):
        assert_documented(
            f"ELEMENT_WISE_BIT_{name}",
            ATensor=u32([0b1100]),
            BTensor=u32([0b1010]),
            OutputTensor=u32([expected]),
        )
    sign = f32([1.5]).view(np.uint32) | u32([2**31])
    assert_documented(  # the data type is but a width
        "ELEMENT_WISE_BIT_OR",
        ATensor=f32([1.5]),
        BTensor=f32([-0.0]),
        OutputTensor=sign.view(np.float32),
    )


def test_shifts_are_logical() -> None:
    for name, expected in (("LEFT", [8, 0x80]), ("RIGHT", [0, 0x7F])):
        assert_documented(
            f"ELEMENT_WISE_BIT_SHIFT_{name}",
            ATensor=np.array([1, 0xFF if name == "RIGHT" else 0x40], np.uint8),
            BTensor=np.array([3, 1], np.uint8),
            OutputTensor=np.array(expected, np.uint8),
        )


def test_shifts_look_at_the_low_bits_of_the_distance() -> None:
    for dtype, expected in ((np.uint32, [2**31, 2]), (np.uint8, [0, 2])):
        assert_documented(
            "ELEMENT_WISE_BIT_SHIFT_LEFT",
            ATensor=np.array([1, 1], dtype),
            BTensor=np.array([31, 33], dtype),
            OutputTensor=np.array(expected, dtype),
        )


def test_what_is_not_a_number() -> None:
    x = f32([np.nan, np.inf, -np.inf, 0])
    assert_documented(
        "ELEMENT_WISE_IS_NAN", InputTensor=x, OutputTensor=u32([1, 0, 0, 0])
    )
    for mode, expected in (
        ("EITHER", [0, 1, 1, 0]),
        ("POSITIVE", [0, 1, 0, 0]),
        ("NEGATIVE", [0, 0, 1, 0]),
    ):
        assert_documented(
            "ELEMENT_WISE_IS_INFINITY",
            InputTensor=x,
            OutputTensor=np.array(expected, np.uint8),
            InfinityMode=mode,
        )


def test_sizes_and_types_agree_and_levels_have_dimension_counts() -> None:
    x = f32([1, 2])
    plain: dict[str, Any] = {"InputTensor": x, "ScaleBias": None}
    name = "ELEMENT_WISE_EXP"
    assert_rejected(name, "Sizes must be", **plain, OutputTensor=f32([1]))
    half = np.array([1, 2], np.float16)
    assert_rejected(name, "DataType must be", **plain, OutputTensor=half)
    assert_rejected(name, "has 1 dim", (2, 1), **plain, OutputTensor=x)
    assert_rejected("ELEMENT_WISE_ERF", "is of DML", (1, 0), **plain, OutputTensor=x)
    wide = np.array([1, 2])
    pair = {"ATensor": wide, "BTensor": wide, "OutputTensor": wide}
    assert_rejected("ELEMENT_WISE_DIVIDE", "ATensor is INT64", (5, 2), **pair)
    assert_documented("ELEMENT_WISE_ADD", (5, 2), **pair | {"OutputTensor": wide * 2})


def test_add1_has_a_fused_activation() -> None:
    relu = Desc("ACTIVATION_RELU", {"InputTensor": None, "OutputTensor": None})
    fields: dict[str, Any] = {"ATensor": f32([1, 1]), "BTensor": f32([1, -2])}
    fields["OutputTensor"] = f32([2, 0])
    assert_documented("ELEMENT_WISE_ADD1", **fields, FusedActivation=relu)
