"""Pools of any number of spatial dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from mil_interpreter.operations.convolution import resolve_pads
from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


def _windows(
    x: Array,
    kernel_sizes: Array,
    strides: Array | None,
    pad_type: str,
    pad: Array | None,
    ceil_mode: Any,
) -> tuple[Array, Array]:
    """The windows of *x*, padded with NaN, in one last axis; and of their weights.

    A weight is 1 for an element of *x*, 0 for one of its padding, and NaN outside both,
    where rounding up leads.
    """
    rank = x.ndim - 2
    kernel = [int(size) for size in kernel_sizes]
    steps = [1] * rank if strides is None else [int(step) for step in strides]
    pads = resolve_pads(pad_type, pad, x.shape[2:], kernel, steps)
    beyond = []
    for size, window, step, (low, high) in zip(
        x.shape[2:], kernel, steps, pads, strict=True
    ):
        room = size + low + high - window
        count = room // step + 1
        if ceil_mode:
            count = -(-room // step) + 1
            if (count - 1) * step >= size + low and low + high:
                count -= 1
        beyond.append((0, max((count - 1) * step - room, 0)))
    axes = tuple(range(2, x.ndim))
    every = (..., *[slice(None, None, step) for step in steps], *[slice(None)] * rank)

    def cut(padded: Array) -> Array:
        view = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=axes)
        return view[every].reshape(*view[every].shape[: x.ndim], -1)

    outside = [(0, 0), (0, 0), *beyond]
    inside = [(0, 0), (0, 0), *pads]
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    values = np.pad(x, inside, constant_values=np.nan)
    weights = np.pad(np.pad(ones, inside), outside, constant_values=np.nan)
    return cut(np.pad(values, outside, constant_values=np.nan)), cut(weights)


@operation("max_pool")
def max_pool(
    x: Array,
    kernel_sizes: Array,
    pad_type: str,
    strides: Array | None = None,
    pad: Array | None = None,
    ceil_mode: Any = False,
) -> Array:
    values, weights = _windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return np.where(weights == 1, values, -np.inf).max(axis=-1).astype(x.dtype)


@operation("avg_pool")
def avg_pool(
    x: Array,
    kernel_sizes: Array,
    pad_type: str,
    strides: Array | None = None,
    pad: Array | None = None,
    exclude_padding_from_average: Any = False,
    ceil_mode: Any = False,
) -> Array:
    values, weights = _windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    sums = np.where(weights == 1, values, 0).sum(axis=-1)
    counted = weights == 1 if exclude_padding_from_average else ~np.isnan(weights)
    return (sums / counted.sum(axis=-1)).astype(x.dtype)


@operation("l2_pool")
def l2_pool(
    x: Array,
    kernel_sizes: Array,
    pad_type: str,
    strides: Array | None = None,
    pad: Array | None = None,
    ceil_mode: Any = False,
) -> Array:
    values, weights = _windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    squares = np.where(weights == 1, np.square(values), 0)
    return np.sqrt(squares.sum(axis=-1)).astype(x.dtype)
