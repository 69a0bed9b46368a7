"""Pools."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.bounds import per_axis, split_pads
from onnxplug.ep import DataType
from onnxplug_kernels.pool import pooling_windows
from onnxplug_kernels.windows import Windows
from onnxplug_torch.dtypes import FLOATS, POSITIONS
from onnxplug_torch.operators.computing import guarded, in_float32
from onnxplug_torch.operators.convolution import function_for, padded
from onnxplug_torch.operators.movement import numbers
from onnxplug_torch.operators.registry import operator

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def _covered(torch: Any, x: Any, windows: Windows, value: float) -> Any:
    """*x* padded so far that windows without padding are just those."""
    after = [
        max(span - before - size, 0)
        for span, before, size in zip(
            windows.spans, windows.begin, x.shape[2:], strict=True
        )
    ]
    return padded(torch, x, windows.begin, after, value)


def _is_plain(windows: Windows, shape: Sequence[int]) -> bool:
    """Whether torch's own padding gives just those windows."""
    return windows.begin == windows.end and all(
        2 * before <= taps
        and (size + 2 * before - extent) // stride + 1 == count
        for before, taps, size, extent, stride, count in zip(
            windows.begin, windows.kernel, shape, windows.extents, windows.strides,
            windows.count, strict=True,
        )
    )  # fmt: skip


@operator("MaxPool", types=FLOATS | _BYTES)
def max_pool(
    torch: Any,
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    output_count: int = 1,
) -> Any:
    rank = x.ndim - 2
    function = function_for(torch, "max_pool", rank)
    windows = pooling_windows(
        tuple(x.shape[2:]),
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    numbers = x if x.dtype.is_floating_point else x.float()
    if _is_plain(windows, x.shape[2:]) and output_count == 1:
        padding: Any = windows.begin
    else:
        padding = 0
        numbers = _covered(torch, numbers, windows, -math.inf)
    if not math.prod(windows.count) or not x.numel():
        y = numbers.new_zeros((*x.shape[:2], *windows.count))
        indices = torch.zeros_like(y, dtype=torch.int64)
        return y.to(x.dtype) if output_count == 1 else (y.to(x.dtype), indices)
    call = functools.partial(
        function, numbers, windows.kernel, windows.strides, padding, windows.dilations
    )
    if output_count == 1:
        return call().to(x.dtype)
    y, indices = call(return_indices=True)
    return y.to(x.dtype), _flat(
        torch, indices, numbers.shape[2:], x.shape, windows, storage_order
    )


def _flat(
    torch: Any,
    indices: Any,
    within: Sequence[int],
    shape: Sequence[int],
    windows: Windows,
    storage_order: int,
) -> Any:
    """Positions in the whole flat input, from those in each padded image."""
    rank = len(within)
    places: list[Any] = []
    for axis in reversed(range(rank)):
        place = indices % within[axis] - windows.begin[axis]
        places.insert(0, place.clamp(0, shape[2 + axis] - 1))
        indices = torch.div(indices, within[axis], rounding_mode="floor")
    order = range(rank) if not storage_order else reversed(range(rank))
    flat = torch.zeros_like(indices)
    for axis in order:
        flat = flat * shape[2 + axis] + places[axis]
    images = torch.arange(math.prod(shape[:2]), device=indices.device)
    images = images.reshape(*shape[:2], *[1] * rank) * math.prod(shape[2:])
    return flat + images


def _window_sums(torch: Any, x: Any, windows: Windows) -> Any:
    """The sum of each window of *x* [images, channels, *spatial], already padded."""
    rank = len(windows.kernel)
    if set(windows.dilations) == {1}:
        mean = function_for(torch, "avg_pool", rank)(
            x, windows.kernel, windows.strides, 0
        )
        return mean * math.prod(windows.kernel)
    ones = x.new_ones((1, 1, *windows.kernel))
    images = x.reshape(-1, 1, *x.shape[2:])
    total = function_for(torch, "conv", rank)(
        images, ones, None, windows.strides, 0, windows.dilations
    )
    return total.reshape(*x.shape[:2], *total.shape[2:])


@operator("AveragePool", types=FLOATS)
def average_pool(
    torch: Any,
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    rank = x.ndim - 2
    function = function_for(torch, "avg_pool", rank)
    windows = pooling_windows(
        tuple(x.shape[2:]),
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    if not math.prod(windows.count) or not x.numel():
        return x.new_zeros((*x.shape[:2], *windows.count))
    if _is_plain(windows, x.shape[2:]) and set(windows.dilations) == {1}:
        plain = functools.partial(
            function,
            kernel_size=windows.kernel,
            stride=windows.strides,
            padding=windows.begin,
            count_include_pad=bool(count_include_pad),
        )
        # of three axes torch has no function of narrow floats on the host
        return in_float32(torch, plain, x) if rank == 3 else plain(x)
    ones = torch.ones((1, 1, *x.shape[2:]), device=x.device)
    if count_include_pad:
        ones = padded(torch, ones, windows.begin, windows.end, 1.0)
        after = [
            max(span - size, 0)
            for span, size in zip(windows.spans, ones.shape[2:], strict=True)
        ]
        ones = padded(torch, ones, [0] * rank, after)
    else:
        ones = _covered(torch, ones, windows, 0.0)
    counts = _window_sums(torch, ones, windows)

    def formula(x: Any) -> Any:
        sums = _window_sums(torch, _covered(torch, x, windows, 0.0), windows)
        return sums / counts.round().to(x.dtype)

    return in_float32(torch, formula, x)


@operator("LpPool", types=FLOATS)
def lp_pool(
    torch: Any,
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    _check_power(p)
    function_for(torch, "avg_pool", x.ndim - 2)
    windows = pooling_windows(
        tuple(x.shape[2:]),
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )

    def formula(x: Any) -> Any:
        powers = _covered(torch, torch.abs(x) ** p, windows, 0.0)
        return _window_sums(torch, powers, windows) ** (1 / p)

    return in_float32(torch, formula, x)


def _check_power(p: float) -> None:
    if not 0 < p < math.inf:
        raise ValueError(f"p is {p}; a norm takes a finite number larger than 0")


def _spatial(x: Any) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ValueError(f"{list(x.shape)} has no spatial axes")
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool", types=FLOATS)
def global_average_pool(torch: Any, x: Any) -> Any:
    return torch.mean(x, _spatial(x), keepdim=True)


@operator("GlobalMaxPool", types=FLOATS)
def global_max_pool(torch: Any, x: Any) -> Any:
    return torch.amax(x, _spatial(x), keepdim=True)


@operator("GlobalLpPool", types=FLOATS)
def global_lp_pool(torch: Any, x: Any, *, p: float = 2) -> Any:
    _check_power(p)
    return in_float32(
        torch,
        lambda x: (torch.abs(x) ** p).sum(_spatial(x), keepdim=True) ** (1 / p),
        x,
    )


@operator("MaxUnpool", since=9, types=FLOATS, other={1: POSITIONS}, host=(2,))
def max_unpool(
    torch: Any,
    x: Any,
    indices: Any,
    output_shape: Any | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    rank = x.ndim - 2
    begin, end = split_pads(pads, rank)
    spatial = [
        (size - 1) * stride + taps - first - last
        for size, stride, taps, first, last in zip(
            x.shape[2:], per_axis("strides", strides, rank),
            per_axis("kernel_shape", kernel_shape, rank), begin, end, strict=True,
        )
    ]  # fmt: skip
    shape = [*x.shape[:2], *spatial]
    size = math.prod(shape)
    places = indices.reshape(-1)
    places = guarded(torch, places, size)
    flat = x.new_zeros(size).scatter(0, places, x.reshape(-1))
    whole = flat.reshape(shape)
    if output_shape is None:
        return whole
    more = [n - m for n, m in zip(numbers(output_shape)[2:], spatial, strict=True)]
    if min(more) < 0:
        raise ValueError(f"output_shape is {output_shape}; at least {shape} is needed")
    return padded(torch, whole, [0] * rank, more)
