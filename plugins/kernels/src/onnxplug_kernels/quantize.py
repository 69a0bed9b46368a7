"""Linear quantization, and products and convolutions of quantized arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from onnxplug.ep.bounds import at_least, normal_axis
from onnxplug_kernels.arrays import numpy_dtype, require_extent
from onnxplug_kernels.cast import convert
from onnxplug_kernels.conv import check_channels, kernel_of
from onnxplug_kernels.registry import operator
from onnxplug_kernels.windows import pad, patches, place_windows

_UINT8: Final = np.dtype(np.uint8)
_FLOAT32: Final = np.dtype(np.float32)
_FLOAT64: Final = np.dtype(np.float64)


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
    _check_pair(scale, zero_point)
    if zero_point is not None:
        dtype = zero_point.dtype
        zero_point = _align(xp, zero_point, x.shape, axis, block_size)
    else:
        dtype = numpy_dtype(output_dtype) if output_dtype else _UINT8
    narrow = numpy_dtype(precision) if precision else scale.dtype
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
    _check_pair(scale, zero_point)
    dtype = numpy_dtype(output_dtype) if output_dtype else scale.dtype
    y = xp.asarray(x.astype(_FLOAT32))
    if zero_point is not None:
        y -= _align(xp, zero_point, x.shape, axis, block_size).astype(_FLOAT32)
    y *= _align(xp, scale, x.shape, axis, block_size).astype(_FLOAT32)
    return y.astype(dtype, copy=False)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """*x* in uint8, with the scale and zero point that fit its range and zero.

    The scale of nothing but zeros is 1: ONNX's formula leaves 0 / 0 there.
    """
    smallest = xp.min(x, initial=0).astype(_FLOAT32)
    largest = xp.max(x, initial=0).astype(_FLOAT32)
    span = largest - smallest
    scale = xp.where(span == 0, np.float32(1), span / np.float32(255))
    zero_point = xp.rint(xp.clip(-smallest / scale, 0, 255)).astype(_UINT8)
    y = quantize_steps(xp, xp.asarray(x / scale), zero_point, _UINT8)
    return y, scale, xp.asarray(zero_point)


@operator("MatMulInteger", since=10)
def matmul_integer(
    xp: Any, a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None
) -> Any:
    """A zero point is a scalar, or has one number per row of *a* or column of *b*."""
    bound = a.shape[-1] * _largest(a, a_zero_point) * _largest(b, b_zero_point)
    dtype = exact_dtype(bound)
    product = xp.matmul(
        _center(a, _per_row(a_zero_point), dtype), _center(b, b_zero_point, dtype)
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
    bound = a.shape[-1] * _largest(a, a_zero_point) * _largest(b, b_zero_point)
    dtype = exact_dtype(bound)
    product = xp.matmul(
        _center(a, _per_row(a_zero_point), dtype), _center(b, b_zero_point, dtype)
    )
    scales = _per_row(a_scale), b_scale, _per_row(y_scale)
    zero_point = _per_row(y_zero_point)
    require_extent(product.shape, *scales, zero_point, what="a scale or zero point")
    return quantize_steps(
        xp, xp.asarray(product * _factor(*scales)), zero_point, y_zero_point.dtype
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
    bound = _conv_bound(x, w, x_zero_point, w_zero_point)
    sums = _convolve(
        xp,
        *_center_both(x, w, x_zero_point, w_zero_point, exact_dtype(bound)),
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
    bound = _conv_bound(x, w, x_zero_point, w_zero_point)
    sums = _convolve(
        xp,
        *_center_both(x, w, x_zero_point, w_zero_point, exact_dtype(bound)),
        group=group,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    per_channel = (-1, *(1,) * (x.ndim - 2))
    _per_filter(w_scale, w, "the scale of w")
    if bias is not None:
        if bias.shape != w.shape[:1]:
            raise ValueError(f"B has shape {bias.shape}, expected {w.shape[:1]}")
        sums = sums + bias.astype(_FLOAT64).reshape(per_channel)
    factor = _factor(
        x_scale.reshape(()), w_scale.reshape(per_channel), y_scale.reshape(())
    )
    return quantize_steps(
        xp, sums * factor, y_zero_point.reshape(()), y_zero_point.dtype
    )


def _align(
    xp: Any, parameter: Any, shape: tuple[int, ...], axis: int, block_size: int
) -> Any:
    """A scale or zero point such that it broadcasts to an array of *shape*."""
    if parameter.size == 1 and not block_size:
        return parameter.reshape(())
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
        return parameter.reshape(-1, *(1,) * (rank - 1 - axis))
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
    return repeated[(slice(None),) * axis + (slice(length),)]


def _check_pair(scale: Any, zero_point: Any | None) -> None:
    """Raise :class:`ValueError` unless there is a zero point for each scale."""
    if zero_point is None or zero_point.shape == scale.shape:
        return
    if zero_point.size != 1 or scale.size != 1:
        raise ValueError(
            f"the zero point has shape {zero_point.shape}, expected that of the scale, "
            f"{scale.shape}"
        )


def _divide(xp: Any, x: Any, scale: Any, narrow: np.dtype[Any]) -> Any:
    """x / scale in the precision of *narrow*, in float32 or float64."""
    if narrow.itemsize == 2:
        # the quotient of two such numbers rounds from float32 as it would directly
        x, scale = x.astype(narrow, copy=False), scale.astype(narrow, copy=False)
        exact = x.astype(_FLOAT32) / scale.astype(_FLOAT32)
        return xp.asarray(exact.astype(narrow).astype(_FLOAT32))
    # there are int32 scales; their quotients have no precision of their own
    wide = _FLOAT64 if narrow.itemsize == 8 or narrow.kind in "iu" else _FLOAT32
    quotient = x.astype(wide, copy=False) / scale.astype(wide, copy=False)
    return xp.asarray(quotient)


def quantize_steps(
    xp: Any,
    quotient: Any,
    zero_point: Any,
    dtype: np.dtype[Any],
    *,
    saturate: bool = True,
) -> Any:
    """*quotient*, numbers in steps of the scale, in *dtype*; it is overwritten.

    Integers are rounded to nearest even, then the zero point is added.
    """
    is_integer = "int" in dtype.name
    if is_integer:
        # rounded before the zero point is added: an odd one would turn ties around
        xp.rint(quotient, out=quotient)
    if zero_point is not None:
        quotient += zero_point.astype(quotient.dtype)
    if not is_integer:
        return convert(xp, quotient, dtype, saturate=saturate)
    lowest, largest = _integer_limits(dtype)
    xp.clip(quotient, lowest, largest, out=quotient)
    return quotient.astype(dtype)


@functools.cache
def _integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _factor(x_scale: Any, w_scale: Any, y_scale: Any) -> Any:
    """What a product of quantized numbers is multiplied by, to become one."""
    return (
        x_scale.astype(_FLOAT64) * w_scale.astype(_FLOAT64) / y_scale.astype(_FLOAT64)
    )


def _per_row(parameter: Any) -> Any:
    if parameter is None or parameter.ndim != 1:
        return parameter
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, 1)


def _center(x: Any, zero_point: Any, dtype: np.dtype[Any]) -> Any:
    wide = x.astype(dtype)
    if zero_point is None:
        return wide
    require_extent(x.shape, zero_point, what="a zero point")
    return wide - zero_point.astype(dtype)


def _center_both(
    x: Any, w: Any, x_zero_point: Any, w_zero_point: Any, dtype: np.dtype[Any]
) -> tuple[Any, Any]:
    """Data and weights of a convolution, the latter's zero point one per output."""
    if x_zero_point is not None:
        x_zero_point = x_zero_point.reshape(())
    if w_zero_point is not None:
        _per_filter(w_zero_point, w, "the zero point of w")
        w_zero_point = w_zero_point.reshape(-1, *(1,) * (w.ndim - 1))
    return _center(x, x_zero_point, dtype), _center(w, w_zero_point, dtype)


def _per_filter(parameter: Any, w: Any, what: str) -> None:
    if parameter.size != 1 and parameter.shape != w.shape[:1]:
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
    columns = patches(xp, pad(xp, x, windows), windows)
    channels = math.prod(w.shape[1:])
    sums = xp.matmul(
        w.reshape(group, -1, channels),
        columns.reshape(x.shape[0], group, channels, math.prod(windows.count)),
    )
    return sums.reshape(x.shape[0], w.shape[0], *windows.count)


# Sums of products are computed in floating point, because only that reaches BLAS, and
# in a dtype that holds every partial sum exactly.


def _largest(x: Any, zero_point: Any) -> int:
    """A bound on the magnitude of the elements of *x* less *zero_point*."""
    if x.dtype.kind not in "iu":
        # no integers: no dtype is exact
        return 1 << 16
    return 128 if zero_point is None and x.dtype.kind == "i" else 255


def _conv_bound(x: Any, w: Any, x_zero_point: Any, w_zero_point: Any) -> int:
    terms: int = math.prod(w.shape[1:])
    return terms * _largest(x, x_zero_point) * _largest(w, w_zero_point)


def exact_dtype(bound: int) -> np.dtype[Any]:
    """A floating dtype that holds all integers up to *bound*."""
    return _FLOAT32 if bound <= 1 << 24 else _FLOAT64


def _to_int32(xp: Any, sums: Any, bound: int) -> Any:
    """*sums* in int32, in which accumulation may overflow and wrap around."""
    if bound >= 1 << 31:
        sums = sums.astype(np.int64)
    return xp.asarray(sums.astype(np.int32))
