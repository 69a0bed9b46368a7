"""Convolutions of small groups of channels, or of each by itself, as windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.families import Windows
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import slides_of
from onnxplug_compiler.schedule.operations.geometry import Geometry, Taps

MOST_FILTERS: Final = 4
"""Of a channel, that are computed one after another."""


class Depthwise(NamedTuple):
    """Some, or all, places of the results of one filter of each channel.

    Attributes:
        x: [N, C, *spatial], without zeros around it.
        weights: [C, 1, *kernel], or [C, D, *kernel] for groups of D channels.
        strides, dilations: of windows, along each spatial axis.
        pads: at the beginnings, and then at the ends.
        places: of each spatial axis the first place of the result, their number, their
            distance.
        number: of the filter among those of a channel.
        filters: how many each channel has.
        zero: of *x* that has codes, the zero point as float32.
        codes: the weights as codes of int8, where these have no zero points.
    """

    x: View
    weights: View
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]
    number: int
    filters: int
    zero: View | None = None
    codes: View | None = None

    def fold(self, view: View) -> View:
        """The part's elements of a view of the result's shape [N, M, *spatial], as
        [N, C, *places]."""
        firsts, counts, steps = zip(*self.places, strict=True)
        channels = view.shape[1] // self.filters
        return view.slice(
            [0, self.number, *firsts],
            [view.shape[0], channels, *counts],
            [1, self.filters, *steps],
        )


def depthwise_parts(
    x: View, weights: View, geometry: Geometry
) -> list[Depthwise] | None:
    """What gives the result of a convolution of each channel by itself.

    Args:
        x: [N, C, *spatial].
        weights: [C, filters, *kernel].
        geometry: where its windows lie.

    Returns:
        ``None`` if not all of it is windows with elements of *x*.
    """
    filters = weights.shape[1]
    if any(
        not _has_elements(taps, before, size)
        for axes, before, size in zip(
            geometry.axes, geometry.before, x.shape[2:], strict=True
        )
        for taps in axes
    ):
        return None
    return [
        _part(x, weights, axes, geometry.before, number, filters)
        for number in range(filters)
        for axes in itertools.product(*geometry.axes)
    ]


def grouped_part(
    recorder: Recorder[Target],
    windows: Windows,
    x: View,
    weights: View,
    geometry: Geometry,
) -> Depthwise | None:
    """What gives the result of a convolution of small groups of channels.

    Args:
        x: [N, C, *spatial].
        weights: [C, D, *kernel].
        geometry: where its windows lie; not of a transposed convolution.

    Returns:
        ``None`` if the target takes no such groups.
    """
    (axes,) = itertools.product(*geometry.axes)
    part = _part(x, weights, axes, geometry.before, 0, 1)._replace(weights=weights)
    slides = slides_of(weights.shape[2:], part.strides, part.dilations, part.pads)
    _, pixels, _ = part.places[-1]
    depth = weights.shape[1]
    takes = windows.takes_groups(recorder, depth, slides, part.x.shape, pixels)
    return part if takes else None


def _has_elements(taps: Taps, before: int, size: int) -> bool:
    """Whether windows begin within an axis of that size, or before it."""
    return taps.weights[1] > 0 and taps.inputs[0] - before < size


def _part(
    x: View,
    weights: View,
    axes: Sequence[Taps],
    before: Sequence[int],
    number: int,
    filters: int,
) -> Depthwise:
    starts = [taps.inputs[0] - zeros for taps, zeros in zip(axes, before, strict=True)]
    cut = [larger(0, start) for start in starts]
    sizes = [size - first for size, first in zip(x.shape[2:], cut, strict=True)]
    behind = []
    for taps, start, size in zip(axes, starts, x.shape[2:], strict=True):
        _, places, _ = taps.places
        last = start + (places - 1) * taps.inputs[1]
        reach = last + (taps.weights[1] - 1) * taps.spacing
        behind.append(larger(0, reach - size + 1))
    return Depthwise(
        x.slice([0, 0, *cut], [*x.shape[:2], *sizes]),
        _of_filter(weights, axes, number),
        tuple(taps.inputs[1] for taps in axes),
        tuple(taps.spacing for taps in axes),
        (*(max(0, -start) for start in starts), *behind),
        tuple(taps.places for taps in axes),
        number,
        filters,
    )


def _of_filter(weights: View, axes: Sequence[Taps], number: int) -> View:
    """[C, 1, *kernel] of [C, filters, *kernel]."""
    strides = weights.strides[2:]
    firsts = (
        taps.weights[0] * stride for taps, stride in zip(axes, strides, strict=True)
    )
    first = number * weights.strides[1] + sum(firsts)
    return View(
        weights.buffer,
        weights.offset + first * weights.dtype.itemsize,
        weights.dtype,
        (weights.shape[0], 1, *(taps.weights[1] for taps in axes)),
        (
            weights.strides[0],
            0,
            *(
                taps.weights[2] * stride
                for taps, stride in zip(axes, strides, strict=True)
            ),
        ),
    )


def record_depthwise(
    recorder: Recorder[Target],
    part: Depthwise,
    out: View,
    after: Epilogue | None,
    label: str,
) -> None:
    """Record windows, which write *out* if there is nothing *after* them."""
    windows = recorder.target.windows
    assert windows is not None
    windows.record_depthwise(
        recorder,
        part.x,
        part.weights,
        out,
        strides=part.strides,
        dilations=part.dilations,
        pads=part.pads,
        zero=part.zero,
        codes=part.codes,
        epilogue=after,
        label=label,
    )
