"""Linear quantization as these operators do it: one scale and zero point a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.elementwise import as_array
from onnxplug_kernels.quantize import quantize_steps
from onnxplug_microsoft.kernels import KERNELS


def scalar(xp: Any, parameter: Any, name: str) -> Any:
    """A scale or zero point of a whole tensor, as an array without axes.

    Raises:
        ValueError: it has several elements.
    """
    if xp.size(parameter) != 1:
        raise ValueError(
            f"{name} has shape {parameter.shape}; expected one number for the tensor"
        )
    return xp.reshape(parameter, ())


def dequantized(xp: Any, x: Any, scale: Any, zero_point: Any | None) -> Any:
    """(x - zero point) · scale in float32."""
    y = xp.astype(x, xp.float32)
    if zero_point is not None:
        y = y - xp.astype(scalar(xp, zero_point, "the zero point"), xp.float32)
    return y * scalar(xp, scale, "the scale")


def quantized(xp: Any, y: Any, scale: Any, zero_point: Any | None, dtype: Any) -> Any:
    """*y* in float32, in steps of *scale* rounded to nearest even, and saturated."""
    steps = y / scalar(xp, scale, "the output's scale")
    return _with_zero_point(xp, steps, zero_point, dtype)


def _with_zero_point(xp: Any, steps: Any, zero_point: Any | None, dtype: Any) -> Any:
    if zero_point is not None:
        zero_point = scalar(xp, zero_point, "the output's zero point")
    return quantize_steps(xp, xp.asarray(steps), zero_point, dtype)


def quantized_with_zero_point(
    xp: Any, steps: Any, zero_point: Any | None, dtype: Any
) -> Any:
    """*steps* rounded to nearest even after the zero point is added.

    ONNX's QuantizeLinear rounds before, which differs on ties when the zero point is
    odd; several of these operators round after.
    """
    if zero_point is not None:
        steps = steps + xp.astype(
            scalar(xp, zero_point, "the output's zero point"), steps.dtype
        )
    return quantize_steps(xp, xp.asarray(steps), None, dtype)


def through_table(xp: Any, x: Any, make: Callable[[Any], Any]) -> Any:
    """*make* of the elements of *x*, 8-bit integers, by a table of its 256 results."""
    table = make(xp.bits(xp.arange(256, dtype=xp.uint8), x.dtype))
    return as_array(xp, xp.take(table, xp.bits(x, xp.uint8), axis=0))


@KERNELS.operator("QLinearAdd", since=1)
def qlinear_add(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any | None,
    b: Any,
    b_scale: Any,
    b_zero_point: Any | None,
    c_scale: Any,
    c_zero_point: Any | None = None,
) -> Any:
    """ONNX Runtime's order: the zero points first, then b and then a, each fused.

    A product of 8 and 24 bits is exact in float64, and so in effect is its sum with a
    float32; rounded to float32, that is a fused multiply-add.
    """
    a_ratio = scalar(xp, a_scale, "the scale of a") / scalar(
        xp, c_scale, "the scale of c"
    )
    b_ratio = scalar(xp, b_scale, "the scale of b") / scalar(
        xp, c_scale, "the scale of c"
    )
    fixed = xp.zeros((), dtype=xp.float32)
    if c_zero_point is not None:
        fixed = fixed + xp.astype(
            scalar(xp, c_zero_point, "the zero point of c"), xp.float32
        )
    shift = xp.zeros((), dtype=xp.float32)
    if b_zero_point is not None:
        zero_point = scalar(xp, b_zero_point, "the zero point of b")
        shift = shift + b_ratio * xp.astype(zero_point, xp.float32)
    if a_zero_point is not None:
        zero_point = scalar(xp, a_zero_point, "the zero point of a")
        shift = _multiply_add(xp, zero_point, a_ratio, shift)
    fixed = fixed - shift
    total = _multiply_add(xp, a, a_ratio, _multiply_add(xp, b, b_ratio, fixed))
    return quantize_steps(xp, xp.asarray(total), None, a.dtype)


def _multiply_add(xp: Any, x: Any, factor: Any, summand: Any) -> Any:
    """x · factor + summand in float32, rounded once; *x* holds 8-bit integers."""
    product = xp.astype(x, xp.float64) * xp.astype(factor, xp.float64)
    return xp.astype(product + xp.astype(summand, xp.float64), xp.float32)


@KERNELS.operator("QLinearMul", since=1)
def qlinear_mul(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any | None,
    b: Any,
    b_scale: Any,
    b_zero_point: Any | None,
    c_scale: Any,
    c_zero_point: Any | None = None,
) -> Any:
    """The product of the integers is exact in float32; its scaling rounds."""
    one = xp.ones((), dtype=xp.float32)
    product = dequantized(xp, a, one, a_zero_point) * dequantized(
        xp, b, one, b_zero_point
    )
    factor = scalar(xp, a_scale, "the scale of a") * scalar(
        xp, b_scale, "the scale of b"
    )
    steps = product * (factor / scalar(xp, c_scale, "the scale of c"))
    return quantized_with_zero_point(xp, steps, c_zero_point, a.dtype)


@KERNELS.operator("QLinearLeakyRelu", since=1)
def qlinear_leaky_relu(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y_scale: Any,
    y_zero_point: Any | None = None,
    *,
    alpha: float = 0.009999999776482582,
) -> Any:
    def make(codes: Any) -> Any:
        values = dequantized(xp, codes, x_scale, x_zero_point)
        values = xp.where(values >= 0, values, values * alpha)
        return quantized(xp, values, y_scale, y_zero_point, x.dtype)

    return through_table(xp, x, make)


@KERNELS.operator("QLinearSigmoid", since=1)
def qlinear_sigmoid(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y_scale: Any,
    y_zero_point: Any | None = None,
) -> Any:
    def make(codes: Any) -> Any:
        values = xp.astype(dequantized(xp, codes, x_scale, x_zero_point), xp.float64)
        values = xp.astype(1 / (1 + xp.exp(-values)), xp.float32)
        return quantized(xp, values, y_scale, y_zero_point, x.dtype)

    return through_table(xp, x, make)


@KERNELS.operator("QLinearSoftmax", since=1)
def qlinear_softmax(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y_scale: Any,
    y_zero_point: Any | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Any:
    """Over *axis*, or before opset 13 over all axes from *axis* on.

    A whole number of output steps makes one: 1 / y_scale rounded down, as ONNX Runtime
    has it.
    """
    shape = x.shape
    axis = normal_axis(axis, x.ndim)
    if opset < 13:
        first = axis
        x = xp.reshape(x, (math.prod(shape[:first]), math.prod(shape[first:])))
        axis = -1
    if not xp.size(x):
        return xp.reshape(x, shape)
    largest = xp.max(x, axis=axis, keepdims=True)
    below = xp.astype(x, xp.int16) - xp.astype(largest, xp.int16)
    scale = xp.astype(scalar(xp, x_scale, "the scale of x"), xp.float64)
    table = xp.exp(xp.arange(-255, 1, dtype=xp.float64) * scale)
    exponentials = xp.take(table, below + 255, axis=0)
    total = xp.sum(exponentials, axis=axis, keepdims=True)
    whole = xp.floor(1 / scalar(xp, y_scale, "the scale of y"))
    steps = exponentials * xp.astype(whole, xp.float64) / total
    y = _with_zero_point(xp, steps, y_zero_point, x.dtype)
    return xp.reshape(y, shape)


@KERNELS.operator("QLinearConcat", since=1)
def qlinear_concat(
    xp: Any, y_scale: Any, y_zero_point: Any, *inputs: Any, axis: int
) -> Any:
    """*inputs* are triples of a tensor, its scale and its zero point."""
    if not inputs or len(inputs) % 3:
        raise ValueError(
            f"QLinearConcat has {len(inputs)} inputs after the output's scale and zero "
            f"point; expected a tensor, a scale and a zero point for each part"
        )
    triples = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    parts = [
        _rescaled(xp, x, scale, zero_point, y_scale, y_zero_point)
        for x, scale, zero_point in triples
    ]
    return xp.concat(parts, axis=normal_axis(axis, inputs[0].ndim))


@KERNELS.operator("QLinearWhere", since=1)
def qlinear_where(
    xp: Any,
    condition: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any,
    y: Any,
    y_scale: Any,
    y_zero_point: Any,
    z_scale: Any,
    z_zero_point: Any,
) -> Any:
    chosen = _rescaled(xp, x, x_scale, x_zero_point, z_scale, z_zero_point)
    other = _rescaled(xp, y, y_scale, y_zero_point, z_scale, z_zero_point)
    return xp.where(condition, chosen, other)


def _rescaled(
    xp: Any, x: Any, x_scale: Any, x_zero_point: Any, y_scale: Any, y_zero_point: Any
) -> Any:
    """*x* in the steps of another scale and zero point."""

    def make(codes: Any) -> Any:
        values = dequantized(xp, codes, x_scale, x_zero_point)
        return quantized(xp, values, y_scale, y_zero_point, x.dtype)

    return through_table(xp, x, make)
