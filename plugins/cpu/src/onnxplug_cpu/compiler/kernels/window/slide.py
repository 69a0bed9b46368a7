"""How windows slide along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.target.isa import LANES

MOST_POSITIONS: Final = 1 << 30
"""Positions from the first to the last that windows reach, padding included."""


class Slide(Record):
    """How windows slide along an axis.

    Attributes:
        taps: elements of a window.
        stride: how far apart windows are.
        dilation: how far apart elements of a window are.
        before, after: padding, which no kernel reads.
    """

    taps: int
    stride: int
    dilation: int
    before: int
    after: int


STILL: Final = Slide(1, 1, 1, 0, 0)
"""Each element is a window."""


def slides_of(
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> list[Slide]:
    """How windows slide along each axis; *pads* are all beginnings, then all ends."""
    rank = len(taps)
    numbers = zip(taps, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [Slide(*each) for each in numbers]


def require_reach(
    slides: Sequence[Slide], sizes: Sequence[int], counts: Sequence[int]
) -> None:
    """Check that so many windows can slide over axes of these sizes.

    Raises:
        ValueError: they reach beyond :data:`MOST_POSITIONS`, or a number is less than
            it may be.
    """
    for slide, size, count in zip(slides, sizes, counts, strict=True):
        reach = count * slide.stride + slide.taps * slide.dilation + size
        reach += slide.before + slide.after + LANES * slide.stride
        if min(slide[:3]) < 1 or min(slide[3:]) < 0 or reach > MOST_POSITIONS:
            raise ValueError(f"{count} windows do not slide over {size} by {slide}")
