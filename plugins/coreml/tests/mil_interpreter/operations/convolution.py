"""Convolutions of any number of spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]
Pads = list[tuple[int, int]]


def resolve_pads(
    pad_type: str,
    pad: Array | None,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
) -> Pads:
    """What is padded before and after each spatial dimension.

    Args:
        sizes: of the input's spatial dimensions.
        kernel: its sizes, dilated.
    """
    if pad_type == "valid":
        return [(0, 0)] * len(sizes)
    if pad_type == "custom":
        if pad is None:
            return [(0, 0)] * len(sizes)
        return [(int(low), int(high)) for low, high in np.reshape(pad, (-1, 2))]
    if pad_type not in {"same", "same_lower"}:
        raise ValueError(f"padding of type {pad_type!r}")
    pads = []
    for size, window, stride in zip(sizes, kernel, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if pad_type == "same" else (more, less))
    return pads


def _numbers(values: Array | None, count: int) -> list[int]:
    return [1] * count if values is None else [int(each) for each in values]


@operation("conv")
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    strides: Array | None = None,
    pad_type: str = "valid",
    pad: Array | None = None,
    dilations: Array | None = None,
    groups: Any = 1,
) -> Array:
    rank = x.ndim - 2
    steps, gaps = _numbers(strides, rank), _numbers(dilations, rank)
    window = [
        (size - 1) * gap + 1 for size, gap in zip(weight.shape[2:], gaps, strict=True)
    ]
    pads = resolve_pads(pad_type, pad, x.shape[2:], window, steps)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=axes)
    windows = windows[
        (..., *[slice(None, None, step) for step in steps], *[slice(None)] * rank)
    ][(..., *[slice(None, None, gap) for gap in gaps])]
    batch, channels, *sizes = windows.shape[: 2 + rank]
    count = int(groups)
    # batch, group, places, then what a filter sees
    columns = windows.reshape(batch, count, channels // count, *windows.shape[2:])
    columns = np.moveaxis(columns, 2, 2 + rank)
    columns = columns.reshape(batch, count, int(np.prod(sizes)), -1)
    filters = weight.reshape(count, weight.shape[0] // count, -1)
    result = filters @ columns.swapaxes(-1, -2)
    result = result.reshape(batch, weight.shape[0], *sizes)
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


@operation("conv_transpose")
def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    pad: Array | None = None,
    output_shape: Array | None = None,
    pad_type: str = "valid",
    strides: Array | None = None,
    dilations: Array | None = None,
    groups: Any = 1,
) -> Array:
    rank = x.ndim - 2
    steps, gaps = _numbers(strides, rank), _numbers(dilations, rank)
    count = int(groups)
    batch, channels, *sizes = x.shape
    kernel = weight.shape[2:]
    spans = [(size - 1) * step + 1 for size, step in zip(sizes, steps, strict=True)]
    full = [
        span + (size - 1) * gap
        for span, size, gap in zip(spans, kernel, gaps, strict=True)
    ]
    inputs = x.reshape(batch, count, channels // count, -1)
    filters = weight.reshape(count, channels // count, weight.shape[1], *kernel)
    result = np.zeros((batch, count, weight.shape[1], *full), x.dtype)
    for position in np.ndindex(*kernel):
        part = filters[(..., *position)].swapaxes(-1, -2) @ inputs
        places = tuple(
            slice(at * gap, at * gap + span, step)
            for at, gap, span, step in zip(position, gaps, spans, steps, strict=True)
        )
        result[(..., *places)] += part.reshape(*part.shape[:3], *sizes)
    result = result.reshape(batch, -1, *full)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * rank)
    if pad_type == "same":
        wanted = [size * step for size, step in zip(sizes, steps, strict=True)]
        crops = [(max(f - w, 0) // 2, w) for f, w in zip(full, wanted, strict=True)]
    else:
        pads = resolve_pads(pad_type, pad, sizes, kernel, steps)
        crops = [
            (low, size - low - high)
            for size, (low, high) in zip(full, pads, strict=True)
        ]
    result = result[(..., *[slice(low, low + size) for low, size in crops])]
    if output_shape is not None and tuple(output_shape) != result.shape:
        raise NotImplementedError("where the output is cut is not documented")
    return result
