"""The largest bytes of windows, one axis after the other, by chains of ``Max``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import STILL, Slide
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.window.commands import channels_side_by_side

_MOST_TAPS: Final = 12
"""Along an axis; a chain reads as many vectors, and processors follow fewer streams."""

_MOST_BORDERS: Final = 8
"""Windows along an axis that reach beyond an end, each of which is a command."""


class _Group(NamedTuple):
    """Windows next to each other along an axis that have the same taps within it.

    Attributes:
        first, places: which windows.
        begin: the first element of the first one.
        taps: how many elements each has.
    """

    first: int
    places: int
    begin: int
    taps: int


def record_largest_bytes(
    recorder: Recorder, x: View, out: View, slides: Sequence[Slide], label: str
) -> bool:
    """Record what ``record_pool`` does of bytes, if windows are few along each axis.

    Returns:
        Whether it did.
    """
    axes = [axis for axis, slide in enumerate(slides, 2) if slide != STILL]
    groups = [
        _groups(slides[axis - 2], x.shape[axis], out.shape[axis]) for axis in axes
    ]
    if not axes or not all(groups):
        return False
    x = channels_side_by_side(recorder, x)
    last = out if out.strides[1] == x.strides[1] else None
    for axis, parts in zip(axes, groups, strict=True):
        sizes = [*x.shape]
        sizes[axis] = out.shape[axis]
        target = last if axis == axes[-1] else None
        if target is None:
            target = recorder.ordered_like(x, sizes)
        for part in parts:
            _record_part(recorder, x, target, axis, slides[axis - 2], part, label)
        x = target
    if last is None:
        record_copy(recorder, x, out, label=label)
    return True


def _groups(slide: Slide, size: int, count: int) -> list[_Group]:
    """The windows along an axis; none if they are not for these chains."""
    reach = (slide.taps - 1) * slide.dilation
    low = -(-slide.before // slide.stride)
    high = (size - 1 - reach + slide.before) // slide.stride + 1
    is_few = slide.taps <= _MOST_TAPS and low + count - high <= _MOST_BORDERS
    if not is_few or not low < high <= count:
        return []
    whole = _Group(low, high - low, low * slide.stride - slide.before, slide.taps)
    found = [_of_border(slide, size, place) for place in range(low)]
    found.append(whole)
    found += [_of_border(slide, size, high + place) for place in range(count - high)]
    return found if all(group.taps > 0 for group in found) else []


def _of_border(slide: Slide, size: int, place: int) -> _Group:
    """One window, as far as it is within the axis."""
    begin, dilation = place * slide.stride - slide.before, slide.dilation
    first = -(begin // dilation) if begin < 0 else 0
    end = (size - 1 - begin) // dilation + 1
    taps = (slide.taps if slide.taps < end else end) - first
    return _Group(place, 1, begin + first * dilation, taps)


def _record_part(
    recorder: Recorder,
    x: View,
    out: View,
    axis: int,
    slide: Slide,
    group: _Group,
    label: str,
) -> None:
    rank = len(x.shape)

    def along(view: View, start: int, step: int) -> View:
        starts, sizes, steps = [0] * rank, [*view.shape], [1] * rank
        starts[axis], sizes[axis], steps[axis] = start, group.places, step
        return view.slice(starts, sizes, steps)

    target = along(out, group.first, 1)
    elements = [
        along(x, group.begin + tap * slide.dilation, slide.stride)
        for tap in range(group.taps)
    ]
    if len(elements) == 1:
        record_copy(recorder, elements[0], target, label=label)
        return
    formula = Formula.of(x)
    largest = formula.step("Max", *(formula.read(each) for each in elements))
    formula.record(recorder, largest, target, label)
