"""Windows of which it matters where their elements are; see
``ir.images.WindowPlaces``.

Places are checked as integers before anything is read, whatever moves them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.pools import (
    TAP_NUMBERS,
    enter_tap,
    least_of,
    numbers_along,
)
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand, Pair
from onnxplug_compiler.gpu.render.extremes import is_nan
from onnxplug_compiler.gpu.render.steps import fitted
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide

_MOST_PLACES: Final = 1 << 31
"""Elements of an array whose numbers a word has."""


class MaxPlacesKernel(Parameters):
    """The largest element of windows, and its number; sizes as of ``PoolKernel``."""

    element: str
    spatial: int
    column_major: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        rank = 2 + self.spatial
        values = Operand(self.element, rank), Operand(self.element, rank, True)
        return *values, Operand("i64", rank, True)

    @property
    def sizes(self) -> int:
        return 3 + self.spatial + TAP_NUMBERS * self.spatial

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 3 + self.spatial))
            first = 3 + self.spatial
            axes = [first + TAP_NUMBERS * axis for axis in range(self.spatial)]
            kind = KINDS[self.element]
            best = body.var(kind, body.number(kind, least_of(self.element)))
            place, found = body.var("u32", "0u"), body.var("i1", "false")
            with contextlib.ExitStack() as loops:
                taps = [
                    enter_tap(body, loops, numbers, window)
                    for numbers, window in zip(axes, at[2:], strict=True)
                ]
                with body.when(" && ".join(tap.there for tap in taps)):
                    places = [tap.place for tap in taps]
                    value = body.load(0, body.place(0, [*at[:2], *places]))
                    taken = f"!{found} || {self._is_larger(body, value, best)}"
                    with body.when(taken):
                        body.assign(best, value)
                        body.assign(place, self._number(body, axes, places))
                        body.assign(found, "true")
            pixels = " * ".join(body.size(axis) for axis in axes)
            image = body.let("u32", f"{at[0]} * {body.size(2)} + {at[1]}")
            number = body.let("u32", f"{image} * {pixels} + {place}")
            zero = body.number(kind, 0)
            best = body.let(kind, body.dialect.select(found, best, zero))
            body.store(1, body.place(1, at), best)
            body.store(2, body.place(2, at), Pair(number, "0u"))

    def _is_larger(self, body: Body, value: str, best: str) -> str:
        larger = f"{value} > {best}"
        if KINDS[self.element] != "f32":
            return larger
        return f"{larger} || ({is_nan(body, value)} && !{is_nan(body, best)})"

    def _number(self, body: Body, axes: Sequence[int], places: Sequence[str]) -> str:
        """The number of a place in an image."""
        order = [*zip(axes, places, strict=True)]
        if self.column_major:
            order.reverse()
        number = order[0][1]
        for axis, place in order[1:]:
            number = f"({number}) * {body.size(axis)} + {place}"
        return number


def record_max_places(
    recorder: Recorder[Any],
    x: View,
    out: View,
    places: View,
    slides: Sequence[Slide],
    *,
    column_major: bool = False,
    label: str = "MaxPool",
) -> None:
    """The largest element of each window, and where it is."""
    if not out.size:
        return
    if x.size >= _MOST_PLACES:
        raise ValueError(f"{label} numbers the elements of {list(x.shape)}")
    kernel = MaxPlacesKernel(operand(x).element, len(slides), column_major)
    taps = math.prod(slide.taps for slide in slides)
    launch(
        recorder,
        kernel,
        [x, out, places],
        (out.size, *out.shape, *numbers_along(x, slides, label)),
        math.ceil(out.size / LANES),
        label,
        out.size * taps,
    )


_FOLD_NUMBERS: Final = 5
"""Of a launch, for each spatial axis: taps, stride, dilation, padding before, and how
many windows there are."""


class FoldKernel(Parameters):
    """Sums of elements of windows; the sizes are how many places there are, those of
    the result's axes, and then of each spatial axis :data:`_FOLD_NUMBERS`."""

    element: str
    spatial: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        source = Operand(self.element, 2 + 2 * self.spatial)
        return source, Operand(self.element, 2 + self.spatial, True)

    @property
    def sizes(self) -> int:
        return 3 + self.spatial + _FOLD_NUMBERS * self.spatial

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 3 + self.spatial))
            kind = KINDS[self.element]
            total = body.var(kind, body.number(kind, 0))
            with contextlib.ExitStack() as loops:
                taps, windows = [], []
                for axis, place in enumerate(at[2:]):
                    first = 3 + self.spatial + _FOLD_NUMBERS * axis
                    count, stride, dilation, before, most = (
                        body.dialect.word(first + n) for n in range(_FOLD_NUMBERS)
                    )
                    tap = loops.enter_context(body.loop(f"u32({count})"))
                    apart = f"i32({place}) + {before} - i32({tap}) * {dilation}"
                    start = body.let("i32", apart)
                    window = body.let("i32", f"{start} / {stride}")
                    inside = f"{start} >= 0 && {window} < {most}"
                    there = f"{inside} && {start} == {window} * {stride}"
                    loops.enter_context(body.when(there))
                    taps.append(tap)
                    windows.append(f"u32({window})")
                value = body.load(0, body.place(0, [*at[:2], *taps, *windows]))
                body.assign(total, f"{total} + {value}")
            total = fitted(body, self.element, "Add", total)
            body.store(1, body.place(1, at), total)


def record_fold(
    recorder: Recorder[Any],
    x: View,
    out: View,
    slides: Sequence[Slide],
    *,
    label: str = "Col2Im",
) -> None:
    """The sums of all elements of windows that lie at a place."""
    if not out.size:
        return
    windows = x.shape[2 + len(slides) :]
    along = [
        number
        for slide, count in zip(slides, windows, strict=True)
        for number in (slide.taps, slide.stride, slide.dilation, slide.before, count)
    ]
    if any(abs(number) >= 1 << 30 for number in (*along, *out.shape)):
        raise ValueError(f"{label} has windows of sizes beyond 2³⁰")
    kernel = FoldKernel(operand(x).element, len(slides))
    launch(
        recorder,
        kernel,
        [x, out],
        (out.size, *out.shape, *along),
        math.ceil(out.size / LANES),
        label,
        x.size,
    )


class _Corner(Record):
    """An element beside a point, along an axis.

    Attributes:
        place: an i32.
        there: whether it is in the image.
        weight: of it.
    """

    place: str
    there: str
    weight: str


class DeformedKernel(Parameters):
    """Elements of windows that are moved; the sizes are how many there are, those of
    the axes channels, elements of a window and windows, behind that of images; channels
    of a group; and then of each spatial axis the image's size and the numbers of a
    ``Slide``.

    Attributes:
        elements: of the images, of offsets and of factors; these empty without.
    """

    elements: tuple[str, str, str]
    spatial: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        x, offsets, mask = self.elements
        factors = (Operand(mask, 3 + self.spatial),) if mask else ()
        return (
            Operand(x, 2 + self.spatial),
            Operand(offsets, 4 + self.spatial),
            *factors,
            Operand(x, 3 + self.spatial, True),
        )

    @property
    def sizes(self) -> int:
        return 5 + self.spatial + TAP_NUMBERS * self.spatial

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 4 + self.spatial))
            image, channel, tap, *windows = at
            each = body.size(4 + self.spatial)
            group = body.let("u32", f"{channel} / {each}")
            axes = [
                self._corners(body, [image, group, tap], windows, axis)
                for axis in range(self.spatial)
            ]
            total = body.var("f32", "0.0f")
            for corners in itertools.product(*axes):
                with body.when(" && ".join(corner.there for corner in corners)):
                    places = [f"u32({corner.place})" for corner in corners]
                    value = body.load(0, body.place(0, [image, channel, *places]))
                    weights = " * ".join(corner.weight for corner in corners)
                    body.assign(total, f"{total} + {value} * ({weights})")
            if self.elements[2]:
                factor = body.load(2, body.place(2, [image, group, tap, *windows]))
                body.assign(total, f"{total} * {factor}")
            last = len(self.operands) - 1
            body.store(last, body.place(last, at), total)

    def _corners(
        self, body: Body, of: Sequence[str], windows: Sequence[str], axis: int
    ) -> list[_Corner]:
        """The two elements beside a point along a spatial axis.

        Args:
            of: the image, the group of channels, and the element of the window.
        """
        first = 5 + self.spatial
        # the elements of a window are numbered in C order
        number = of[2]
        for later in range(self.spatial - 1, axis, -1):
            taps = body.size(first + TAP_NUMBERS * later + 1)
            number = body.let("u32", f"{number} / {taps}")
        size, taps, stride, dilation, before, _ = (
            body.dialect.word(first + TAP_NUMBERS * axis + n)
            for n in range(TAP_NUMBERS)
        )
        tap = f"i32({number} % u32({taps}))"
        still = body.let(
            "i32", f"i32({windows[axis]}) * {stride} + {tap} * {dilation} - {before}"
        )
        at = [*of, f"{axis}u", *windows]
        offset = body.load(1, body.place(1, at))
        convert = body.dialect.convert
        point = body.let("f32", f"{convert('f32', still)} + {offset}")
        end = body.let("f32", f"{convert('f32', size)} + 1.0f")
        near = body.let("f32", f"max(min({point}, {end}), -2.0f)")
        near = body.let("f32", body.dialect.select(is_nan(body, point), "-2.0f", near))
        low = body.let("f32", body.dialect.call("floor", near))
        rest = body.let("f32", f"{near} - {low}")
        before = body.let("i32", convert("i32", low))
        behind = body.let("i32", f"{before} + 1")
        return [
            _Corner(place, body.let("i1", f"{place} >= 0 && {place} < {size}"), weight)
            for place, weight in ((before, f"(1.0f - {rest})"), (behind, rest))
        ]


def record_deformed(
    recorder: Recorder[Any],
    x: View,
    offsets: View,
    mask: View | None,
    out: View,
    slides: Sequence[Slide],
    *,
    label: str = "DeformConv",
) -> None:
    """The elements of windows that are moved."""
    if not out.size:
        return
    elements = operand(x).element, operand(offsets).element
    factors = "" if mask is None else operand(mask).element
    if not x.size or {KINDS.get(each) for each in elements} != {"f32"}:
        raise ValueError(f"{label} of {x.dtype}{list(x.shape)} and {offsets.dtype}")
    kernel = DeformedKernel((*elements, factors), len(slides))
    each = x.shape[1] // offsets.shape[1]
    launch(
        recorder,
        kernel,
        [x, offsets, *([] if mask is None else [mask]), out],
        (out.size, *out.shape, each, *numbers_along(x, slides, label)),
        math.ceil(out.size / LANES),
        label,
        out.size * 2 ** (1 + len(slides)),
    )
