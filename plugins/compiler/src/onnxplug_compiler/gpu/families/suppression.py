"""Boxes that share little with better ones: a workgroup for each image and class."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch
from onnxplug_compiler.gpu.families.compaction import record_none
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.ranking import record_ranks
from onnxplug_compiler.gpu.families.sums import record_sums
from onnxplug_compiler.gpu.render.body import Body, Operand, Pair
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.selection import Limits
from onnxplug_compiler.ir.views import View

_LANES: Final = 256
_MOST_BOXES: Final = 1 << 16
"""Of an image: of each a workgroup has a bit."""

_WORD: Final = np.dtype(np.uint32)


class SuppressionKernel(Parameters):
    """Selects boxes of each class, the best first.

    The sizes are how many classes there are in all, of an image, boxes, places of a
    line in order, and boxes that are selected of a class at most.  The arrays are the
    places in order, the boxes, the scores, the limits, what is selected, how many that
    are, and a flag.

    Attributes:
        words: each lane has the bits of some.
        centers: boxes are a centre and two sizes, not two corners.
    """

    words: int
    centers: bool

    lanes = _LANES
    sizes = 5

    @property
    def operands(self) -> tuple[Operand, ...]:
        single = Operand("f32", 0)
        return (
            Operand("u32", 1),
            Operand("f32", 3),
            Operand("f32", 3),
            Operand("i64", 0),
            single,
            single,
            Operand("u32", 2, True),
            Operand("u32", 1, True),
            Operand("flag", 0, True),
        )

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            line = [
                body.let("u32", f"block / {body.size(1)}"),
                body.let("u32", f"block % {body.size(1)}"),
            ]
            gone = body.array("u32", self.words)
            with body.loop(f"{self.words}u", "lane", f"{_LANES}u") as word:
                body.assign(f"{gone}[{word}]", "0u")
            body.wait()
            most, overlap, least = self._limits(body)
            selected = body.var("u32", "0u")
            boxes = body.let("u32", body.size(2))
            with body.loop(boxes) as place:
                entry = body.let("u32", f"block * {body.size(3)} + {place}")
                box = body.load(0, body.place(0, [entry]))
                score = body.load(2, body.place(2, [*line, box]))
                bit = f"(({gone}[{box} / 32u] >> ({box} % 32u)) & 1u)"
                takes = body.let(
                    "i1", f"{bit} == 0u && {score} > {least} && {selected} < {most}"
                )
                # all have looked before some write
                body.wait()
                with body.when(takes):
                    with body.when("lane == 0u"):
                        at = body.place(6, ["block", selected])
                        body.store(6, at, box)
                    body.assign(selected, f"{selected} + 1u")
                    self._suppress(body, gone, line[0], box, overlap)
                body.wait()
            with body.when("lane == 0u"):
                body.store(7, body.place(7, ["block"]), selected)

    def _limits(self, body: Body) -> tuple[str, str, str]:
        given = body.load(3, body.place(3, []))
        room = body.size(4)
        negative = f"({given.high} >> 31u) != 0u"
        beyond = f"{given.high} != 0u || {given.low} > {room}"
        most = body.dialect.select(beyond, room, given.low)
        most = body.let("u32", body.dialect.select(negative, "0u", most))
        overlap = body.load(4, body.place(4, []))
        with body.when(f"!({overlap} >= 0.0f && {overlap} <= 1.0f)"):
            body.raise_flag(8)
        return most, overlap, body.load(5, body.place(5, []))

    def _suppress(
        self, body: Body, gone: str, image: str, box: str, overlap: str
    ) -> None:
        """Mark what shares more than *overlap* with a box, and the box."""
        chosen = self._corners(body, image, box)
        boxes = body.let("u32", body.size(2))
        with body.loop(f"{self.words}u", "lane", f"{_LANES}u") as word:
            bits = body.var("u32", f"{gone}[{word}]")
            with body.loop("32u") as bit:
                other = body.let("u32", f"{word} * 32u + {bit}")
                unknown = f"(({bits} >> {bit}) & 1u) == 0u"
                with body.when(f"{other} < {boxes} && {unknown}"):
                    shares = self._shares(
                        body, chosen, self._corners(body, image, other), overlap
                    )
                    with body.when(f"{shares} || {other} == {box}"):
                        body.assign(bits, f"{bits} | (1u << {bit})")
            body.assign(f"{gone}[{word}]", bits)

    def _corners(self, body: Body, image: str, box: str) -> list[str]:
        """The low and the high corner of a box, and its area."""
        given = [
            body.load(1, body.place(1, [image, box, f"{number}u"]))
            for number in range(4)
        ]
        low, high = [], []
        for first, second in zip(given[:2], given[2:], strict=True):
            if self.centers:
                half = body.let("f32", f"{second} * 0.5f")
                low.append(body.let("f32", f"{first} - {half}"))
                high.append(body.let("f32", f"{first} + {half}"))
            else:
                low.append(body.let("f32", f"min({first}, {second})"))
                high.append(body.let("f32", f"max({first}, {second})"))
        area = f"({high[0]} - {low[0]}) * ({high[1]} - {low[1]})"
        return [*low, *high, body.let("f32", area)]

    def _shares(self, body: Body, a: list[str], b: list[str], overlap: str) -> str:
        """Whether two boxes share more than *overlap* of what they have together."""
        sides = []
        for axis in (0, 1):
            low = f"max({a[axis]}, {b[axis]})"
            high = f"min({a[2 + axis]}, {b[2 + axis]})"
            sides.append(body.let("f32", f"{high} - {low}"))
        common = body.let("f32", f"max({sides[0]}, 0.0f) * max({sides[1]}, 0.0f)")
        union = body.let("f32", f"{a[4]} + {b[4]} - {common}")
        some = body.let("i1", f"{common} > 0.0f && {union} > 0.0f")
        share = body.dialect.select(some, f"{common} / {union}", "0.0f")
        return body.let("i1", f"{share} > {overlap}")


class SelectedKernel(Parameters):
    """Writes image, class and box of what is selected, one class after another; the
    sizes are how many classes there are in all, and of an image.  The arrays are what
    is selected of each, how many that are, how many are before, and the result."""

    lanes = LANES
    sizes = 2

    @property
    def operands(self) -> tuple[Operand, ...]:
        word = Operand("u32", 1)
        return Operand("u32", 2), word, word, Operand("i64", 2, True)

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            count, before = (
                body.load(number, body.place(number, ["block"])) for number in (1, 2)
            )
            image = body.let("u32", f"block / {body.size(1)}")
            kind = body.let("u32", f"block % {body.size(1)}")
            with body.loop(count, "lane", f"{LANES}u") as number:
                box = body.load(0, body.place(0, ["block", number]))
                row = body.let("u32", f"{before} + {number}")
                for column, value in enumerate((image, kind, box)):
                    place = body.place(3, [row, f"{column}u"])
                    body.store(3, place, Pair(value, "0u"))


def record_suppression(
    recorder: Recorder[Any],
    boxes: View,
    scores: View,
    limits: Limits,
    out: View,
    count: View,
    *,
    centers: bool,
) -> None:
    """Select boxes; see ``ir.selection.Selection``."""
    images, classes, size = scores.shape
    lines = images * classes
    if not out.size or not scores.size:
        record_none(recorder, count)
        return
    if size > _MOST_BOXES:
        raise ValueError(f"NonMaxSuppression of {size} boxes of an image")
    label, each = "NonMaxSuppression", out.shape[0] // lines
    places = record_ranks(recorder, scores, largest=True, label=label)[-1]
    # in one buffer, as a kernel has few
    both = recorder.temporary(_WORD, (lines * (each + 1),)).buffer
    chosen = View.contiguous(both, _WORD, (lines, each))
    counts = View.contiguous(both, _WORD, (lines,), chosen.nbytes)
    flag = recorder.check(
        lambda _: ValueError("iou_threshold is no number from 0 to 1")
    )
    given = [_scalar(view) for view in limits]
    raised = View.contiguous(flag.buffer, _WORD, (), flag.offset)
    kernel = SuppressionKernel(-(-size // 32), centers)
    launch(
        recorder,
        kernel,
        [places, boxes, scores, *given, chosen, counts, raised],
        (lines, classes, size, places.size // lines, each),
        lines,
        label,
        20 * lines * size,
    )
    before = record_sums(recorder, counts, count, label)
    views = [chosen, counts, before, out]
    launch(recorder, SelectedKernel(), views, (lines, classes), lines, label)


def _scalar(view: View) -> View:
    return View(view.buffer, view.offset, view.dtype, (), ())
