"""Means of quantized tensors: over windows, over all positions, over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import normal_axes
from onnxplug_kernels.pool import pooling_windows
from onnxplug_kernels.quantize import quantize_steps
from onnxplug_kernels.windows import Windows, pad
from onnxplug_microsoft.kernels import KERNELS
from onnxplug_microsoft.kernels.linear import (
    dequantized,
    quantized,
    quantized_with_zero_point,
    scalar,
)


@KERNELS.operator("QLinearAveragePool", since=1)
def qlinear_average_pool(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y_scale: Any,
    y_zero_point: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """The elements of a window are added up in float32 in row-major order.

    With *count_include_pad* the sum is divided by the size of the window, also where
    it reaches beyond the padding.
    """
    if channels_last:
        x = xp.moveaxis(x, -1, 1)
    windows = pooling_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    padded = pad(xp, dequantized(xp, x, x_scale, x_zero_point), windows)
    total = xp.zeros((*x.shape[:2], *windows.count), dtype=xp.float32)
    for _, positions in windows.taps() if xp.size(total) else ():
        total += padded[(..., *positions)]
    if count_include_pad:
        total /= math.prod(windows.kernel)
    else:
        total /= _elements_inside(xp, windows, x.shape[2:])
    steps = total / scalar(xp, y_scale, "the scale of y")
    y = quantized_with_zero_point(xp, steps, y_zero_point, x.dtype)
    return xp.ascontiguousarray(xp.moveaxis(y, 1, -1)) if channels_last else y


def _elements_inside(xp: Any, windows: Windows, shape: Sequence[int]) -> Any:
    """How many elements of each window lie in the input: float32 [*count]."""
    inside = xp.ones((1,) * len(shape), dtype=xp.float32)
    for axis, size in enumerate(shape):
        first = (
            xp.arange(windows.count[axis]) * windows.strides[axis] - windows.begin[axis]
        )
        last = xp.minimum(first + windows.kernel[axis], size)
        along = last - xp.maximum(first, 0)
        later = (1,) * (len(shape) - 1 - axis)
        inside = inside * xp.reshape(xp.astype(along, xp.float32), (-1, *later))
    return inside


@KERNELS.operator("QLinearGlobalAveragePool", since=1)
def qlinear_global_average_pool(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    *,
    channels_last: int = 0,
) -> Any:
    """The sum of the integers is exact; it is scaled by one float32."""
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    size = math.prod(x.shape[axis] for axis in axes)
    total = xp.sum(x, axis=axes, keepdims=True, dtype=xp.int64)
    total = total - size * xp.astype(
        scalar(xp, x_zero_point, "the zero point of x"), xp.int64
    )
    scale = scalar(xp, x_scale, "the scale of x") / (
        scalar(xp, y_scale, "the scale of y") * size
    )
    steps = xp.astype(total, xp.float32) * scale
    zero_point = scalar(xp, y_zero_point, "the zero point of y")
    return quantize_steps(xp, xp.asarray(steps), zero_point, x.dtype)


@KERNELS.operator("QLinearReduceMean", since=1)
def qlinear_reduce_mean(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y_scale: Any,
    y_zero_point: Any | None = None,
    *,
    axes: Sequence[int],
    keepdims: int,
) -> Any:
    """No axes are all axes."""
    axes = normal_axes(axes, x.ndim)
    values = dequantized(xp, x, x_scale, x_zero_point)
    mean = xp.mean(xp.asarray(values), axis=axes or None, keepdims=bool(keepdims))
    return quantized(xp, mean, y_scale, y_zero_point, x.dtype)
