"""Sorts lines of words by a bitonic network (K. E. Batcher, "Sorting networks and their
applications", 1968): tiles within workgroups, and what is farther apart in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import launch
from onnxplug_compiler.gpu.families import ranks
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_TILE: Final = 1024
"""Entries that a workgroup sorts; of three words each they take 12 KiB of its 16."""


def _swap_sorted(
    body: Body, first: Sequence[str], second: Sequence[str], ascending: str
) -> tuple[list[str], list[str]]:
    """Two entries in the order that is wanted."""
    select = body.dialect.select
    swaps = body.let("i1", f"{ranks.before(second, first)} == {ascending}")
    low, high = [], []
    for one, other in zip(first, second, strict=True):
        low.append(body.let("u32", select(swaps, other, one)))
        high.append(body.let("u32", select(swaps, one, other)))
    return low, high


class TileSortKernel(Parameters):
    """Sorts tiles, or merges what is bitonic in them.

    The sizes are how many tiles there are, how many entries a line has, and, to merge,
    how many a sorted part of it has then; all are powers of two.

    Attributes:
        words: of an entry, each in an array of its own.
        tile: entries of a workgroup.
        merges: only the last stage is left to do.
    """

    words: int
    tile: int
    merges: bool

    sizes = 3

    @property
    def lanes(self) -> int:
        """Each has two entries at least."""
        return min(256, self.tile // 2)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand("u32", 1, True),) * self.words

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            base = body.let("u32", f"block * {self.tile}u")
            shared = [body.array("u32", self.tile) for _ in range(self.words)]
            with self._entries(body, self.tile) as entry:
                at = body.let("u32", f"{base} + {entry}")
                for number, array in enumerate(shared):
                    value = body.load(number, body.place(number, [at]))
                    body.assign(f"{array}[{entry}]", value)
            body.wait()
            stages = self.tile.bit_length() - 1
            if self.merges:
                self._stage(body, shared, base, body.size(2), f"{stages}u")
            else:
                with body.loop(f"{stages + 1}u", "1u") as stage:
                    part = body.let("u32", f"1u << {stage}")
                    self._stage(body, shared, base, part, stage)
            with self._entries(body, self.tile) as entry:
                at = body.let("u32", f"{base} + {entry}")
                for number, array in enumerate(shared):
                    place = body.place(number, [at])
                    body.store(number, place, f"{array}[{entry}]")

    def _entries(self, body: Body, count: int) -> Any:
        return body.loop(f"{count}u", "lane", f"{self.lanes}u")

    def _stage(
        self, body: Body, shared: Sequence[str], base: str, part: str, steps: str
    ) -> None:
        """Compare entries that are half of a part apart, a quarter and so on, *steps*
        times to the neighbours."""
        with body.loop(steps) as step:
            apart = body.let("u32", f"1u << ({steps} - 1u - {step})")
            with self._entries(body, self.tile // 2) as pair:
                block = body.let("u32", f"{pair} / {apart}")
                low = body.let("u32", f"{pair} + {block} * {apart}")
                high = body.let("u32", f"{low} + {apart}")
                at = body.let("u32", f"({base} + {low}) & ({body.size(1)} - 1u)")
                ascending = body.let("i1", f"({at} & {part}) == 0u")
                first = [body.let("u32", f"{array}[{low}]") for array in shared]
                second = [body.let("u32", f"{array}[{high}]") for array in shared]
                pairs = _swap_sorted(body, first, second, ascending)
                for place, entry in zip((low, high), pairs, strict=True):
                    for array, word in zip(shared, entry, strict=True):
                        body.assign(f"{array}[{place}]", word)
            body.wait()


class SortStepKernel(Parameters):
    """Compares entries that are farther apart than a tile; the sizes are how many
    pairs there are, entries of a line, of a sorted part, and how far apart."""

    words: int

    lanes = LANES
    sizes = 4

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand("u32", 1, True),) * self.words

    def write(self, body: Body) -> None:
        pair = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{pair} < {body.size(0)}"):
            apart = body.let("u32", body.size(3))
            low = body.let("u32", f"{pair} + ({pair} / {apart}) * {apart}")
            at = body.let("u32", f"{low} & ({body.size(1)} - 1u)")
            ascending = body.let("i1", f"({at} & {body.size(2)}) == 0u")
            places = [low, body.let("u32", f"{low} + {apart}")]
            entries = [
                [
                    body.load(number, body.place(number, [place]))
                    for number in range(self.words)
                ]
                for place in places
            ]
            pairs = _swap_sorted(body, entries[0], entries[1], ascending)
            for place, entry in zip(places, pairs, strict=True):
                for number, word in enumerate(entry):
                    body.store(number, body.place(number, [place]), word)


def record_sort(
    recorder: Recorder[Any], words: Sequence[View], size: int, label: str
) -> None:
    """Sort the entries of each line, the smallest first, in place.

    Args:
        words: of entries, u32, the first of most weight: each all lines in C order.
        size: entries of a line, a power of two from 2 on.
    """
    total = words[0].size
    tile = min(size, _TILE)
    views, count = list(words), len(words)

    def record_tiles(part: int, *, merges: bool) -> None:
        tiles = total // tile
        kernel = TileSortKernel(count, tile, merges)
        launch(recorder, kernel, views, (tiles, size, part), tiles, f"{label} sort")

    record_tiles(0, merges=False)
    part = 2 * tile
    while part <= size:
        apart = part // 2
        while apart >= tile:
            sizes = (total // 2, size, part, apart)
            groups = math.ceil(total / 2 / LANES)
            kernel = SortStepKernel(count)
            launch(recorder, kernel, views, sizes, groups, f"{label} sort")
            apart //= 2
        record_tiles(part, merges=True)
        part *= 2
