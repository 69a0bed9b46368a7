"""Which elements are the largest or smallest, and where they are."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families import ranks
from onnxplug_compiler.gpu.families.compaction import (
    record_compress,
    record_distinct,
    record_non_zero,
)
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.ranking import record_ranks
from onnxplug_compiler.gpu.families.suppression import record_suppression
from onnxplug_compiler.gpu.render.body import Body, Operand, Pair
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

__all__ = [
    "record_arg_extreme",
    "record_compress",
    "record_distinct",
    "record_non_zero",
    "record_suppression",
    "record_top",
]


class ArgExtremeKernel(Parameters):
    """Where the first word in an order is; the sizes are how many lines there are, how
    many elements each has, and those of the axes but that of the lines.

    Attributes:
        rank: axes of the result.
        last: of equal elements the last is taken, not the first.
        shares: a workgroup shares a line; else each lane has one.
    """

    element: str
    rank: int
    largest: bool
    last: bool
    shares: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.element, self.rank + 1), Operand("i64", self.rank, True)

    @property
    def sizes(self) -> int:
        return 2 + self.rank

    def write(self, body: Body) -> None:
        line = body.let("u32", "block" if self.shares else f"block * {LANES}u + lane")
        # all lanes of a group go on, or none: they wait for each other
        with body.when(f"{line} < {body.size(0)}"):
            at = body.coordinates(line, range(2, 2 + self.rank))
            count = ranks.count_of(self.element) + 1
            best = [body.var("u32", ranks.LAST) for _ in range(count)]
            start, step = ("lane", f"{LANES}u") if self.shares else ("0u", "1u")
            with body.loop(body.size(1), start, step) as number:
                value = body.load(0, body.place(0, [*at, number]))
                words = ranks.rank(
                    body, self.element, value, largest=self.largest, nan_first=True
                )
                words.append(f"~{number}" if self.last else number)
                self._take(body, best, words)
            if self.shares:
                self._join(body, best)
            with body.when("lane == 0u" if self.shares else "true"):
                place = f"~{best[-1]}" if self.last else best[-1]
                found = body.let("u32", place)
                body.store(1, body.place(1, at), Pair(found, "0u"))

    def _take(self, body: Body, best: list[str], words: list[str]) -> None:
        with body.when(ranks.before(words, best)):
            for name, word in zip(best, words, strict=True):
                body.assign(name, word)

    def _join(self, body: Body, best: list[str]) -> None:
        """Let the first lane have what all lanes found."""
        shared = [body.array("u32", LANES) for _ in best]
        for array, name in zip(shared, best, strict=True):
            body.assign(f"{array}[lane]", name)
        body.wait()
        half = LANES // 2
        while half:
            with body.when(f"lane < {half}u"):
                self._take(body, best, [f"{array}[lane + {half}u]" for array in shared])
                for array, name in zip(shared, best, strict=True):
                    body.assign(f"{array}[lane]", name)
            body.wait()
            half //= 2


def record_arg_extreme(
    recorder: Recorder[Any],
    x: View,
    out: View,
    axis: int,
    *,
    largest: bool,
    last: bool = False,
) -> None:
    """Where the first of an order is; see ``ir.selection.Selection``."""
    if not out.size:
        return
    label = "ArgMax" if largest else "ArgMin"
    order = [*(each for each in range(len(x.shape)) if each != axis), axis]
    source, kept = x.transpose(order), out.transpose(order)
    shape, strides = kept.shape[:-1], kept.strides[:-1]
    target = View(out.buffer, out.offset, out.dtype, shape, strides)
    count = source.shape[-1]
    shares = count >= shapes_of(recorder).worth_a_group
    kernel = ArgExtremeKernel(operand(x).element, len(order) - 1, largest, last, shares)
    launch(
        recorder,
        kernel,
        [source, target],
        (target.size, count, *target.shape),
        target.size if shares else math.ceil(target.size / LANES),
        label,
        x.size,
    )


class PickKernel(Parameters):
    """Takes elements of lines by their places in these; the sizes are how many, how
    many places a line has, rounded up, and the axes of the result but that of the
    lines, and that."""

    data: Operand
    rank: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("u32", 1),
            self.data,
            self.data._replace(written=True),
            Operand("i64", self.rank + 1, True),
        )

    @property
    def sizes(self) -> int:
        return 3 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            *at, number = body.coordinates(index, range(2, 3 + self.rank))
            size = body.size(2 + self.rank)
            line = body.let("u32", f"{index} / {size}")
            entry = body.let("u32", f"{line} * {body.size(1)} + {number}")
            found = body.load(0, body.place(0, [entry]))
            wide = self.data.rank - self.rank - 1
            for half in (["0u"], ["1u"]) if wide else ([],):
                value = body.load(1, body.place(1, [*at, found, *half]))
                body.store(2, body.place(2, [*at, number, *half]), value)
            body.store(3, body.place(3, [*at, number]), Pair(found, "0u"))


def record_top(
    recorder: Recorder[Any],
    x: View,
    values: View,
    indices: View,
    axis: int,
    *,
    largest: bool,
) -> None:
    """The first of an order, in it; see ``ir.selection.Selection``."""
    if not values.size:
        return
    order = [*(each for each in range(len(x.shape)) if each != axis), axis]
    x, values, indices = (view.transpose(order) for view in (x, values, indices))
    lines = x.shape[:-1]
    places = record_ranks(recorder, x, largest=largest, label="TopK")[-1]
    padded = places.size // math.prod(lines)
    data, target = as_bits(x), as_bits(values)
    launch(
        recorder,
        PickKernel(operand(data), len(lines)),
        [places, data, target, indices],
        (values.size, padded, *values.shape),
        math.ceil(values.size / LANES),
        "TopK",
    )
