"""Lines in the order of their elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families import ranks
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.sorting import record_sort
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class RankKernel(Parameters):
    """Writes the order of the elements of lines, and where they are in these; beyond
    the elements what comes after all of them.

    The sizes are how many there are in all, how many a line has, rounded up, and
    without that, and those of the axes but that of the lines.
    """

    element: str
    rank: int
    largest: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        count = ranks.count_of(self.element) + 1
        return (
            Operand(self.element, self.rank + 1),
            *[Operand("u32", 1, True)] * count,
        )

    @property
    def sizes(self) -> int:
        return 3 + self.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            number = body.let("u32", f"{index} % {body.size(1)}")
            line = body.let("u32", f"{index} / {body.size(1)}")
            at = body.coordinates(line, range(3, 3 + self.rank))
            inside = body.let("i1", f"{number} < {body.size(2)}")
            near = body.let("u32", body.dialect.select(inside, number, "0u"))
            value = body.load(0, body.place(0, [*at, near]))
            words = ranks.rank(
                body, self.element, value, largest=self.largest, nan_first=self.largest
            )
            for position, word in enumerate([*words, number], 1):
                found = body.dialect.select(inside, word, ranks.LAST)
                body.store(position, body.place(position, [index]), found)


def record_ranks(
    recorder: Recorder[Any], x: View, *, largest: bool, label: str
) -> list[View]:
    """The words by which the elements along the last axis are sorted, in their order,
    and last where each of these was.

    Returns:
        Of each all lines in C order, each filled up to a power of two of at least two.
    """
    *lines, count = x.shape
    padded = max(2, 1 << (count - 1).bit_length())
    total = math.prod(lines) * padded
    element, word = operand(x).element, np.dtype(np.uint32)
    words = [
        recorder.temporary(word, (total,)) for _ in range(ranks.count_of(element) + 1)
    ]
    launch(
        recorder,
        RankKernel(element, len(lines), largest),
        [x, *words],
        (total, padded, count, *lines),
        math.ceil(total / LANES),
        f"{label} ranks",
        total,
    )
    record_sort(recorder, words, padded, label)
    return words
