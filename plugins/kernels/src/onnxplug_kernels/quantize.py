"""Linear quantization, and products and convolutions of quantized arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import at_least, normal_axis
from onnxplug_kernels.arrays import element_dtype, require_extent
from onnxplug_kernels.cast import convert
from onnxplug_kernels.conv import check_channels, kernel_of
from onnxplug_kernels.registry import operator
from onnxplug_kernels.windows import pad, patches, place_windows


@operator("QuantizeLinear", since=10)
def quantize_linear(
    xp: Any,
    x: Any,
    scale: Any,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """saturate(x / scale + zero point), the quotient rounded to nearest even.

    Args:
        precision: the element type to divide in; 0: the scale's.
    """
    _check_pair(xp, scale, zero_point)
    if zero_point is not None:
        dtype = zero_point.dtype
        zero_point = _align(xp, zero_point, x.shape, axis, block_size)
    else:
        dtype = element_dtype(xp, output_dtype) if output_dtype else xp.uint8
    narrow = element_dtype(xp, precision) if precision else scale.dtype
    scale = _align(xp, scale, x.shape, axis, block_size)
    quotient = _divide(xp, x, scale, narrow)
    return quantize_steps(xp, quotient, zero_point, dtype, saturate=bool(saturate))


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    xp: Any,
    x: Any,
    scale: Any,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """(x - zero point) · scale."""
    _check_pair(xp, scale, zero_point)
    _check_type(zero_point, x)
    dtype = element_dtype(xp, output_dtype) if output_dtype else scale.dtype
    y = xp.astype(x, xp.float32)
    if zero_point is not None:
        y -= xp.astype(_align(xp, zero_point, x.shape, axis, block_size), xp.float32)
    y *= xp.astype(_align(xp, scale, x.shape, axis, block_size), xp.float32)
    return xp.astype(y, dtype, copy=False)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """*x* in uint8, with the scale and zero point that fit its range and zero.

    The scale of nothing but zeros is 1: ONNX's formula leaves 0 / 0 there.
    """
    numbers = x if xp.size(x) else xp.zeros(1, dtype=x.dtype)
    smallest = xp.minimum(xp.astype(xp.min(numbers), xp.float32), 0)
    largest = xp.maximum(xp.astype(xp.max(numbers), xp.float32), 0)
    span = largest - smallest
    scale = xp.where(span == 0, 1, span / 255)
    zero_point = xp.astype(xp.round(xp.clip(-smallest / scale, 0, 255)), xp.uint8)
    y = quantize_steps(xp, xp.asarray(x / scale), zero_point, xp.uint8)
    return y, scale, xp.asarray(zero_point)


@operator("MatMulInteger", since=10)
def matmul_integer(
    xp: Any, a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None
) -> Any:
    """A zero point is a scalar, or has one number per row of *a* or column of *b*."""
    bound = a.shape[-1] * _largest(xp, a, a_zero_point) * _largest(xp, b, b_zero_point)
    dtype = exact_dtype(xp, bound)
    product = xp.matmul(
        _center(xp, a, _per_row(xp, a_zero_point), dtype),
        _center(xp, b, b_zero_point, dtype),
    )
    return _to_int32(xp, product, bound)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
) -> Any:
    """As MatMulInteger, then scaled to the dtype of *y_zero_point*.

    That can be a float8 type since opset 21.
    """
    bound = a.shape[-1] * _largest(xp, a, a_zero_point) * _largest(xp, b, b_zero_point)
    dtype = exact_dtype(xp, bound)
    product = xp.matmul(
        _center(xp, a, _per_row(xp, a_zero_point), dtype),
        _center(xp, b, b_zero_point, dtype),
    )
    scales = _per_row(xp, a_scale), b_scale, _per_row(xp, y_scale)
    zero_point = _per_row(xp, y_zero_point)
    require_extent(product.shape, *scales, zero_point, what="a scale or zero point")
    return quantize_steps(
        xp, xp.asarray(product * _factor(xp, *scales)), zero_point, y_zero_point.dtype
    )


@operator("ConvInteger", since=10)
def conv_integer(
    xp: Any,
    x: Any,
    w: Any,
    x_zero_point: Any = None,
    w_zero_point: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    bound = _conv_bound(xp, x, w, x_zero_point, w_zero_point)
    sums = _convolve(
        xp,
        *_center_both(xp, x, w, x_zero_point, w_zero_point, exact_dtype(xp, bound)),
        group=group,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    return _to_int32(xp, sums, bound)


@operator("QLinearConv", since=10)
def qlinear_conv(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any,
    w: Any,
    w_scale: Any,
    w_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    bound = _conv_bound(xp, x, w, x_zero_point, w_zero_point)
    sums = _convolve(
        xp,
        *_center_both(xp, x, w, x_zero_point, w_zero_point, exact_dtype(xp, bound)),
        group=group,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    per_channel = (-1, *(1,) * (x.ndim - 2))
    _per_filter(xp, w_scale, w, "the scale of w")
    if bias is not None:
        if bias.shape != w.shape[:1]:
            raise ValueError(f"B has shape {bias.shape}, expected {w.shape[:1]}")
        sums = sums + xp.reshape(xp.astype(bias, xp.float64), per_channel)
    factor = _factor(
        xp,
        xp.reshape(x_scale, ()),
        xp.reshape(w_scale, per_channel),
        xp.reshape(y_scale, ()),
    )
    return quantize_steps(
        xp, sums * factor, xp.reshape(y_zero_point, ()), y_zero_point.dtype
    )


def _align(
    xp: Any, parameter: Any, shape: tuple[int, ...], axis: int, block_size: int
) -> Any:
    """A scale or zero point such that it broadcasts to an array of *shape*."""
    if not block_size and (not parameter.shape or xp.size(parameter) == 1):
        return xp.reshape(parameter, ()) if parameter.shape else parameter
    rank = len(shape)
    # of a vector the one axis, whatever the attribute's default of 1 says
    axis = 0 if rank == 1 else normal_axis(axis, rank)
    length = shape[axis]
    if not block_size:
        if parameter.shape != (length,):
            raise ValueError(
                f"a scale or zero point has shape {parameter.shape}; expected one "
                f"number, or {(length,)} for axis {axis}"
            )
        return xp.reshape(parameter, (-1, *(1,) * (rank - 1 - axis)))
    at_least(0, [block_size], "block_size")
    blocks = -(-length // block_size)
    expected = (*shape[:axis], blocks, *shape[axis + 1 :])
    if parameter.shape != expected:
        raise ValueError(
            f"a scale or zero point has shape {parameter.shape}; expected {expected} "
            f"for blocks of {block_size} elements of axis {axis}"
        )
    repeated = xp.repeat(parameter, min(block_size, max(length, 1)), axis=axis)
    # the last block may be cut short
    return repeated[(*(slice(None),) * axis, slice(length), ...)]


def _check_pair(xp: Any, scale: Any, zero_point: Any | None) -> None:
    """Raise :class:`ValueError` unless there is a zero point for each scale."""
    if zero_point is None or zero_point.shape == scale.shape:
        return
    if xp.size(zero_point) != 1 or xp.size(scale) != 1:
        raise ValueError(
            f"the zero point has shape {zero_point.shape}, expected that of the scale, "
            f"{scale.shape}"
        )


def _check_type(zero_point: Any | None, x: Any) -> None:
    """Raise :class:`ValueError` unless a zero point is one of *x*."""
    if zero_point is not None and zero_point.dtype != x.dtype:
        raise ValueError(
            f"the zero point is {zero_point.dtype}; expected {x.dtype}, as what it is "
            "of"
        )


def _divide(xp: Any, x: Any, scale: Any, narrow: Any) -> Any:
    """x / scale in the precision of *narrow*, in float32 or float64."""
    if xp.itemsize_of(narrow) == 2:
        # the quotient of two such numbers rounds from float32 as it would directly
        x, scale = (
            xp.astype(x, narrow, copy=False),
            xp.astype(scale, narrow, copy=False),
        )
        exact = xp.astype(x, xp.float32) / xp.astype(scale, xp.float32)
        return xp.asarray(xp.astype(xp.astype(exact, narrow), xp.float32))
    # there are int32 scales; their quotients have no precision of their own
    wide = (
        xp.float64
        if xp.itemsize_of(narrow) == 8 or xp.kind(narrow) in "iu"
        else xp.float32
    )
    quotient = xp.astype(x, wide, copy=False) / xp.astype(scale, wide, copy=False)
    return xp.asarray(quotient)


def quantize_steps(
    xp: Any,
    quotient: Any,
    zero_point: Any,
    dtype: Any,
    *,
    saturate: bool = True,
) -> Any:
    """*quotient*, numbers in steps of the scale, in *dtype*; it is overwritten.

    Integers are rounded to nearest even, then the zero point is added.
    """
    is_integer = xp.is_integer(dtype)
    if is_integer:
        # rounded before the zero point is added: an odd one would turn ties around
        xp.into(xp.round, quotient, out=quotient)
    if zero_point is not None:
        quotient += xp.astype(zero_point, quotient.dtype)
    if not is_integer:
        return convert(xp, quotient, dtype, saturate=saturate)
    lowest, largest = xp.limits(dtype)
    xp.into(xp.clip, quotient, lowest, largest, out=quotient)
    return xp.astype(quotient, dtype)


def _factor(xp: Any, x_scale: Any, w_scale: Any, y_scale: Any) -> Any:
    """What a product of quantized numbers is multiplied by, to become one."""
    return (
        xp.astype(x_scale, xp.float64)
        * xp.astype(w_scale, xp.float64)
        / xp.astype(y_scale, xp.float64)
    )


def _per_row(xp: Any, parameter: Any) -> Any:
    if parameter is None or parameter.ndim != 1:
        return parameter
    return (
        xp.reshape(parameter, ())
        if xp.size(parameter) == 1
        else xp.reshape(parameter, (-1, 1))
    )


def _center(xp: Any, x: Any, zero_point: Any, dtype: Any) -> Any:
    wide = xp.astype(x, dtype)
    if zero_point is None:
        return wide
    _check_type(zero_point, x)
    require_extent(x.shape, zero_point, what="a zero point")
    return wide - xp.astype(zero_point, dtype)


def _center_both(
    xp: Any, x: Any, w: Any, x_zero_point: Any, w_zero_point: Any, dtype: Any
) -> tuple[Any, Any]:
    """Data and weights of a convolution, the latter's zero point one per output."""
    if x_zero_point is not None:
        x_zero_point = xp.reshape(x_zero_point, ())
    if w_zero_point is not None:
        _per_filter(xp, w_zero_point, w, "the zero point of w")
        w_zero_point = xp.reshape(w_zero_point, (-1, *(1,) * (w.ndim - 1)))
    return _center(xp, x, x_zero_point, dtype), _center(xp, w, w_zero_point, dtype)


def _per_filter(xp: Any, parameter: Any, w: Any, what: str) -> None:
    if xp.size(parameter) != 1 and parameter.shape != w.shape[:1]:
        raise ValueError(
            f"{what} has shape {parameter.shape}; expected one number, or {w.shape[:1]}"
        )


def _convolve(
    xp: Any,
    x: Any,
    w: Any,
    *,
    group: int,
    kernel_shape: Sequence[int] | None,
    **attributes: Any,
) -> Any:
    """Padding is zero, which stands for the zero point: that is subtracted already."""
    check_channels(x, w, group)
    windows = place_windows(x.shape[2:], kernel_of(x, w, kernel_shape), **attributes)
    shape = (x.shape[0], w.shape[0], *windows.count)
    channels = math.prod(w.shape[1:])
    if not channels * math.prod(shape):
        return xp.zeros(shape, dtype=x.dtype)
    columns = patches(xp, pad(xp, x, windows), windows)
    sums = xp.matmul(
        xp.reshape(w, (group, -1, channels)),
        xp.reshape(columns, (x.shape[0], group, channels, math.prod(windows.count))),
    )
    return xp.reshape(sums, shape)


# Sums of products are computed in floating point, because only that reaches BLAS, and
# in a dtype that holds every partial sum exactly.


def _largest(xp: Any, x: Any, zero_point: Any) -> int:
    """A bound on the magnitude of the elements of *x* less *zero_point*."""
    if xp.kind(x.dtype) not in "iu":
        # no integers: no dtype is exact
        return 1 << 16
    return 128 if zero_point is None and xp.kind(x.dtype) == "i" else 255


def _conv_bound(xp: Any, x: Any, w: Any, x_zero_point: Any, w_zero_point: Any) -> int:
    terms: int = math.prod(w.shape[1:])
    return terms * _largest(xp, x, x_zero_point) * _largest(xp, w, w_zero_point)


def exact_dtype(xp: Any, bound: int) -> Any:
    """A floating dtype that holds all integers up to *bound*."""
    return xp.float32 if bound <= 1 << 24 else xp.float64


def _to_int32(xp: Any, sums: Any, bound: int) -> Any:
    """*sums* in int32, in which accumulation may overflow and wrap around."""
    if bound >= 1 << 31:
        sums = xp.astype(sums, xp.int64)
    return xp.asarray(xp.astype(sums, xp.int32))
