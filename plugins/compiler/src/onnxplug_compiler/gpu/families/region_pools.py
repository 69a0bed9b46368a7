"""Regions of images, read between pixels and pooled: one invocation for each result.

K. He et al., "Mask R-CNN" (2017), arXiv:1703.06870.  Samples beyond the image add
nothing, and only those that may lie in it are visited, however large a region is.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import is_finite, largest
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_MOST_SAMPLES: Final = 256
"""Of a bin along an axis, where an attribute says how many."""

_FINEST: Final = 1e9
"""The same where its size says how many."""

_WORD: Final = np.dtype(np.uint32)


class _Line(Record):
    """The samples of a bin along an axis.

    Attributes:
        start, step: sample i is at ``start + (i + 1/2) * step``.
        samples: how many there are, a float.
        first, end: which of them are visited, ints.
    """

    start: str
    step: str
    samples: str
    first: str
    end: str


class RoiAlignKernel(Parameters):
    """ONNX's RoiAlign; the sizes are how many results there are, those of their axes,
    the image's, how many images there are, and samples of a bin along an axis.

    The arrays are the images, the regions, which image each is of, the result, and two
    flags: of corners that are not finite, and of images that there are not.
    """

    element: str
    corners: str
    mode: str
    half_pixel: bool
    adaptive: bool
    scale: float

    lanes = LANES
    sizes = 9

    @property
    def operands(self) -> tuple[Operand, ...]:
        flag = Operand("flag", 0, True)
        return (
            Operand(self.element, 4),
            Operand(self.corners, 2),
            Operand("i64", 1),
            Operand(self.element, 4, True),
            flag,
            flag,
        )

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 5))
            image = self._image(body, at[0])
            lines = [self._line(body, at, axis) for axis in (0, 1)]
            self._pool(body, at, image, lines)

    def _image(self, body: Body, region: str) -> str:
        """Which image a region is of; the first, where there is none, and a flag."""
        found = body.load(2, body.place(2, [region]))
        there = body.let("i1", f"{found.high} == 0u && {found.low} < {body.size(7)}")
        with body.when(f"!{there}"):
            body.raise_flag(5)
        return body.let("u32", body.dialect.select(there, found.low, "0u"))

    def _line(self, body: Body, at: list[str], axis: int) -> _Line:
        """The samples along the lines for an *axis* of 0, and along pixels for 1."""
        select, region = body.dialect.select, at[0]
        scale = body.number("f32", self.scale)
        ends = []
        for corner in (1 - axis, 3 - axis):
            value = body.load(1, body.place(1, [region, f"{corner}u"]))
            scaled = body.let("f32", f"{value} * {scale}")
            finite = body.let("i1", is_finite(body, scaled))
            with body.when(f"!{finite}"):
                body.raise_flag(4)
            shift = "0.5f" if self.half_pixel else "0.0f"
            ends.append(body.let("f32", select(finite, f"{scaled} - {shift}", "0.0f")))
        length = body.let("f32", f"{ends[1]} - {ends[0]}")
        if not self.half_pixel:  # a region is at least one element large
            length = body.let("f32", select(f"{length} < 1.0f", "1.0f", length))
        bins = body.dialect.convert("f32", body.size(3 + axis))
        each = body.let("f32", f"{length} / {bins}")
        number = body.dialect.convert("f32", at[2 + axis])
        start = body.let("f32", f"{ends[0]} + {number} * {each}")
        if not self.adaptive:
            count = body.let("f32", body.dialect.convert("f32", body.size(8)))
            step = body.let("f32", f"{each} / {count}")
            return _Line(start, step, count, "0", body.let("i32", f"i32({count})"))
        fine = body.dialect.call("ceil", each)
        finest = body.number("f32", _FINEST)
        count = body.let("f32", f"max(min({fine}, {finest}), 0.0f)")
        step = body.let("f32", f"{each} / max({count}, 1.0f)")
        return self._within(body, _Line(start, step, count, "", ""), axis)

    def _within(self, body: Body, line: _Line, axis: int) -> _Line:
        """The samples that may lie in the image, and perhaps some beside it.

        A step is more than half a pixel, or there is one sample.
        """
        size = body.let("f32", body.dialect.convert("f32", body.size(5 + axis)))
        finest = body.number("f32", _FINEST)
        ends = []
        for edge in ("-2.0f", f"{size} + 1.0f"):
            number = f"({edge} - {line.start}) / {line.step}"
            inside = f"max(min({number}, {line.samples}), 0.0f)"
            some = f"{line.step} > 0.0f"
            known = body.let("f32", body.dialect.select(some, inside, "0.0f"))
            ends.append(body.let("f32", f"min({known}, {finest})"))
        first = body.let("i32", f"i32(floor({ends[0]}))")
        end = body.let("i32", f"i32(ceil({ends[1]}))")
        most = f"{first} + 2 * i32({body.size(5 + axis)}) + 8"
        return line._replace(first=first, end=body.let("i32", f"min({end}, {most})"))

    def _pool(self, body: Body, at: list[str], image: str, lines: list[_Line]) -> None:
        is_max = self.mode == "max"
        total = body.var("f32", body.number("f32", -math.inf if is_max else 0.0))
        visited = body.var("f32", "0.0f")
        y, x = lines
        with body.loop(f"u32({y.end})", f"u32({y.first})") as row:
            rows = self._taps(body, y, row, 0)
            with body.loop(f"u32({x.end})", f"u32({x.first})") as column:
                columns = self._taps(body, x, column, 1)
                with body.when(f"{rows[0]} && {columns[0]}"):
                    body.assign(visited, f"{visited} + 1.0f")
                    for line, by_line in zip(rows[1::2], rows[2::2], strict=True):
                        for pixel, by in zip(columns[1::2], columns[2::2], strict=True):
                            place = body.place(0, [image, at[1], line, pixel])
                            value = body.load(0, place)
                            part = body.let("f32", f"{value} * ({by_line} * {by})")
                            joined = (
                                largest(body, "f32", total, part)
                                if is_max
                                else f"{total} + {part}"
                            )
                            body.assign(total, joined)
        count = body.let("f32", f"{y.samples} * {x.samples}")
        if is_max:
            # those outside are zeros
            joined = largest(body, "f32", total, "0.0f")
            found = body.dialect.select(f"{visited} < {count}", joined, total)
        else:
            found = f"{total} / {count}"
        found = body.let("f32", found)
        found = body.dialect.select(f"{count} > 0.0f", found, "0.0f")
        body.store(3, body.place(3, at), body.let("f32", found))

    def _taps(self, body: Body, line: _Line, number: str, axis: int) -> list[str]:
        """Whether a sample lies in the image, and two elements with their weights."""
        size = body.let("f32", body.dialect.convert("f32", body.size(5 + axis)))
        ahead = f"({body.dialect.convert('f32', number)} + 0.5f) * {line.step}"
        place = body.let("f32", f"{line.start} + {ahead}")
        inside = body.let("i1", f"{place} >= -1.0f && {place} <= {size}")
        near = body.let("f32", f"max(min({place}, {size} - 1.0f), 0.0f)")
        low = body.let("f32", body.dialect.call("floor", near))
        rest = body.let("f32", f"{near} - {low}")
        first = body.let("u32", body.dialect.convert("u32", low))
        second = body.let("u32", f"min({first} + 1u, {body.size(5 + axis)} - 1u)")
        return [inside, first, f"(1.0f - {rest})", second, rest]


def record_roi_align(
    recorder: Recorder[Any],
    x: View,
    regions: View,
    images: View,
    out: View,
    *,
    mode: str,
    samples: int,
    scale: float,
    half_pixel: bool,
    label: str = "RoiAlign",
) -> None:
    """ONNX's RoiAlign; see ``ir.images.RegionPools``."""
    if not out.size:
        return
    element, corners = operand(x).element, operand(regions).element
    if (
        {KINDS.get(element), KINDS.get(corners)} != {"f32"}
        or mode not in ("avg", "max")
        or not 0 <= samples <= _MOST_SAMPLES
        or not 0 < scale < math.inf
        or not x.size
    ):
        raise ValueError(
            f"{label} of {x.dtype}{list(x.shape)}, mode {mode}, {samples} samples, "
            f"scale {scale}"
        )
    count = x.shape[0]
    flags = [
        recorder.check(
            lambda _: ValueError(
                "regions have corners that are not finite; expected numbers"
            )
        ),
        recorder.check(
            lambda _: IndexError(
                f"an image of {label} is out of range; expected 0 to {count - 1}"
            )
        ),
    ]
    raised = [View.contiguous(flag.buffer, _WORD, (), flag.offset) for flag in flags]
    kernel = RoiAlignKernel(
        element, corners, mode, half_pixel, samples == 0, float(scale)
    )
    sizes = (out.size, *out.shape, *x.shape[2:], count, samples)
    launch(
        recorder,
        kernel,
        [x, regions, images, out, *raised],
        sizes,
        math.ceil(out.size / LANES),
        label,
        8 * out.size * max(samples, 1) ** 2,
    )
