"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import per_axis
from onnxplug.ep import DataType
from onnxplug_kernels.conv import transposed_windows
from onnxplug_kernels.windows import place_windows
from onnxplug_torch.dtypes import FLOATS
from onnxplug_torch.operators.registry import operator

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def function_for(torch: Any, name: str, rank: int) -> Any:
    """torch's function for *rank* spatial axes.

    Raises:
        ValueError: there is none.
    """
    if not 1 <= rank <= 3:
        raise ValueError(f"{name} of {rank} spatial axes; torch has 1 to 3")
    return getattr(torch.nn.functional, f"{name}{rank}d")


def padded(torch: Any, x: Any, begin: Any, end: Any, value: float = 0.0) -> Any:
    """*x* with so much more at the beginning and end of each spatial axis."""
    flat = [
        amount
        for pair in zip(reversed(begin), reversed(end), strict=True)
        for amount in pair
    ]
    return torch.nn.functional.pad(x, flat, value=value) if any(flat) else x


@operator("Conv", types=FLOATS)
def convolve(
    torch: Any,
    x: Any,
    w: Any,
    b: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    rank = x.ndim - 2
    function = function_for(torch, "conv", rank)
    if kernel_shape and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise ValueError(f"kernel_shape {kernel_shape} of weights {list(w.shape)}")
    if auto_pad in ("NOTSET", "") and (not pads or pads[:rank] == pads[rank:]):
        padding = tuple(pads[:rank]) if pads else 0
        return function(x, w, b, strides or 1, padding, dilations or 1, group)
    windows = place_windows(
        tuple(x.shape[2:]),
        tuple(w.shape[2:]),
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
    )
    padding = 0
    if windows.begin == windows.end:
        padding = windows.begin
    else:
        x = padded(torch, x, windows.begin, windows.end)
    return function(x, w, b, windows.strides, padding, windows.dilations, group)


@operator("ConvTranspose", types=FLOATS)
def convolve_transposed(
    torch: Any,
    x: Any,
    w: Any,
    b: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    rank = x.ndim - 2
    function = function_for(torch, "conv_transpose", rank)
    strides = per_axis("strides", strides, rank)
    dilations = per_axis("dilations", dilations, rank)
    extra = tuple(output_padding) if output_padding else (0,) * rank
    windows, shape = transposed_windows(
        tuple(x.shape[2:]),
        tuple(w.shape[2:]),
        strides,
        dilations,
        pads,
        extra,
        output_shape,
        auto_pad,
    )
    begin = windows.begin
    if (
        begin == windows.end
        and not output_shape
        and auto_pad in ("NOTSET", "", "VALID")
    ):
        return function(x, w, b, strides, begin, extra, group, dilations)
    # all that the kernel reaches, and then cut, or extended by nothing but the bias
    y = function(x, w, None, strides, 0, 0, group, dilations)
    end = [
        size + first - full
        for size, first, full in zip(shape, begin, y.shape[2:], strict=True)
    ]
    y = padded(torch, y, [-n for n in begin], end)
    return y if b is None else y + b.reshape([-1, *[1] * rank])


@operator("ConvInteger", since=10, types=_BYTES)
def convolve_integers(
    torch: Any,
    x: Any,
    w: Any,
    x_zero: Any | None = None,
    w_zero: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    # sums of products of bytes are whole numbers below 2**53, which float64 has
    left, right = x.to(torch.float64), w.to(torch.float64)
    if x_zero is not None:
        left = left - x_zero.to(torch.float64)
    if w_zero is not None:
        zero = w_zero.to(torch.float64)
        right = right - (zero.reshape([-1, *[1] * (w.ndim - 1)]) if zero.ndim else zero)
    y = convolve(
        torch,
        left,
        right,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.to(torch.int32)


@operator("Col2Im", since=18, types=FLOATS, host=(1, 2))
def fold(
    torch: Any,
    x: Any,
    image: Any,
    block: Any,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    rank = len(image)
    windows = place_windows(
        image, block, strides=strides, pads=pads, dilations=dilations
    )
    sizes = [
        size + before + after
        for size, before, after in zip(image, windows.begin, windows.end, strict=True)
    ]
    channels = x.shape[1] // math.prod(block)
    parts = x.reshape(x.shape[0], channels, math.prod(block), *windows.count)
    y = x.new_zeros((x.shape[0], channels, *sizes))
    for number, (_, places) in enumerate(windows.taps()):
        y[(..., *places)] += parts[:, :, number]
    inside = tuple(
        slice(before, before + size)
        for size, before in zip(image, windows.begin, strict=True)
    )
    return y[(..., *inside)] if rank else y
