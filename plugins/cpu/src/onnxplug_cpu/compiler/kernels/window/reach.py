"""How far windows may reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.ir.windows import Slide
from onnxplug_cpu.compiler.machine.isa import LANES

MOST_POSITIONS: Final = 1 << 30
"""Positions from the first to the last that windows reach, padding included."""


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
        small = any(n < 1 for n in slide[:3]) or any(n < 0 for n in slide[3:])
        if small or reach > MOST_POSITIONS:
            raise ValueError(f"{count} windows do not slide over {size} by {slide}")
