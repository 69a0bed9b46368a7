"""Quantization against exact fractions, products against Python's integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import DataType

from .node_oracles import reference, run

LIMITS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}
BYTES = [np.int8, np.uint8]


def dtype_of(name: str) -> Any:
    return DataType(name).numpy


def random_bytes(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


@pytest.mark.parametrize("name", LIMITS)
def test_quantized_integers(name: str) -> None:
    """Rounded to even before the zero point is added, then saturated."""
    lowest, largest = LIMITS[name]
    x = np.array([-1e30, -3, -1.25, -0.75, -0.25, 0, 0.25, 0.75, 1, 1e30], np.float32)
    zero_point = np.array(1, dtype=dtype_of(name))
    result = run("QuantizeLinear", x, np.array(0.5, np.float32), zero_point, version=25)
    assert result.dtype == dtype_of(name)
    exact = [round(Fraction(v) * 2) + 1 for v in x.tolist()]
    expected = [min(max(v, lowest), largest) for v in exact]
    assert result.astype(int).tolist() == expected


@pytest.mark.parametrize("zero_point", [None, np.array(0, dtype=np.uint8)])
def test_uint8_is_the_default(zero_point: Any) -> None:
    scale = np.array(2, dtype=np.float32)
    result = run("QuantizeLinear", np.array(9, np.float32), scale, zero_point)
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.item()) == (np.uint8, 4)
    x = np.array([-7, 600], dtype=np.int32)
    assert run("QuantizeLinear", x, scale, version=10).tolist() == [0, 255]


@pytest.mark.parametrize("name", ["int16", "int2", "float8_e5m2", "float4_e2m1fn"])
def test_output_dtype(name: str) -> None:
    x, scale = np.array([1.0], dtype=np.float32), np.array(1, dtype=np.float32)
    number = DataType(name).onnx
    result = run("QuantizeLinear", x, scale, output_dtype=number, version=25)
    assert result.dtype == dtype_of(name)
    assert float(result[0]) == 1


@pytest.mark.parametrize(
    ("name", "largest"),
    [("float8_e4m3fn", 448), ("float8_e5m2fnuz", 57344), ("float4_e2m1fn", 6)],
)
def test_quantized_floats(name: str, largest: float) -> None:
    x = np.array([-1e6, 1, 3, 1e6], dtype=np.float32)
    arguments = (np.array(2, dtype=np.float32), np.zeros((), dtype=dtype_of(name)))
    result = run("QuantizeLinear", x, *arguments, version=23)
    assert result.dtype == dtype_of(name)
    assert result.astype(float).tolist() == [-largest, 0.5, 1.5, largest]
    if name.startswith("float8"):
        result = run("QuantizeLinear", x, *arguments, saturate=0, version=23)
        np.testing.assert_array_equal(
            result.astype(float), [math.nan, 0.5, 1.5, math.nan]
        )


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_the_scale_determines_the_precision(kind: Any) -> None:
    x = np.array([1.0], dtype=np.float32)
    scale = np.array(0.00033, dtype=kind)
    zero_point = np.zeros((), dtype=np.int16)
    quotient = np.float64(1) / np.float64(scale)
    narrow = run("QuantizeLinear", x, scale, zero_point, version=23)
    assert narrow.item() == round(float(quotient.astype(kind)))
    wide = run("QuantizeLinear", x, scale, zero_point, precision=1, version=23)
    assert wide.item() == round(float(quotient))
    assert narrow.item() != wide.item()


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((), {}),
        ((1,), {}),
        ((4,), {"axis": 0}),
        ((6,), {}),
        ((6,), {"axis": -2}),
        ((4, 6, 2), {"axis": 2, "block_size": 4}),
        ((4, 6, 3), {"axis": -1, "block_size": 3}),
        ((4, 2, 8), {"axis": 1, "block_size": 3}),
    ],
)
@pytest.mark.parametrize("name", ["uint8", "int4", "int16"])
def test_granularity(shape: Any, attributes: Any, name: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 3, (4, 6, 8)).astype(np.float32)
    scale = generator.uniform(0.1, 1, shape).astype(np.float32)
    zero_point = generator.integers(0, 4, shape).astype(np.int8).astype(dtype_of(name))
    arguments = (scale, zero_point)
    outputs = (DataType(name).onnx,)
    (expected,) = reference(
        "QuantizeLinear", x, *arguments, outputs=outputs, version=25, **attributes
    )
    quantized = run("QuantizeLinear", x, *arguments, version=25, **attributes)
    assert quantized.dtype == zero_point.dtype
    np.testing.assert_array_equal(quantized.astype(int), expected.astype(int))
    (expected,) = reference(
        "DequantizeLinear", quantized, *arguments, version=25, **attributes
    )
    result = run("DequantizeLinear", quantized, *arguments, version=25, **attributes)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_an_axis_must_exist() -> None:
    x, scale = np.zeros((2, 2), np.float32), np.ones(2, np.float32)
    with pytest.raises(ValueError, match="axis is 2"):
        run("QuantizeLinear", x, scale, axis=2)
    vector = run("QuantizeLinear", x[0], scale, np.zeros(2, np.uint8))
    assert vector.tolist() == [0, 0]


@pytest.mark.parametrize(
    "name", [*LIMITS, "int32", "float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn"]
)
@pytest.mark.parametrize("scale_dtype", ["float32", "float16", "bfloat16"])
def test_dequantized(name: str, scale_dtype: str) -> None:
    x = np.array([0, 1]).astype(dtype_of(name))
    scale = np.array(0.25, dtype=dtype_of(scale_dtype))
    result = run("DequantizeLinear", x, scale, version=25)
    assert result.dtype == scale.dtype
    assert result.astype(float).tolist() == [0, 0.25]
    half = run("DequantizeLinear", x, scale, output_dtype=10, version=25)
    assert half.dtype == np.float16
    if name not in ("int32", "float4_e2m1fn"):
        one = np.ones((), dtype=x.dtype)
        shifted = run("DequantizeLinear", x, scale, one, version=25)
        assert shifted.astype(float).tolist() == [-0.25, 0]


def test_dequantizing_leaves_its_input_alone() -> None:
    x = np.array([1, 2], dtype=np.uint8)
    run("DequantizeLinear", x, np.array(3, np.float32), np.array(1, np.uint8))
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "scale", "zero_point"),
    [
        ([0, 2, -3, -2.5, 1.34, 0.5], 5 / 255, 153),
        ([1, 2.1, 5.1], 5.1 / 255, 0),
        ([-5.1, -1], 5.1 / 255, 255),
        ([0, 0], 1, 0),
    ],
)
def test_dynamic_quantization(values: Any, scale: float, zero_point: int) -> None:
    x = np.array(values, dtype=np.float32)
    y, y_scale, y_zero = run("DynamicQuantizeLinear", x)
    assert (y_scale.dtype, y_scale.shape) == (np.float32, ())
    assert (y_zero.dtype, y_zero.shape, y.dtype) == (np.uint8, (), np.uint8)
    assert y_scale.item() == pytest.approx(scale)
    assert y_zero.item() == zero_point
    back = (y.astype(np.float64) - zero_point) * scale
    np.testing.assert_allclose(back, x, atol=scale * 0.501)


def matrix_product(a: Any, b: Any) -> Any:
    return np.array(
        [
            [sum(x * y for x, y in zip(row, column, strict=True)) for column in b.T]
            for row in a
        ],
        dtype=object,
    )


@pytest.mark.parametrize("a_dtype", BYTES)
@pytest.mark.parametrize("b_dtype", BYTES)
@pytest.mark.parametrize("depth", [3, 300, 2000])
def test_integer_product_is_exact(a_dtype: Any, b_dtype: Any, depth: int) -> None:
    a, b = random_bytes((3, depth), a_dtype, 1), random_bytes((depth, 4), b_dtype, 2)
    wide_a, wide_b = a.astype(object), b.astype(object)
    plain = run("MatMulInteger", a, b)
    assert plain.dtype == np.int32
    np.testing.assert_array_equal(plain, matrix_product(wide_a, wide_b))
    rows, columns = random_bytes((3,), a_dtype, 3), random_bytes((4,), b_dtype, 4)
    result = run("MatMulInteger", a, b, rows, columns)
    expected = matrix_product(wide_a - rows.astype(object)[:, None], wide_b - columns)
    np.testing.assert_array_equal(result, expected)
    scalars = run("MatMulInteger", a, b, rows[:1], columns[0].reshape(()))
    expected = matrix_product(wide_a - int(rows[0]), wide_b - int(columns[0]))
    np.testing.assert_array_equal(scalars, expected)


def test_extremes_of_an_integer_product_are_exact() -> None:
    a, b = np.full((1, 301), 255, np.uint8), np.full((301, 1), 255, np.uint8)
    assert run("MatMulInteger", a, b).item() == 301 * 255 * 255


def test_accumulation_wraps_in_32_bits() -> None:
    depth = 40_000
    a, b = np.full((1, depth), 255, np.uint8), np.full((depth, 1), 255, np.uint8)
    assert run("MatMulInteger", a, b).item() == depth * 255 * 255 - 2**32


def test_integer_product_of_batches() -> None:
    a, b = random_bytes((2, 3, 5), np.int8, 1), random_bytes((5, 4), np.uint8, 2)
    zeros = random_bytes((2, 3, 1), np.int8, 3)
    result = run("MatMulInteger", a, b, zeros)
    for index in range(2):
        expected = matrix_product(
            a[index].astype(object) - zeros[index].astype(object), b.astype(object)
        )
        np.testing.assert_array_equal(result[index], expected)


@pytest.mark.parametrize("scale_dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_product(dtype: Any, scale_dtype: str) -> None:
    a, b = random_bytes((3, 7), dtype, 1), random_bytes((7, 4), dtype, 2)
    a_scale, b_scale, y_scale = (
        np.array(value, dtype=dtype_of(scale_dtype)) for value in (0.25, 0.5, 16)
    )
    zeros = [np.array(value, dtype=dtype) for value in (3, 5, 7)]
    result = run(
        "QLinearMatMul",
        *(a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2]),
        version=21,
    )
    assert result.dtype == dtype
    exact = matrix_product(a.astype(object) - 3, b.astype(object) - 5)
    info = np.iinfo(dtype)
    expected = [
        [
            min(max(round(Fraction(value, 128)) + 7, int(info.min)), int(info.max))
            for value in row
        ]
        for row in exact.tolist()
    ]
    assert result.tolist() == expected


def test_quantized_product_of_rows_and_columns() -> None:
    a, b = np.array([[2], [4]], dtype=np.int8), np.array([[8, 16]], dtype=np.int8)
    a_scale, b_scale = (np.array(v, dtype=np.float32) for v in ([1, 0.5], [0.25, 1]))
    zeros = np.zeros(2, dtype=np.int8)
    one, zero = np.array(1, dtype=np.float32), np.array(1, dtype=np.int8)
    result = run(
        "QLinearMatMul", a, a_scale, zeros, b, b_scale, zeros, one, zero, version=21
    )
    assert result.tolist() == [[5, 33], [5, 33]]


def test_quantized_product_of_float8() -> None:
    dtype = ml_dtypes.float8_e4m3fn
    a, b = (
        np.array([[1.5, 2]], dtype=dtype),
        np.array([[2, 100], [1, 400]], dtype=dtype),
    )
    one, zero = np.array(1, dtype=np.float32), np.zeros((), dtype=dtype)
    result = run("QLinearMatMul", a, one, zero, b, one, zero, one, zero, version=21)
    assert result.dtype == dtype
    # 400 is no float8_e4m3fn: it is stored as 384; 150 + 768 saturates
    assert result.astype(float).tolist() == [[5, 448]]


@pytest.mark.parametrize("x_dtype", BYTES)
@pytest.mark.parametrize("w_dtype", BYTES)
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": (2, 1), "pads": (1, 0, 2, 1)},
        {"dilations": (2, 3)},
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID", "kernel_shape": (3, 2)},
    ],
)
def test_convolutions(x_dtype: Any, w_dtype: Any, group: int, attributes: Any) -> None:
    x = random_bytes((2, 4, 9, 8), x_dtype, 1)
    w = random_bytes((8, 4 // group, 3, 2), w_dtype, 2)
    x_zero, w_zero = np.array(7, dtype=x_dtype), random_bytes((8,), w_dtype, 3)
    # a convolution of float64 is exact here
    (exact,) = reference(
        "Conv",
        x.astype(np.float64) - 7,
        w.astype(np.float64) - w_zero.astype(np.float64).reshape(-1, 1, 1, 1),
        outputs=(DataType.FLOAT64.onnx,),
        group=group,
        version=22,
        **attributes,
    )
    sums = run("ConvInteger", x, w, x_zero, w_zero, group=group, **attributes)
    assert sums.dtype == np.int32
    np.testing.assert_array_equal(sums, exact)

    bias = np.arange(-4, 4, dtype=np.int32) * 1000
    w_scale = np.array([0.5, 0.25] * 4, dtype=np.float32)
    result = run(
        "QLinearConv",
        *(x, np.array(0.5, np.float32), x_zero),
        *(w, w_scale, w_zero),
        *(np.array(128, np.float32), np.array(5, dtype=x_dtype), bias),
        group=group,
        **attributes,
    )
    assert result.dtype == x_dtype
    biased = exact + bias.reshape(-1, 1, 1)
    rounded = np.rint(biased * (0.5 * w_scale.reshape(-1, 1, 1) / 128)) + 5
    info = np.iinfo(x_dtype)
    np.testing.assert_array_equal(result, np.clip(rounded, info.min, info.max))


def test_convolution_without_zero_points_in_one_dimension() -> None:
    x = np.array([[[1, 2, 3, 4]]], dtype=np.uint8)
    w = np.array([[[1, -1]]], dtype=np.int8)
    assert run("ConvInteger", x, w).tolist() == [[[-1, -1, -1]]]


@pytest.mark.parametrize(
    ("group", "channels", "filters"), [(1, 0, 4), (2, 0, 4), (1, 3, 0)]
)
def test_convolutions_of_nothing_are_zeros(
    group: int, channels: int, filters: int
) -> None:
    x = np.zeros((2, channels, 5, 4), np.uint8)
    w = np.zeros((filters, channels // group, 3, 3), np.int8)
    result = run("ConvInteger", x, w, np.uint8(3), group=group)
    np.testing.assert_array_equal(result, np.zeros((2, filters, 3, 2), np.int32))


def test_a_zero_point_is_of_the_type_of_its_codes() -> None:
    x, w, scale = np.ones((3, 4), np.uint8), np.ones((4, 2), np.int8), np.float32(1)
    images, filters = np.ones((1, 2, 3, 3), np.uint8), np.ones((1, 2, 3, 3), np.int8)
    for operator, arguments in (
        ("MatMulInteger", (x, w, np.int8(1))),
        ("MatMulInteger", (x, w, None, np.uint8(1))),
        ("ConvInteger", (images, filters, np.int8(1))),
        ("ConvInteger", (images, filters, None, np.uint8(1))),
        ("DequantizeLinear", (x, scale, np.int8(1))),
    ):
        with pytest.raises(ValueError, match="the zero point is"):
            run(operator, *arguments)
