"""Quantization, and products of what is quantized, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from .comparison import (
    assert_near,
    assert_same,
    narrow,
    objects,
    result_of,
    wide,
    wrapped,
)
from .formulas import product
from .rounding import quantized, rounded
from .sliding import Sliding
from .strategies import Array, Draw, Dtype, Shape, examples, is_float, is_integer

POWERS: Final = np.dtype(ml_dtypes.float8_e8m0fnu)
SCALES: Final = [1, 0.5, 0.25, 2, 0.75, 1.25, 3, 0.0625]
"""Numbers that all types of scales have; those of powers are the first four."""


class Granularity:
    """A scale and a zero point of an array, of parts of it, or of blocks."""

    def __init__(self, draw: Draw, shape: Shape, scale: Dtype, steps: Dtype) -> None:
        kinds = ["tensor", "axis", "blocks"] if shape and 0 not in shape else ["tensor"]
        kind = draw.one_of(kinds)
        self.attributes: dict[str, Any] = {}
        parameter: Shape = () if draw.flag() else (1,)
        self._shape, self._axis, self._block = shape, 0, 0
        if kind != "tensor":
            axis = draw.axis(len(shape))
            self.attributes["axis"] = axis
            self._axis = axis % len(shape)
            parameter = (shape[axis],)
        if kind == "blocks":
            self._block = self.attributes["block_size"] = draw.integer(1, shape[axis])
            sizes = list(shape)
            sizes[axis] = -(-shape[axis] // self._block)
            parameter = tuple(sizes)
        self._kind = kind
        values = np.array(SCALES[: 4 if scale == POWERS else None])
        self.scale = draw.of(values.astype(scale), parameter)
        self.zero_point = None
        if draw.flag():
            # there is none of a float's, and none of int32
            none = is_float(steps) or steps == np.int32
            low = 0 if none else int(ml_dtypes.iinfo(steps).min)
            high = 0 if none else int(ml_dtypes.iinfo(steps).max)
            some = np.array(sorted({0, low, high, low // 2, high // 2}, key=abs))
            self.zero_point = draw.of(some.astype(np.int64).astype(steps), parameter)

    def of(self, parameter: Array | None) -> list[Any]:
        """The exact *parameter* of each element of the array, in a row; 0 of none."""
        found = []
        for place in np.ndindex(self._shape):
            if parameter is None:
                found.append(Fraction(0))
                continue
            match self._kind:
                case "tensor":
                    number = parameter.reshape(-1)[0]
                case "axis":
                    number = parameter[place[self._axis]]
                case _:
                    block = list(place)
                    block[self._axis] //= self._block
                    number = parameter[tuple(block)]
            found.append(Fraction(float(number)))
        return found


@examples(100)
def test_quantize_linear(draw: Draw) -> None:
    """Of numbers that all types have, for the types of a division may differ."""
    source = draw.dtype("QuantizeLinear", "T1")
    scale = draw.dtype("QuantizeLinear", "T2", is_float)
    dtype = draw.dtype("QuantizeLinear", "T3")
    x = draw.of(
        np.array([*range(-9, 10), 40, 96, -128, 240]).astype(source), draw.shape()
    )
    parts = Granularity(draw, x.shape, scale, dtype)
    given = dict(parts.attributes)
    if parts.zero_point is None:
        given["output_dtype"] = helper.np_dtype_to_tensor_dtype(dtype)
    precision = np.dtype(np.float32) if scale == POWERS else scale
    if draw.flag():
        precision = draw.dtype("QuantizeLinear", "T1", is_float)
        given["precision"] = helper.np_dtype_to_tensor_dtype(precision)
    saturate = draw.integer(0, 1)
    results = [
        quantized(
            rounded(Fraction(float(n)) / s, precision), int(z), dtype, bool(saturate)
        )
        for n, s, z in zip(
            x.reshape(-1).astype(float).tolist(),
            parts.of(parts.scale),
            parts.of(parts.zero_point),
            strict=True,
        )
    ]
    expected = in_type(results, dtype).reshape(x.shape)
    found = result_of(
        "QuantizeLinear", x, parts.scale, parts.zero_point, saturate=saturate, **given
    )
    if is_float(dtype):
        # of zero it is zero, of no particular sign
        assert_near(found, wide(expected), dtype, 0)
    else:
        assert_same(found, expected)


def in_type(results: list[Any], dtype: Dtype) -> Array:
    if is_float(dtype):
        return narrow(np.array(results, np.float64), dtype)
    return wrapped(np.array(results, object), dtype)


@examples(70)
def test_dequantize_linear(draw: Draw) -> None:
    source = draw.dtype("DequantizeLinear", "T1")
    scale = draw.dtype("DequantizeLinear", "T2")
    dtype = draw.dtype("DequantizeLinear", "T3")
    x = draw.array(source, draw.shape())
    parts = Granularity(draw, x.shape, scale, source)
    given = dict(parts.attributes)
    if scale == POWERS or draw.flag():
        given["output_dtype"] = helper.np_dtype_to_tensor_dtype(dtype)
    else:
        dtype = scale
    scales = np.array([float(s) for s in parts.of(parts.scale)]).reshape(x.shape)
    zeros = np.array([float(z) for z in parts.of(parts.zero_point)]).reshape(x.shape)
    exact = (wide(x) - zeros) * scales
    found = result_of("DequantizeLinear", x, parts.scale, parts.zero_point, **given)
    # integers of 32 bits are rounded to float32 first
    assert_near(found, exact, dtype, 2 if source == np.int32 else 1)


@examples(40)
def test_dynamic_quantize_linear(draw: Draw) -> None:
    """The text's own formulas, in float32."""
    x = draw.array(np.float32, draw.shape(empty=False), "ordinary")
    lowest, highest = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = np.float32((highest - lowest) / np.float32(255))
    if not scale:
        return  # the formula divides by it
    zero_point = np.rint(np.clip(-lowest / scale, 0, 255))
    y = np.clip(np.rint(x / scale) + zero_point, 0, 255)
    found = result_of("DynamicQuantizeLinear", x, output_count=3)
    assert_same(found[0], np.asarray(y, np.uint8))
    assert_same(found[1], np.asarray(scale))
    assert_same(found[2], np.asarray(zero_point, np.uint8))


class Factor:
    """One side of a product: numbers, their zero point and scale, of rows or of all."""

    def __init__(self, draw: Draw, dtype: Dtype, shape: Shape, *, rows: bool) -> None:
        self.x = draw.array(dtype, shape, "whole" if is_float(dtype) else "any")
        size = shape[-2] if rows else shape[-1]
        each = draw.flag() and size > 0
        parameter: Shape = (size,) if each else ()
        zeros = (
            [0]
            if is_float(dtype)
            else [0, 1, 100, *([] if dtype.kind == "u" else [-7])]
        )
        self.zero_point = draw.of(np.array(zeros).astype(dtype), parameter)
        self.scale = draw.of(np.array([1, 0.5, 0.25, 2], np.float32), parameter)
        self._rows = rows and each

    def centered(self) -> Array:
        zero = self._along(self.zero_point)
        if is_float(self.x.dtype):
            return np.asarray(self.x.astype(int).astype(object))
        return np.asarray(objects(self.x) - objects(zero))

    def scales(self) -> Array:
        return self._along(self.scale).astype(float)

    def _along(self, parameter: Array) -> Array:
        return parameter.reshape(-1, 1) if self._rows else parameter


def factors(draw: Draw, op_type: str, kind: Any = is_integer) -> tuple[Factor, Factor]:
    rows, inner, columns = (draw.integer(1, 5) for _ in range(3))
    batch = draw.shape(0, 1)
    one, two = (draw.dtype(op_type, f"T{n}", kind) for n in (1, 2))
    a = Factor(draw, one, (*batch, rows, inner), rows=True)
    b = Factor(draw, two, (*(batch if draw.flag() else ()), inner, columns), rows=False)
    return a, b


@examples(60)
def test_matmul_integer(draw: Draw) -> None:
    a, b = factors(draw, "MatMulInteger")
    zero_points: list[Any] = [a.zero_point, b.zero_point][: draw.integer(0, 2)]
    if len(zero_points) < 2:
        b.zero_point = np.zeros((), b.x.dtype)
    if not zero_points:
        a.zero_point = np.zeros((), a.x.dtype)
        a._rows = False
    expected = wrapped(product(a.centered(), b.centered()), np.int32)
    assert_same(result_of("MatMulInteger", a.x, b.x, *zero_points), expected)


@pytest.mark.parametrize("kind", [is_integer, is_float])
@examples(50)
def test_qlinear_matmul(kind: Any, draw: Draw) -> None:
    a, b = factors(draw, "QLinearMatMul", kind)
    dtype = draw.dtype("QLinearMatMul", "T3", kind)
    zeros = [0] if is_float(dtype) else [0, 1, 99]
    zero_point = draw.of(np.array(zeros).astype(dtype), ())
    scale = draw.of(np.array([1, 4, 64, 1024], np.float32), ())
    sums = product(a.centered(), b.centered())
    # powers of two: products with them are exact
    scaled = sums * (a.scales() * b.scales() / float(scale))
    zero = int(zero_point.astype(int))
    results = [quantized(Fraction(n), zero, dtype) for n in scaled.reshape(-1).tolist()]
    expected = in_type(results, dtype).reshape(sums.shape)
    found = result_of(
        "QLinearMatMul",
        a.x, a.scale, a.zero_point,
        b.x, b.scale, b.zero_point,
        scale, zero_point,
    )  # fmt: skip
    if is_float(dtype):
        assert_near(found, wide(expected), dtype, 0)
    else:
        assert_same(found, expected)


@examples(40)
def test_convolutions(draw: Draw) -> None:
    """ConvInteger, and with scales QLinearConv."""
    place = Sliding(draw, most=5)
    group = draw.integer(1, 2)
    depth, filters = draw.integer(1, 2), group * draw.integer(1, 2)
    one, two = (draw.dtype("QLinearConv", f"T{n}") for n in (1, 2))
    dtype = draw.dtype("QLinearConv", "T3")
    x = draw.array(one, (draw.integer(0, 2), group * depth, *place.spatial))
    w = draw.array(two, (filters, depth, *place.kernel))
    parameter = (filters,) if draw.flag() else ()
    zeros = np.array([0, 1, 100])
    x_zero = draw.of(zeros.astype(one), ())
    w_zero = draw.of(zeros.astype(two), parameter)
    channel = (-1, *(1,) * (w.ndim - 1))
    centered = objects(w) - objects(w_zero).reshape(channel)
    sums = place.convolved(objects(x) - int(x_zero), centered, group)
    given = {"group": group, **place.attributes}
    assert_same(
        result_of("ConvInteger", x, w, x_zero, w_zero, **given), wrapped(sums, np.int32)
    )
    powers = np.array([1, 0.5, 2, 0.25], np.float32)
    x_scale, w_scale = draw.of(powers, ()), draw.of(powers, parameter)
    y_scale, y_zero = draw.of(powers * 256, ()), draw.of(zeros.astype(dtype), ())
    bias = None
    if draw.flag():
        bias = draw.array(np.int32, (filters,), "whole") * np.int32(1000)
        sums = sums + objects(bias).reshape(-1, *(1,) * len(place.count))
    scales = w_scale.astype(float).reshape(-1, *(1,) * len(place.count))
    steps = sums * (float(x_scale) * scales / float(y_scale))
    results = [
        quantized(Fraction(n), int(y_zero), dtype) for n in steps.reshape(-1).tolist()
    ]
    found = result_of(
        "QLinearConv",
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias, **given,
    )  # fmt: skip
    assert_same(found, in_type(results, dtype).reshape(sums.shape))
