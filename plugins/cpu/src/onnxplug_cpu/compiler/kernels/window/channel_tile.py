"""Windows side by side along a line, with channels along the lanes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from onnxplug_compiler.ir.windows import Combining
from onnxplug_cpu.compiler.codegen.emit import F32, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.rows import Elements, move
from onnxplug_cpu.compiler.kernels.window.tile import Numbers, Tile
from onnxplug_cpu.compiler.machine.isa import Isa


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
        element: of the input: f32, or i8 or u8 for codes.
        moved: whether these have a zero point.
    """

    combining: Combining
    pixels: int
    taps: int
    stride: int
    near: bool
    depth: int = 1
    element: str = "f32"
    moved: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _ChannelTile(module, name, isa, self).write()


class _ChannelTile(Tile):
    """The loop over strips of channels, and the columns of lines.

    Attributes:
        columns: by column the totals that it is combined with, and the tap of each.
        inside: of columns that may be beyond the line, whether they are within.
    """

    def __init__(self, module: Module, name: str, isa: Isa, form: ChannelTile) -> None:
        super().__init__(module, name, isa, form.combining)
        self.form = form
        f, arguments, vector = self.f, self.arguments, self.vector
        self.columns = self._columns()
        last = (form.pixels - 1) * form.stride
        # all others are in the line, as the windows are where they have to be
        self.inside = {
            column: (arguments.base + column).compare("ge", 0)
            & (arguments.base + column).compare("lt", arguments.width)
            for column in self.columns
            if column < form.taps - 1 or column > last
        }
        self.source = Numbers(self, form.element, form.moved)
        self.weights = Elements(f, vector)
        self.target = self.results(form.near)
        self.divisors = self._divisors() if form.combining.divides else None
        self.places = _places(f, arguments.x_pixel, last + form.taps)
        self.places_of_results = _places(f, arguments.out_pixel, form.pixels)
        self.places_of_weights = _places(f, arguments.w_tap, form.taps * form.depth)

    def write(self) -> None:
        self.strips(self.arguments.channels, self._strip)
        self.f.finish()

    def _strip(self, channel: Value, mask: Value | None) -> None:
        f, arguments, source = self.f, self.arguments, self.source

        def line(x: Value, w: Value, totals: Sequence[Value]) -> list[Value]:
            return self._line(x, w, totals, mask)

        x = source.at(arguments.x, channel)
        w = self.weights.at(arguments.w, channel) if self.weighs else arguments.w
        for place in self.places_of_results(self.target.at(arguments.out, channel)):
            f.prefetch(place, write=True)
        numbers = {number for users in self.columns.values() for number in users}
        start = [self.folding.start()] * len(numbers)
        totals = self._of_windows(self.lines(line, x, w, start))
        places = self.places_of_results(self.target.at(arguments.out, channel))
        for pixel, (total, place) in enumerate(zip(totals, places, strict=True)):
            divisor = functools.partial(self._divisor, pixel)
            self.target.store(self.folding.finish(total, divisor), place, mask)

    def _line(
        self, x: Value, w: Value, totals: Sequence[Value], mask: Value | None
    ) -> list[Value]:
        """*totals* with the elements of a line."""
        weights: list[Value] = []
        for _ in range(self.form.taps if self.weighs and self.form.depth == 1 else 0):
            weights.append(self.weights.load(w, mask))
            w = move(self.f, w, self.arguments.w_tap)
        places = self.places(x)
        after = list(totals)
        for column, users in self.columns.items():
            before = [after[number] for number in users]
            taken = functools.partial(
                self._column, places[column], users, before, weights, w, mask
            )
            if column in self.inside:
                unchanged = functools.partial(list[Value], before)
                changed = self.f.branch(self.inside[column], taken, unchanged)
            else:
                changed = taken()
            for number, total in zip(users, changed, strict=True):
                after[number] = total
        return after

    def _column(
        self,
        place: Value,
        users: Mapping[int, int],
        totals: Sequence[Value],
        weights: Sequence[Value],
        w: Value,
        mask: Value | None,
    ) -> list[Value]:
        """*totals* with the element at *place*."""
        element = self.source.load(place, mask)
        if self.form.depth > 1:
            return self._of_groups(element, w, users, totals, mask)
        return [
            self.folding.step(total, element, weights[tap] if weights else None)
            for total, tap in zip(totals, users.values(), strict=True)
        ]

    def _of_groups(
        self,
        element: Value,
        w: Value,
        users: Mapping[int, int],
        totals: Sequence[Value],
        mask: Value | None,
    ) -> list[Value]:
        """*totals* with all channels of each group's *element*, by weights in memory:
        there are too many for the registers."""
        depth, after = self.form.depth, list(totals)
        for channel in range(depth):
            others = [lane - lane % depth + channel for lane in range(self.lanes)]
            factor = self.f.shuffle(element, element, others)
            for index, tap in enumerate(users.values()):
                place = self.places_of_weights(w)[tap * depth + channel]
                weight = self.weights.load(place, mask)
                after[index] = self.folding.step(after[index], factor, weight)
                (w,) = known_after(self.f, self.isa, [w], [after[index]])
        return after

    def _columns(self) -> dict[int, dict[int, int]]:
        form = self.form
        found: dict[int, dict[int, int]] = {}
        for pixel in range(form.pixels):
            for tap in range(form.taps):
                found.setdefault(pixel * form.stride + tap, {})[pixel] = tap
        if not self.weighs:
            return {column: {n: 0} for n, column in enumerate(sorted(found))}
        return dict(sorted(found.items()))

    def _of_windows(self, totals: Sequence[Value]) -> list[Value]:
        """The totals of windows from those of columns."""
        if self.weighs:
            return list(totals)
        of_column = dict(zip(self.columns, totals, strict=True))
        found = []
        for pixel in range(self.form.pixels):
            first = pixel * self.form.stride
            total = of_column[first]
            for tap in range(1, self.form.taps):
                total = self.folding.join(total, of_column[first + tap])
            found.append(total)
        return found

    def _divisors(self) -> Value:
        """How many elements of each window count, as f32 in memory."""
        f, form, arguments = self.f, self.form, self.arguments
        divisors = f.stack(F32, form.pixels)
        low, high = arguments.low - arguments.base, arguments.high - arguments.base
        for pixel in range(form.pixels):
            begin = pixel * form.stride
            elements = f.minimum(high, begin + form.taps) - f.maximum(low, begin)
            elements = f.maximum(elements, 0) * arguments.count_
            f.store(f.convert(elements, F32), f.at(divisors, pixel, F32))
        return divisors

    def _divisor(self, pixel: int) -> Value:
        assert self.divisors is not None
        return self.f.load_splat(self.f.at(self.divisors, pixel, F32), self.vector)


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
