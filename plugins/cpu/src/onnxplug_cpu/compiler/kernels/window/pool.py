"""Pools, in one pass or in one for each axis: what large windows share is shared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import LARGEST, MEAN, STILL, Combining, Slide
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.window.byte_pool import record_largest_bytes
from onnxplug_cpu.compiler.kernels.window.commands import (
    channels_side_by_side,
    record_windows,
)
from onnxplug_cpu.compiler.kernels.window.scan import record_scan

_F32: Final = np.dtype(np.float32)

_LARGE: Final = 64
"""Elements of a window from which on more than one pass may be worth it."""

_SCAN: Final = 12
"""What an element of a scan takes, in elements of windows one by one."""


def record_pool(
    recorder: Recorder,
    combining: Combining,
    x: View,
    out: View,
    slides: Sequence[Slide],
    *,
    counts_padding: bool = False,
    label: str = "Pool",
) -> None:
    """See ``families.Pools.record_pool``.

    The time is that of reading the input and writing the output a few times, however
    large windows are, unless they have gaps.  Consecutive channels are fastest; many
    that are apart are copied.  Of bytes the largest are found in float32, which has
    them all.

    Raises:
        ValueError: shapes do not fit, windows reach beyond
            :data:`~.reach.MOST_POSITIONS`, or dtypes are not f32, nor the largest of
            bytes are asked for.
    """
    if x.dtype.itemsize == 1 and combining == LARGEST and x.dtype == out.dtype:
        if not record_largest_bytes(recorder, x, out, slides, label):
            _record_as_floats(recorder, x, out, slides, label)
        return
    once = _once(combining, x, out, slides)
    if once:
        _record_repeated(
            recorder, combining, x, out, slides, once, counts_padding, label
        )
        return
    x = channels_side_by_side(recorder, x)
    axes = [axis for axis, slide in enumerate(slides) if slide != STILL]
    shapes = _shapes(x.shape, out.shape, axes)
    elements = [min(s.taps, n) for s, n in zip(slides, x.shape[2:], strict=True)]
    at_once = out.size * math.prod(elements)
    apart = sum(
        math.prod(shape) * _reads(slides[axis], elements[axis])
        for axis, shape in zip(axes, shapes, strict=True)
    )
    if math.prod(elements) < _LARGE or at_once <= 2 * apart:
        record_windows(
            recorder,
            combining,
            x,
            out,
            slides,
            counts_padding=counts_padding,
            label=label,
        )
        return
    for number, (axis, shape) in enumerate(zip(axes, shapes, strict=True)):
        how = combining.part(first=number == 0, last=axis == axes[-1])
        target = out if axis == axes[-1] else _temporary(recorder, x, shape)
        if slides[axis].dilation == 1 and elements[axis] > _SCAN:
            record_scan(
                recorder,
                how,
                x,
                target,
                axis + 2,
                slides[axis],
                counts_padding=counts_padding,
                label=label,
            )
        else:
            still = [STILL] * len(slides)
            still[axis] = slides[axis]
            record_windows(
                recorder,
                how,
                x,
                target,
                still,
                counts_padding=counts_padding,
                label=label,
            )
        x = target


def _record_repeated(
    recorder: Recorder,
    combining: Combining,
    x: View,
    out: View,
    slides: Sequence[Slide],
    once: frozenset[int],
    counts_padding: bool,
    label: str,
) -> None:
    """Pool where windows along the axes *once* all have the same in them."""
    sizes = [1 if axis in once else size for axis, size in enumerate(x.shape)]
    counts = [1 if axis in once else size for axis, size in enumerate(out.shape)]
    pooled = recorder.temporary(x.dtype, counts)
    still = [STILL if axis + 2 in once else slide for axis, slide in enumerate(slides)]
    record_pool(
        recorder,
        combining,
        x.slice([0] * len(sizes), sizes),
        pooled,
        still,
        counts_padding=counts_padding,
        label=label,
    )
    record_copy(recorder, pooled.broadcast_to(out.shape), out, label=label)


def _reads(slide: Slide, elements: int) -> int:
    """How many elements are read for a window along one axis, of so many."""
    return min(_SCAN, elements) if slide.dilation == 1 else elements


def _record_as_floats(
    recorder: Recorder, x: View, out: View, slides: Sequence[Slide], label: str
) -> None:
    wide, found = (recorder.ordered_like(each, each.shape, _F32) for each in (x, out))
    formula = Formula("f32")
    formula.record(recorder, formula.read_wide(x), wide, label)
    record_pool(recorder, LARGEST, wide, found, slides, label=label)
    formula = Formula("f32")
    # a window that is all padding has no largest element
    least = formula.number(float(np.iinfo(x.dtype).min))
    value = formula.step("Max", formula.read(found), least)
    formula.record(recorder, value, out, label)


def _once(
    combining: Combining, x: View, out: View, slides: Sequence[Slide]
) -> frozenset[int]:
    """Axes along which *x* is stretched and windows are without padding, so that each
    gives what is repeated."""
    if combining not in (LARGEST, MEAN):
        return frozenset()
    return frozenset(
        axis
        for axis, slide in enumerate(slides, 2)
        if x.shape[axis] > 1
        and not x.strides[axis]
        and not slide.before
        and (out.shape[axis] - 1) * slide.stride + (slide.taps - 1) * slide.dilation
        < x.shape[axis]
    )


def _shapes(
    shape: tuple[int, ...], result: tuple[int, ...], axes: Sequence[int]
) -> list[tuple[int, ...]]:
    """What becomes of *shape* when one of *axes* after the other is pooled."""
    sizes, found = list(shape), []
    for axis in axes:
        sizes[axis + 2] = result[axis + 2]
        found.append(tuple(sizes))
    return found


def _temporary(recorder: Recorder, x: View, shape: tuple[int, ...]) -> View:
    """Memory for an array whose channels lie as those of *x* do."""
    if x.strides[1] != 1:
        return recorder.temporary(x.dtype, shape)
    last = recorder.temporary(x.dtype, (shape[0], *shape[2:], shape[1]))
    return last.transpose((0, len(shape) - 1, *range(1, len(shape) - 1)))
