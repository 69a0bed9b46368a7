"""Casts against the tables and rules in the specification of Cast."""

from __future__ import annotations

import itertools
import math
import pickle
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import DataType

from .node_oracles import run

TYPES = [data_type for data_type in DataType if "complex" not in data_type]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


def cast(x: Any, to: str, version: int = 28, **attributes: Any) -> Any:
    return run("Cast", x, to=DataType(to).onnx, version=version, **attributes)


@pytest.mark.parametrize("target", TYPES)
def test_one_stays_one_in_every_type(target: Any) -> None:
    for source, shape in itertools.product(TYPES, [(2,), (), (0, 3)]):
        x = np.full(shape, "1" if source == "string" else 1).astype(source.numpy)
        result = cast(x, target)
        assert isinstance(result, np.ndarray), (source, shape)
        assert (result.dtype, result.shape) == (target.numpy, shape), source
        values = [float(value) for value in result.reshape(-1)]
        assert values == [1.0] * x.size, (source, shape)


@pytest.mark.parametrize("source", TYPES)
def test_a_dtype_that_is_a_copy_is_the_same_type(source: Any) -> None:
    """Such as unpickled arrays have, of which numpy says that it is not builtin."""
    if source is DataType.STRING:
        x = np.array(["1", "0", "1"], dtype=object)
    else:
        largest = {1: 1, 2: 1, 4: 5}.get(source.bits, 240) if source != "bool" else 1
        x = np.array([1, 1, largest]).astype(source.numpy)
    if source == "float64":
        x /= 3
    copies = [x.view(np.dtype(x.dtype, metadata={"of": "a test"}))]
    copies.append(pickle.loads(pickle.dumps(x)))
    for target in TYPES:
        expected = cast(x, target)
        for copy in copies:
            result = cast(copy, target)
            assert result.dtype == target.numpy
            assert repr(result.tolist()) == repr(expected.tolist()), target


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", FLOAT8)
def test_float8_saturates(name: str, source: Any) -> None:
    largest = {"e4m3fn": 448, "e4m3fnuz": 240}.get(name[7:], 57344)
    values = [60000, -60000] if source is not np.float16 else [65000, -65000]
    x = np.array(values, dtype=source)
    assert cast(x, name).astype(float).tolist() == [largest, -largest]
    if source is not np.int64:
        x = np.array([math.inf, -math.inf, math.nan, 1], dtype=source)
        np.testing.assert_array_equal(
            cast(x, name).astype(float), [largest, -largest, math.nan, 1]
        )


@pytest.mark.parametrize("name", FLOAT8)
def test_float8_without_saturation(name: str) -> None:
    infinity = math.inf if name == "float8_e5m2" else math.nan
    x = np.array([math.inf, -math.inf, math.nan, 1e6, -1e6, 1], dtype=np.float32)
    np.testing.assert_array_equal(
        cast(x, name, saturate=0).astype(float),
        [infinity, -infinity, math.nan, infinity, -infinity, 1],
    )


def test_float8_rounds_before_it_compares_with_the_largest() -> None:
    # halfway to the number after 448, which e4m3fn lacks, and beyond
    x = np.array([464, 465], dtype=np.float32)
    result = cast(x, "float8_e4m3fn", saturate=0).astype(float)
    np.testing.assert_array_equal(result, [448, math.nan])


@pytest.mark.parametrize("name", FLOAT8)
def test_negative_zero_of_float8(name: str) -> None:
    result = cast(np.array([-0.0], dtype=np.float32), name).astype(float)
    assert math.copysign(1, result[0]) == (1 if name.endswith("fnuz") else -1)


@pytest.mark.parametrize("name", [*FLOAT8, "bfloat16", "float4_e2m1fn"])
def test_float64_is_rounded_once(name: str) -> None:
    """To the nearest, ties to even, judged by exact fractions."""
    dtype = DataType(name).numpy
    codes = np.arange(8 if name.startswith("float4") else 100, dtype=np.uint8)
    if name == "bfloat16":
        grid = (np.arange(0x3F80, 0x3FC0, dtype=np.uint16)).view(dtype)
    else:
        grid = codes.view(dtype)
    steps = grid.astype(np.float64)
    for low, high in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True):
        middle = (low + high) / 2
        for offset in (-(2.0**-40), 0, 2.0**-40):
            value = middle * (1 + offset)
            below, above = (
                Fraction(value) - Fraction(low),
                Fraction(high) - Fraction(value),
            )
            (result,) = cast(np.array([value]), name).astype(np.float64).tolist()
            if below != above:
                assert result == (low if below < above else high)
            else:
                bits = np.array([result]).astype(dtype).view(f"u{dtype.itemsize}")
                assert bits[0] % 2 == 0


@pytest.mark.parametrize(
    ("value", "up", "down", "nearest"),
    [
        (1, 1, 1, 1),
        (1.25, 2, 1, 1),
        (1.5, 2, 1, 2),
        (1.75, 2, 1, 2),
        (0, 2**-127, 2**-127, 2**-127),
        (2.0**-130, 2**-127, 2**-127, 2**-127),
        (2.0**-127, 2**-127, 2**-127, 2**-127),
        (1.25 * 2.0**-127, 2**-126, 2**-127, 2**-127),
        (1.75 * 2.0**-127, 2**-126, 2**-127, 2**-126),
        (1.5 * 2.0**127, 2.0**127, 2.0**127, 2.0**127),
        (math.inf, 2.0**127, 2.0**127, 2.0**127),
        (math.nan, math.nan, math.nan, math.nan),
    ],
)
@pytest.mark.parametrize("shape", [(1,), ()])
def test_powers_of_two(
    value: float, up: float, down: float, nearest: float, shape: Any
) -> None:
    x = np.full(shape, value, dtype=np.float32)
    for mode, expected in (("up", up), ("down", down), ("nearest", nearest)):
        result = cast(x, "float8_e8m0fnu", round_mode=mode)
        assert result.shape == shape
        np.testing.assert_array_equal(
            result.astype(np.float64), np.full(shape, expected)
        )
    default = cast(x, "float8_e8m0fnu").astype(np.float64)
    np.testing.assert_array_equal(default, np.full(shape, up))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint64])
def test_powers_of_two_from_more_bits_than_float32_has(dtype: Any) -> None:
    x = np.array([2**25 - 1, 2**25 + 1, 3 * 2**24 - 1], dtype)
    low, high = 2**24, 2**25
    for mode, expected in (
        ("up", [high, 2 * high, 2 * high]),
        ("down", [low, high, high]),
        ("nearest", [high, high, high]),
    ):
        result = cast(x, "float8_e8m0fnu", round_mode=mode)
        assert result.astype(np.float64).tolist() == expected


def test_powers_of_two_without_saturation() -> None:
    x = np.array([0, math.inf, math.nan, 3e38, 1e-39, 2.0**127, 2.0**-127], np.float32)
    result = cast(x, "float8_e8m0fnu", saturate=0, round_mode="nearest")
    nan = math.nan
    np.testing.assert_array_equal(
        result.astype(np.float64), [nan, nan, nan, nan, nan, 2.0**127, 2.0**-127]
    )


def test_powers_of_two_know_three_modes() -> None:
    with pytest.raises(ValueError, match="up, down or nearest"):
        cast(np.ones(1, np.float32), "float8_e8m0fnu", round_mode="odd")


@pytest.mark.parametrize("target", ["int2", "uint2", "int4", "uint4", "int8", "uint16"])
@pytest.mark.parametrize("source", [np.int16, np.int32, np.uint64])
def test_integers_keep_their_low_bits(source: Any, target: str) -> None:
    x = np.arange(-300, 300).astype(source)
    data_type = DataType(target)
    values = x.astype(object) % 2**data_type.bits
    if target.startswith("int"):
        half = 2 ** (data_type.bits - 1)
        values = (values + half) % (2 * half) - half
    assert cast(x, target).astype(int).tolist() == values.tolist()


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64"])
def test_floats_are_truncated(source: str, target: str) -> None:
    x = np.array([2.75, -2.75, 0.5, -0.5]).astype(DataType(source).numpy)
    assert cast(x, target).astype(int).tolist() == [2, -2, 0, 0]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int4", "uint4", "int2", "uint2"])
def test_floats_are_rounded_to_less_than_a_byte(source: str, target: str) -> None:
    x = np.array([[0.5, 0.75], [1.25, 0.25]]).astype(DataType(source).numpy)
    assert cast(x, target).astype(int).tolist() == [[0, 1], [1, 0]]
    if target == "int4":
        x = np.array([1.5, 2.5, -2.5, -3.5, -7.75]).astype(DataType(source).numpy)
        assert cast(x, target).astype(int).tolist() == [2, 2, -2, -4, -8]


@pytest.mark.parametrize(
    ("target", "nan", "largest"),
    [("float4_e2m1fn", 0, 6), ("float6_e2m3fn", 7.5, 7.5), ("float6_e3m2fn", 28, 28)],
)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float8_e5m2"])
def test_types_without_nan_have_a_number_instead(
    source: str, target: str, nan: float, largest: float
) -> None:
    x = np.array([math.nan, -math.nan, math.inf, -math.inf, -0.0])
    result = cast(x.astype(DataType(source).numpy), target).astype(float)
    assert result.tolist() == [nan, nan, largest, -largest, 0]
    assert math.copysign(1, result[4]) == -1


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_of_64_bits_are_rounded_once(dtype: Any) -> None:
    """A bit that float64 has no place for decides what would be a tie."""
    tie = (1 << 62) + (1 << 54)
    x = np.array([tie - 1, tie, tie + 1, 3 * (1 << 61) - 1], dtype)
    high = float((1 << 62) + (1 << 55))
    result = cast(x, "bfloat16").astype(float)
    assert result.tolist() == [2.0**62, 2.0**62, high, 3 * 2.0**61]
    powers = cast(x, "float8_e8m0fnu", round_mode="nearest").astype(float)
    assert powers.tolist() == [2.0**62] * 4
    if dtype is np.int64:
        assert cast(-x, "bfloat16").astype(float).tolist() == (-result).tolist()


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float8_e5m2", "float64"])
def test_truth_of_floats(source: str) -> None:
    x = np.array([0, -0.0, 0.25, math.nan]).astype(DataType(source).numpy)
    assert cast(x, "bool").tolist() == [False, False, True, True]


def test_strings_to_numbers() -> None:
    texts = ["+INF", "inf", "-Inf", "NaN", "1e-5", "1E8", "-3.5"]
    x = np.array(texts, dtype=object)
    inf, nan = math.inf, math.nan
    for name in ("float32", "float64"):
        np.testing.assert_array_equal(
            cast(x, name, version=9),
            np.array([inf, inf, -inf, nan, 1e-5, 1e8, -3.5], dtype=name),
        )
    x = np.array([["100.5", "-7"], ["9223372036854775807", "0"]], dtype=object)
    assert cast(x, "int64").tolist() == [[100, -7], [2**63 - 1, 0]]
    assert cast(x, "uint8").tolist() == [[100, 249], [255, 0]]
    x = np.array(["1", "0", "True", "false"], dtype=object)
    assert cast(x, "bool").tolist() == [True, False, True, False]


def test_decimals_are_rounded_once() -> None:
    """Digits beyond those of float64 decide what would be a tie."""
    tie = "1.000000059604644775390625"  # 1 + 2**-24
    x = np.array([f"{tie}0001", tie, "1.0000000596046447753906249"], dtype=object)
    step = 1 + 2.0**-23
    assert cast(x, "float32").tolist() == [step, 1, 1]
    x = np.array(
        [f"-1.00390625{'0' * 20}1", "-1.00390625", "1e999", "-0"], dtype=object
    )
    result = cast(x, "bfloat16").astype(float)
    assert result.tolist() == [-1.0078125, -1, math.inf, 0]
    assert math.copysign(1, result[3]) == -1


def test_numbers_to_strings() -> None:
    x = np.array([[0.1, 314.125], [math.nan, math.inf], [-math.inf, -2.5]])
    for dtype in (np.float32, np.float64):
        result = cast(x.astype(dtype), "string", version=13)
        assert result.dtype == object
        assert result.shape == x.shape
        texts = result.reshape(-1).tolist()
        assert texts == ["0.1", "314.125", "NaN", "INF", "-INF", "-2.5"]
        assert all(type(text) is str for text in texts)
    assert cast(np.array([2**64 - 1], np.uint64), "string").tolist() == [str(2**64 - 1)]
    assert cast(np.array([True, False]), "string").tolist() == ["1", "0"]
    quarter = np.array(0.25, dtype=ml_dtypes.bfloat16)
    assert cast(quarter, "string").item() == "0.25"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("FLOAT", "float32"), ("DOUBLE", "float64"), ("INT32", "int32"), ("BOOL", "bool")],
)
def test_opset_1_names_the_type(name: str, dtype: str) -> None:
    result = run("Cast", np.array([1, 0], dtype=np.int8), to=name, version=1)
    assert result.dtype == dtype
    assert result.tolist() == [1, 0]


def test_cast_like() -> None:
    x = np.array([300.0, 2.5], dtype=np.float32)
    like = np.zeros((), dtype=ml_dtypes.float8_e4m3fnuz)
    result = run("CastLike", x, like, version=19)
    assert result.dtype == like.dtype
    assert result.astype(float).tolist() == [240, 2.5]
    unsaturated = run("CastLike", x, like, version=19, saturate=0).astype(float)
    np.testing.assert_array_equal(unsaturated, [math.nan, 2.5])
    texts = run("CastLike", np.array([7]), np.array([""], dtype=object), version=15)
    assert texts.tolist() == ["7"]


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        ("float32", "int32", 1.0, 0x3F800000),
        ("int64", "float64", 0x3FF0 << 48, 1.0),
        ("uint8", "int8", 255, -1),
        ("bfloat16", "uint16", 1.0, 0x3F80),
        ("float16", "bfloat16", 1.0, 2.0**-7),
        ("int4", "uint4", -1, 15),
        ("float4_e2m1fn", "int4", 6.0, 7),
        ("uint2", "int2", 3, -1),
    ],
)
def test_bit_cast(source: str, target: str, value: Any, expected: Any) -> None:
    for shape in ((), (2, 1)):
        x = np.full(shape, value).astype(DataType(source).numpy)
        result = run("BitCast", x, to=DataType(target).onnx, version=26)
        assert (result.dtype, result.shape) == (DataType(target).numpy, shape)
        assert [float(v) for v in result.reshape(-1)] == [expected] * x.size


def test_bit_cast_needs_equal_widths() -> None:
    for target in ("int8", "string", "int16"):
        with pytest.raises(ValueError, match="bits"):
            run(
                "BitCast", np.zeros(1, np.float32), to=DataType(target).onnx, version=26
            )
