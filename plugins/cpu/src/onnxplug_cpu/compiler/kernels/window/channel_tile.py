"""Windows side by side along a line, with channels along the lanes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.rows import Elements, move
from onnxplug_cpu.compiler.kernels.window.combining import Combining, Folding
from onnxplug_cpu.compiler.kernels.window.tile import Tile
from onnxplug_cpu.compiler.target.isa import Isa


class ChannelTile(Generator):
    """Windows side by side, whose lines have few elements, one after the other.

    Each element that is loaded serves all windows that it lies in.  Without weights the
    lines are combined first, column by column, and then the columns of each window.

    The first window's last element of a line must lie at 0 or further on, and the last
    window's first one before the line's end.

    Attributes:
        combining: what elements become.
        pixels: how many windows.
        taps: elements of a line of a window.
        stride: from window to window.
        near: whether the channels of the output are consecutive; those of the input
            are.
        depth: channels of a group, each of which has a weight in each: a power of two,
            at most as many as a register has.  There are as many weights for a tap, one
            channel's of all groups after the other's.
    """

    combining: Combining
    pixels: int
    taps: int
    stride: int
    near: bool
    depth: int = 1

    def write(self, module: Module, name: str, isa: Isa) -> None:
        t = Tile(module, name, isa, self.combining)
        f, folding = t.f, t.folding
        columns = self._columns()
        last = (self.pixels - 1) * self.stride
        # all others are in the line, as the windows are where they have to be
        inside = {
            column: (t["base"] + column).compare("ge", 0)
            & (t["base"] + column).compare("lt", t["width"])
            for column in columns
            if column < self.taps - 1 or column > last
        }
        source = Elements(f, t.vector)
        target = Elements(f, t.vector, None if self.near else t["out_channel"])
        divisors = self._divisors(t) if self.combining.divides else None
        places_of = _places(f, t["x_pixel"], last + self.taps)
        places_of_results = _places(f, t["out_pixel"], self.pixels)
        places_of_weights = _places(f, t["w_tap"], self.taps * self.depth)

        def strip(channel: Value, mask: Value | None) -> None:
            def line(x: Value, w: Value, totals: Sequence[Value]) -> Sequence[Value]:
                weights: list[Value] = []
                for _ in range(self.taps if t.weighs and self.depth == 1 else 0):
                    weights.append(source.load(w, mask))
                    w = move(f, w, t["w_tap"])
                places = places_of(x)
                after = list(totals)
                for column, users in columns.items():

                    def taken(
                        place: Value = places[column],
                        users: dict[int, int] = users,
                    ) -> list[Value]:
                        element = source.load(place, mask)
                        if self.depth > 1:
                            numbers = [after[number] for number in users]
                            return self._of_groups(
                                t, element, w, places_of_weights, users, numbers, mask
                            )
                        return [
                            folding.step(
                                after[number],
                                element,
                                weights[tap] if weights else None,
                            )
                            for number, tap in users.items()
                        ]

                    if column in inside:
                        before = [after[number] for number in users]
                        changed = f.branch(
                            inside[column], taken, functools.partial(list, before)
                        )
                    else:
                        changed = taken()
                    for number, total in zip(users, changed, strict=True):
                        after[number] = total
                return after

            x = source.at(t["x"], channel)
            w = source.at(t["w"], channel) if t.weighs else t["w"]
            for place in places_of_results(target.at(t["out"], channel)):
                f.prefetch(place, write=True)
            numbers = {number for users in columns.values() for number in users}
            start = [folding.start()] * len(numbers)
            totals = self._of_windows(folding, t.lines(line, x, w, start))
            places = places_of_results(target.at(t["out"], channel))
            for pixel, (total, place) in enumerate(zip(totals, places, strict=True)):

                def divisor(pixel: int = pixel) -> Value:
                    assert divisors is not None
                    return f.load_splat(f.at(divisors, pixel, F32), t.vector)

                target.store(folding.finish(total, divisor), place, mask)

        t.strips(t["channels"], strip)
        f.finish()

    def _of_groups(
        self,
        t: Tile,
        element: Value,
        w: Value,
        places: Callable[[Value], list[Value]],
        users: Mapping[int, int],
        totals: Sequence[Value],
        mask: Value | None,
    ) -> list[Value]:
        """*totals* with all channels of each group's *element*, by weights in memory:
        there are too many for the registers."""
        source, lanes = Elements(t.f, t.vector), range(t.lanes)
        after = list(totals)
        for channel in range(self.depth):
            others = [lane - lane % self.depth + channel for lane in lanes]
            factor = t.f.shuffle(element, element, others)
            for index, tap in enumerate(users.values()):
                weight = source.load(places(w)[tap * self.depth + channel], mask)
                after[index] = t.folding.step(after[index], factor, weight)
                (w,) = known_after(t.f, t.isa, [w], [after[index]])
        return after

    def _columns(self) -> dict[int, dict[int, int]]:
        """By column the totals that it is combined with, and the tap of each."""
        found: dict[int, dict[int, int]] = {}
        for pixel in range(self.pixels):
            for tap in range(self.taps):
                found.setdefault(pixel * self.stride + tap, {})[pixel] = tap
        if not self.combining.weighs:
            return {column: {n: 0} for n, column in enumerate(sorted(found))}
        return dict(sorted(found.items()))

    def _of_windows(self, folding: Folding, totals: Sequence[Value]) -> list[Value]:
        """The totals of windows from those of :meth:`_columns`."""
        if self.combining.weighs:
            return list(totals)
        of_column = dict(zip(self._columns(), totals, strict=True))
        found = []
        for pixel in range(self.pixels):
            first = pixel * self.stride
            total = of_column[first]
            for tap in range(1, self.taps):
                total = folding.join(total, of_column[first + tap])
            found.append(total)
        return found

    def _divisors(self, t: Tile) -> Value:
        """How many elements of each window count, as f32 in memory."""
        f = t.f
        divisors = f.stack(F32, self.pixels)
        low, high = t["low"] - t["base"], t["high"] - t["base"]
        for pixel in range(self.pixels):
            begin = pixel * self.stride
            elements = f.minimum(high, begin + self.taps) - f.maximum(low, begin)
            elements = f.maximum(elements, 0) * t["count"]
            f.store(f.convert(elements, F32), f.at(divisors, pixel, F32))
        return divisors


_GROUP: Final = 8
"""Columns that are reached from one address."""


def _places(f: Function, step: Value, count: int) -> Callable[[Value], list[Value]]:
    """What gives *count* addresses, *step* bytes apart, from the first one."""
    steps = [step * member for member in range(min(count, _GROUP))]
    group = step * _GROUP

    def places(first: Value) -> list[Value]:
        found: list[Value] = []
        while len(found) < count:
            members = steps[: count - len(found)]
            found += [first, *(move(f, first, each) for each in members[1:])]
            first = move(f, first, group)
        return found

    return places
