"""Images that are read at points of a run: one invocation for each result.

A place along an axis is checked, or brought within it, as an integer, so nothing
outside the image is read whatever the points are.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import is_finite
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}
_CUBIC: Final = -0.75
"""The parameter of R. Keys, "Cubic Convolution Interpolation for Digital Image
Processing", 1981, that ONNX's GridSample has."""

_FAR: Final = "1000000.0f"
"""Elements behind an end of an axis, which is outside, however long it is."""

_LONGEST: Final = 1 << 21
"""Elements of an axis whose halves float32 has, too."""


class _Tap(Record):
    """What is read along an axis.

    Attributes:
        place: within the axis wherever *inside*.
        weight: ``None`` is 1.
        inside: ``None`` is everywhere.
    """

    place: str
    weight: str | None
    inside: str | None


class GridSampleKernel(Parameters):
    """ONNX's GridSample; the sizes are how many results there are, those of their axes,
    and the image's spatial ones.  The arrays are the image, the points, the result.

    Attributes:
        element, points: the elements of the images, and of the points.
    """

    element: str
    points: str
    rank: int
    mode: str
    padding: str
    align_corners: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand(self.element, 2 + self.rank),
            Operand(self.points, 3),
            Operand(self.element, 3, True),
        )

    @property
    def sizes(self) -> int:
        return 4 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            image, channel, point = body.coordinates(index, range(1, 4))
            axes = []
            for axis in range(self.rank):
                inner = f"{self.rank - 1 - axis}u"
                place = body.place(1, [image, point, inner])
                axes.append(_Axis(body, self, axis).taps(body.load(1, place)))
            total = body.var("f32", "0.0f")
            for taps in itertools.product(*axes):
                inside = [tap.inside for tap in taps if tap.inside is not None]
                with body.when(" && ".join(inside) or "true"):
                    at = [image, channel, *(f"u32({tap.place})" for tap in taps)]
                    value = body.load(0, body.place(0, at))
                    weights = [tap.weight for tap in taps if tap.weight is not None]
                    product = " * ".join([value, *weights])
                    body.assign(total, f"{total} + {product}")
            body.store(2, body.place(2, [image, channel, point]), total)


class _Axis:
    """Finds the taps along a spatial axis."""

    def __init__(self, body: Body, kernel: GridSampleKernel, axis: int) -> None:
        self.body, self.kernel = body, kernel
        self.count = body.let("i32", body.dialect.word(4 + axis))
        self.size = body.let("f32", body.dialect.convert("f32", self.count))
        corners = kernel.align_corners
        self.low = body.number("f32", 0.0 if corners else -0.5)
        self.span = body.let("f32", f"{self.size} - 1.0f" if corners else self.size)

    def taps(self, coordinate: str) -> list[_Tap]:
        """What is read at a coordinate from -1 to 1."""
        body, mode, padding = self.body, self.kernel.mode, self.kernel.padding
        select = body.dialect.select
        place = body.let(
            "f32", f"({coordinate} + 1.0f) * 0.5f * {self.span} + {self.low}"
        )
        if padding == "reflection":
            # infinity has no mirror image
            place = body.let("f32", select(is_finite(body, place), place, self.low))
        if mode == "nearest":
            place = body.let("f32", body.dialect.call("rint", place))
        if padding == "reflection":
            place = self._reflected(place)
        # the cubic curve goes on beyond the border
        if padding == "border" and mode != "cubic":
            place = body.let("f32", select(f"{place} < 0.0f", "0.0f", place))
            last = f"{self.size} - 1.0f"
            place = body.let("f32", select(f"{place} > {last}", last, place))
        # NaN has no place, so it goes outside
        place = body.let("f32", select(f"{place} > -{_FAR}", place, f"-{_FAR}"))
        end = f"{self.size} + {_FAR}"
        place = body.let("f32", select(f"{place} > {end}", end, place))
        whole = body.let("f32", body.dialect.call("floor", place))
        index = body.let("i32", body.dialect.convert("i32", whole))
        rest = body.let("f32", f"{place} - {whole}")
        if mode == "nearest":
            return [self._tap(index, None)]
        if mode == "linear":
            weights = {0: f"(1.0f - {rest})", 1: rest}
        else:
            weights = {
                -1: _far(body, f"({rest} + 1.0f)"),
                0: _near(body, rest),
                1: _near(body, f"(1.0f - {rest})"),
                2: _far(body, f"(2.0f - {rest})"),
            }
        return [self._tap(f"{index} + {n}", weight) for n, weight in weights.items()]

    def _tap(self, index: str, weight: str | None) -> _Tap:
        body, padding = self.body, self.kernel.padding
        index = body.let("i32", index)
        if padding == "zeros":
            inside = body.let("i1", f"{index} >= 0 && {index} < {self.count}")
            return _Tap(index, weight, inside)
        if padding == "reflection":
            mirrored = self._reflected(body.dialect.convert("f32", index))
            index = body.let("i32", body.dialect.convert("i32", mirrored))
        index = body.let("i32", f"max(min({index}, {self.count} - 1), 0)")
        return _Tap(index, weight, None)

    def _reflected(self, place: str) -> str:
        """*place* mirrored at both ends until it is between."""
        body, select = self.body, self.body.dialect.select
        around = body.let("f32", f"{place} - {self.low}")
        period = body.let("f32", f"{self.span} + {self.span}")
        turns = body.dialect.call("floor", f"{around} / {period}")
        around = body.let("f32", f"{around} - {turns} * {period}")
        # the quotient may be rounded to the next whole number
        around = body.let(
            "f32", select(f"{around} < 0.0f", f"{around} + {period}", around)
        )
        around = body.let(
            "f32", select(f"{around} < {period}", around, f"{around} - {period}")
        )
        mirrored = f"{period} - {around}"
        around = body.let("f32", select(f"{around} > {self.span}", mirrored, around))
        # one element has no mirror image but itself
        found = select(f"{self.span} > 0.0f", f"{around} + {self.low}", self.low)
        return body.let("f32", found)


def _near(body: Body, distance: str) -> str:
    """Keys's kernel from 0 to 1."""
    a, b = body.number("f32", _CUBIC + 2), body.number("f32", -(_CUBIC + 3))
    bent = f"({distance} * {a} + {b})"
    return body.let("f32", f"{bent} * {distance} * {distance} + 1.0f")


def _far(body: Body, distance: str) -> str:
    """Keys's kernel from 1 to 2."""
    a, b, c, d = (body.number("f32", _CUBIC * n) for n in (1, -5, 8, -4))
    bent = f"(({distance} * {a} + {b}) * {distance} + {c})"
    return body.let("f32", f"{bent} * {distance} + {d}")


def record_grid_sample(
    recorder: Recorder[Any],
    x: View,
    grid: View,
    out: View,
    *,
    mode: str,
    padding: str,
    align_corners: bool,
    label: str = "GridSample",
) -> None:
    """ONNX's GridSample; see ``ir.images.GridSampling``."""
    if not out.size:
        return
    element, points = operand(x).element, operand(grid).element
    if (
        mode not in _TAPS
        or padding not in ("zeros", "border", "reflection")
        or {KINDS.get(element), KINDS.get(points)} != {"f32"}
        or not all(0 < size <= _LONGEST for size in x.shape[2:])
    ):
        raise ValueError(
            f"{label} of {x.dtype}{list(x.shape)} at {grid.dtype}, {mode} and {padding}"
        )
    rank = len(x.shape) - 2
    kernel = GridSampleKernel(element, points, rank, mode, padding, align_corners)
    launch(
        recorder,
        kernel,
        [x, grid, out],
        (out.size, *out.shape, *x.shape[2:]),
        math.ceil(out.size / LANES),
        label,
        2 * out.size * _TAPS[mode] ** rank,
    )
