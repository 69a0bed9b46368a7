"""Pooling: AveragePool, MaxPool, LpPool, their global forms, and MaxUnpool."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import lt
from typing import Any

from onnxplug.authoring.bounds import at_least, per_axis, sizes, split_pads
from onnxplug_kernels.arrays import mean_of, numbers
from onnxplug_kernels.gather import require_in_range
from onnxplug_kernels.registry import operator
from onnxplug_kernels.windows import Windows, pad, place_windows


@operator("MaxPool", since=1)
def max_pool(
    xp: Any,
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
    """The largest element of each window, and where it is in the flattened input."""
    windows = pooling_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    windows = _reaching(windows, x.shape[2:])
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    padded = pad(xp, wide, windows, _lowest(xp, wide.dtype))
    if output_count > 1:
        y, indices = _max_with_indices(xp, padded, x.shape, windows, storage_order)
        return xp.astype(y, x.dtype, copy=False), indices
    y = _reduce_windows(xp, xp.maximum, padded, windows)
    return xp.astype(y, x.dtype, copy=False)


@operator("AveragePool", since=1)
def average_pool(
    xp: Any,
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
    windows = pooling_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    reaching = _reaching(windows, x.shape[2:])
    total = _reduce_windows(xp, xp.add, pad(xp, wide, reaching), reaching)
    for axis, size in enumerate(x.shape[2:]):
        counts = _elements_inside(xp, windows, axis, size, bool(count_include_pad))
        shape = [1] * (x.ndim - 2)
        shape[axis] = -1
        total /= xp.reshape(xp.astype(counts, wide.dtype), shape)
    return xp.astype(total, x.dtype, copy=False)


@operator("LpPool", since=1)
def lp_pool(
    xp: Any,
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
    windows = pooling_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    windows = _reaching(windows, x.shape[2:])
    powers = pad(xp, _powers(xp, wide, p), windows)
    total = _reduce_windows(xp, xp.add, powers, windows)
    return xp.astype(_root(xp, total, p), x.dtype, copy=False)


@operator("GlobalMaxPool", since=1)
def global_max_pool(xp: Any, x: Any) -> Any:
    return xp.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalAveragePool", since=1)
def global_average_pool(xp: Any, x: Any) -> Any:
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    mean = mean_of(xp, wide, tuple(range(2, x.ndim)))
    return xp.astype(mean, x.dtype, copy=False)


@operator("GlobalLpPool", since=1)
def global_lp_pool(xp: Any, x: Any, *, p: float = 2) -> Any:
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    total = xp.sum(_powers(xp, wide, p), axis=tuple(range(2, x.ndim)), keepdims=True)
    return xp.astype(_root(xp, total, p), x.dtype, copy=False)


@operator("MaxUnpool", since=9)
def max_unpool(
    xp: Any,
    x: Any,
    indices: Any,
    output_shape: Any | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Zeros, but the elements of *x* where *indices* say.

    The indices count in the flattened array of the size that the attributes give;
    with a larger *output_shape* that array lies at the start of each axis.
    """
    if indices.shape != x.shape:
        raise ValueError(
            f"MaxUnpool of {x.shape} has indices of shape {indices.shape}; expected "
            f"one for each element"
        )
    rank = x.ndim - 2
    begin, end = split_pads(pads, rank)
    spatial = [
        (size - 1) * stride + taps - first - last
        for size, stride, taps, first, last in zip(
            x.shape[2:],
            per_axis("strides", strides, rank),
            per_axis("kernel_shape", kernel_shape, rank),
            begin,
            end,
            strict=True,
        )
    ]
    shape = sizes(
        (*x.shape[:2], *spatial),
        itemsize=xp.itemsize(x),
        what="the shape of the output",
    )
    whole_shape = shape if output_shape is None else _larger(xp, output_shape, shape)
    flat = xp.zeros(math.prod(shape), dtype=x.dtype)
    require_in_range(xp, indices, xp.size(flat), "the flattened output", least=0)
    places = xp.reshape(indices, (-1,))
    flat = xp.scatter(flat, (places,), xp.reshape(x, (-1,)), "none")
    unpooled = xp.reshape(flat, shape)
    if whole_shape == shape:
        return unpooled
    whole = xp.zeros(whole_shape, dtype=x.dtype)
    whole[tuple(map(slice, shape))] = unpooled
    return whole


def _larger(xp: Any, output_shape: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The input *output_shape*, into which *shape* fits."""
    wanted = sizes(numbers(xp, output_shape, "output_shape"), what="output_shape")
    if (
        len(wanted) != len(shape)
        or wanted[:2] != shape[:2]
        or any(map(lt, wanted, shape))
    ):
        raise ValueError(
            f"output_shape is {wanted}; expected {shape}, to which the windows reach, "
            f"or larger spatial sizes"
        )
    return wanted


def pooling_windows(
    spatial_shape: Sequence[int],
    kernel_shape: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """The windows of a pool, of which none may lie in the padding alone.

    Nothing has no largest element and no mean.

    Raises:
        ValueError: one does, or as :func:`place_windows`.
    """
    windows = place_windows(
        spatial_shape,
        at_least(1, kernel_shape, "kernel_shape", count=len(spatial_shape)),
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    for begin, end, extent in zip(
        windows.begin, windows.end, windows.extents, strict=True
    ):
        if max(begin, end) >= extent:
            raise ValueError(
                f"pads are {windows.begin} and {windows.end}, but windows span "
                f"{windows.extents} positions: expected less padding than that"
            )
    return windows


def _lowest(xp: Any, dtype: Any) -> Any:
    return xp.limits(dtype)[0] if xp.kind(dtype) in "iu" else -math.inf


def _reaching(windows: Windows, spatial_shape: Sequence[int]) -> Windows:
    """*windows* without the elements that no window has in the input.

    So what they need, in memory and in time, depends on how large the input is, and not
    on how large they are.
    """
    kernel, begins = [], []
    for axis, size in enumerate(spatial_shape):
        dilation, begin = windows.dilations[axis], windows.begin[axis]
        # the last window has more before the input's end, and the first one behind it
        last = max(windows.count[axis] - 1, 0) * windows.strides[axis]
        skipped = max(begin - last, 0) // dilation
        end = min(windows.kernel[axis], -(-(size + begin) // dilation))
        kernel.append(max(end - skipped, 1))
        begins.append(begin - skipped * dilation)
    return replace(windows, kernel=tuple(kernel), begin=tuple(begins))


def _reduce_windows(
    xp: Any, combine: Callable[..., Any], padded: Any, windows: Windows
) -> Any:
    """Each window's elements combined, one axis after the other."""
    rank = len(windows.kernel)
    if not math.prod(windows.count):
        return xp.zeros((*padded.shape[:-rank], *windows.count), dtype=padded.dtype)
    for axis in range(rank):
        before = (slice(None),) * (padded.ndim - rank + axis)
        result, owned = None, False
        for piece in _pieces(combine, padded, before, windows, axis):
            if result is None:
                result = piece
            elif owned:
                xp.into(combine, result, piece, out=result)
            else:
                result, owned = combine(result, piece), True
        padded = result
    return xp.owned(padded)


def _pieces(
    combine: Callable[..., Any],
    source: Any,
    before: tuple[slice, ...],
    windows: Windows,
    axis: int,
) -> Iterator[Any]:
    """What, combined, gives each window's elements along *axis*, behind axes *before*.

    These are the elements if there are few, and otherwise runs of 1, 2, 4, … elements,
    each of which is combined of two halves.
    """
    taps, dilation = windows.kernel[axis], windows.dilations[axis]
    if taps * windows.count[axis] <= 2 * taps.bit_length() * source.shape[len(before)]:
        for index in range(taps):
            yield source[(*before, windows.tap(axis, index), ...)]
        return
    run, width, done = source, 1, 0
    while True:
        if taps & width:
            yield run[(*before, windows.tap(axis, done), ...)]
            done += width
        half, width = width * dilation, 2 * width
        if width > taps:
            return
        run = combine(
            run[(*before, slice(None, -half), ...)],
            run[(*before, slice(half, None), ...)],
        )


def _max_with_indices(
    xp: Any, padded: Any, shape: Sequence[int], windows: Windows, storage_order: int
) -> tuple[Any, Any]:
    """The first largest element of each window, and its index in the flat input.

    *storage_order* 1 counts the spatial axes in column-major order.
    """
    rank = len(windows.kernel)
    spatial = shape[2:]
    order = range(rank) if storage_order else reversed(range(rank))
    steps, step = [0] * rank, 1
    for axis in order:
        steps[axis], step = step, step * spatial[axis]
    starts = xp.zeros(windows.count, dtype=xp.int64)
    for axis in range(rank):
        first = xp.arange(windows.count[axis]) * windows.strides[axis]
        along = (first - windows.begin[axis]) * steps[axis]
        starts = starts + xp.reshape(along, (-1, *(1,) * (rank - axis - 1)))

    best = xp.zeros((*shape[:2], *windows.count), dtype=padded.dtype)
    where = xp.zeros(best.shape, dtype=xp.int64)
    if not xp.size(best):
        return best, where
    # padding has no index, so it must never win, not even over minus infinity
    found = xp.zeros(windows.count, dtype=xp.bool)
    for index, positions in windows.taps():
        values = padded[(..., *positions)]
        inside = _tap_inside(xp, index, windows, spatial)
        larger = (values > best) | ((values != values) & (best == best))
        taken = inside & (larger | ~found)
        shift = sum(
            i * dilation * step
            for i, dilation, step in zip(index, windows.dilations, steps, strict=True)
        )
        best = xp.where(taken, values, best)
        where = xp.where(taken, starts + shift, where)
        found |= inside
    images = xp.reshape(xp.arange(math.prod(shape[:2])), (*shape[:2], *(1,) * rank))
    return best, where + images * math.prod(spatial)


def _tap_inside(
    xp: Any, index: Sequence[int], windows: Windows, spatial: Sequence[int]
) -> Any:
    """For which windows element *index* lies in the input: bool [*count]."""
    rank = len(spatial)
    inside = xp.ones(windows.count, dtype=xp.bool)
    for axis, size in enumerate(spatial):
        first = index[axis] * windows.dilations[axis] - windows.begin[axis]
        along = first + xp.arange(windows.count[axis]) * windows.strides[axis]
        shape = (-1, *(1,) * (rank - axis - 1))
        inside &= xp.reshape((along >= 0) & (along < size), shape)
    return inside


def _elements_inside(
    xp: Any, windows: Windows, axis: int, size: int, include_pad: bool
) -> Any:
    """How many elements of each window along *axis* lie in the input.

    With *include_pad* those in the padding count too, but never those that only
    ceil_mode adds after it.
    """
    dilation = windows.dilations[axis]
    starts = xp.arange(windows.count[axis]) * windows.strides[axis]
    starts = starts - windows.begin[axis]

    def before(position: int) -> Any:
        """How many elements of each window lie before a position."""
        elements = -((starts - position) // dilation)
        return xp.clip(elements, 0, windows.kernel[axis])

    if include_pad:
        return before(size + windows.end[axis]) - before(-windows.begin[axis])
    return before(size) - before(0)


def _powers(xp: Any, x: Any, p: float) -> Any:
    if not 0 < p < math.inf:
        raise ValueError(f"p is {p}; a norm takes a finite number larger than 0")
    if p == 2:
        return x * x
    return xp.abs(x) if p == 1 else xp.abs(x) ** p


def _root(xp: Any, x: Any, p: float) -> Any:
    if p == 2:
        return xp.sqrt(x)
    return x if p == 1 else x ** (1 / p)
