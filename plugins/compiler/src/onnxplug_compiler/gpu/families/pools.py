"""Windows whose elements become one: one invocation for each window."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import largest
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import LARGEST, Combining, Slide

TAP_NUMBERS: Final = 6
"""Of a launch, for each spatial axis: the input's size and those of a ``Slide``."""


def least_of(element: str) -> float:
    """What no element of floats, or of integers of a byte, is below."""
    return {"i8": -128, "u8": 0}.get(element, -math.inf)


def numbers_along(x: View, slides: Sequence[Slide], label: str) -> list[int]:
    """The numbers of a launch about the spatial axes of *x*, behind two others.

    Raises:
        ValueError: they are too large for what a kernel computes of them.
    """
    found = [
        number
        for size, slide in zip(x.shape[2:], slides, strict=True)
        for number in (size, *slide)
    ]
    if any(abs(number) >= 1 << 30 for number in found):
        raise ValueError(f"{label} has windows of sizes beyond 2³⁰")
    return found


class Tap(Record):
    """A tap of a window along an axis.

    Attributes:
        number: of the tap.
        place: where it is.
        there: whether that is in the input.
        padded: whether it is there, or in the padding.
    """

    number: str
    place: str
    there: str
    padded: str


def enter_tap(
    body: Body, loops: contextlib.ExitStack, numbers: int, window: str
) -> Tap:
    """Begin a loop over the taps of a window along an axis.

    Args:
        numbers: the first of the launch's about the axis.
    """
    size, taps, stride, dilation, before, after = (
        body.dialect.word(numbers + n) for n in range(TAP_NUMBERS)
    )
    tap = loops.enter_context(body.loop(f"u32({taps})"))
    place = body.let(
        "i32", f"i32({window}) * {stride} + i32({tap}) * {dilation} - {before}"
    )
    there = f"{place} >= 0 && {place} < {size}"
    padded = f"{place} >= -{before} && {place} < {size} + {after}"
    return Tap(tap, f"u32({place})", there, padded)


class PoolKernel(Parameters):
    """Pools; the sizes are how many windows there are and those of the result's axes,
    and then of each spatial axis the input's size and the numbers of a ``Slide``."""

    element: str
    combining: Combining
    spatial: int
    counts_padding: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        rank = 2 + self.spatial
        return Operand(self.element, rank), Operand(self.element, rank, True)

    @property
    def sizes(self) -> int:
        return 3 + self.spatial + TAP_NUMBERS * self.spatial

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 3 + self.spatial))
            kind, is_max = KINDS[self.element], self.combining.fold == "max"
            start = least_of(self.element) if is_max else 0
            total = body.var(kind, body.number(kind, start))
            count = body.var("f32", "0.0f")
            with contextlib.ExitStack() as loops:
                taps = [
                    enter_tap(
                        body, loops, 3 + self.spatial + TAP_NUMBERS * axis, at[2 + axis]
                    )
                    for axis in range(self.spatial)
                ]
                if self.counts_padding:
                    inside = " && ".join(tap.padded for tap in taps)
                    with body.when(inside):
                        body.assign(count, f"{count} + 1.0f")
                with body.when(" && ".join(tap.there for tap in taps)):
                    where = [*at[:2], *(tap.place for tap in taps)]
                    self._take(body, body.load(0, body.place(0, where)), total)
                    if not self.counts_padding:
                        body.assign(count, f"{count} + 1.0f")
            body.store(1, body.place(1, at), self._finished(body, total, count))

    def _take(self, body: Body, value: str, total: str) -> None:
        change, p = self.combining.change, body.number("f32", self.combining.p)
        if change == "square":
            value = f"{value} * {value}"
        elif change == "magnitude":
            value = f"abs({value})"
        elif change == "power":
            value = body.dialect.call("pow", f"abs({value})", p)
        if self.combining.fold == "max":
            kind = KINDS[self.element]
            value = body.let(kind, value)
            body.assign(total, largest(body, kind, total, value))
        else:
            body.assign(total, f"{total} + {value}")

    def _finished(self, body: Body, total: str, count: str) -> str:
        finish = self.combining.finish
        if finish == "mean":
            return f"{total} / {count}"
        if finish == "square_root":
            return body.dialect.call("sqrt", total)
        if finish == "root":
            inverse = body.number("f32", 1 / self.combining.p)
            return body.dialect.call("pow", total, inverse)
        return total


def record_pool(
    recorder: Recorder[Any],
    combining: Combining,
    x: View,
    out: View,
    slides: Sequence[Slide],
    *,
    counts_padding: bool = False,
    label: str = "Pool",
) -> None:
    """Combine the elements of each window; see ``ir.families.Pools``."""
    if not out.size:
        return
    element = operand(x).element
    of_integers = combining == LARGEST and element in ("i8", "u8")
    if KINDS.get(element) != "f32" and not of_integers:
        raise ValueError(f"{label} is not computed of {x.dtype}")
    kernel = PoolKernel(element, combining, len(slides), counts_padding)
    along = numbers_along(x, slides, label)
    taps = math.prod(slide.taps for slide in slides)
    launch(
        recorder,
        kernel,
        [x, out],
        (out.size, *out.shape, *along),
        math.ceil(out.size / LANES),
        label,
        out.size * taps,
    )
