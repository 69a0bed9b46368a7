"""The innermost loops of windows: some windows of a line, for some channels.

There are three, which take the same arguments.  Two have channels along their lanes:
:class:`~.channel_tile.ChannelTile` knows how many elements a line of a window has, so
that each that is loaded serves all windows that it lies in; :class:`ChannelTaps` takes
any windows.  :class:`PixelTile` has windows along its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I64,
    PTR,
    U32,
    Function,
    Module,
    Operand,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.reduction.accumulator import Accumulator, Fold
from onnxplug_cpu.compiler.kernels.rows import Elements, move, opaque
from onnxplug_cpu.compiler.kernels.window.combining import (
    Combining,
    Folding,
    vector_of,
)
from onnxplug_cpu.compiler.target.isa import Isa

PARAMETERS: Final = (
    ("x", PTR),
    ("x_plane", I64),
    ("x_line", I64),
    ("x_pixel", I64),
    ("x_channel", I64),
    ("planes", I64),
    ("lines", I64),
    ("w", PTR),
    ("w_plane", I64),
    ("w_line", I64),
    ("w_tap", I64),
    ("taps", I64),
    ("stride", I64),
    ("dilation", I64),
    ("base", I64),
    ("width", I64),
    ("low", I64),
    ("high", I64),
    ("count", I64),
    ("pixels", I64),
    ("channels", I64),
    ("out", PTR),
    ("out_pixel", I64),
    ("out_channel", I64),
)
"""The arguments of a function that computes *pixels* windows for *channels* channels.

Distances in memory are in bytes.  A window has *taps* elements in each of *lines* lines
of *planes* planes, ``x_line`` and ``x_plane`` apart.  Along a line the first window
begins at the position *base*, the next ones *stride* further on, and elements are
*dilation* apart; ``x`` is the address of the position *base*, whether or not that is in
the line, and only positions from 0 to *width* are read.  Those that count are from
*low* to *high*, in *count* lines.

``w`` has the weights of the first line, whose channels are consecutive.
"""


class TileShape(NamedTuple):
    """What fits in the registers.

    Attributes:
        pixels: the most windows of a ``ChannelTile`` of stride 1; of another one
            half as many do.
        taps: the most elements of a line of such a window.
    """

    pixels: int
    taps: int


def tile_shape(isa: Isa) -> TileShape:
    """The largest tile without spills."""
    if isa.name == "avx512":
        return TileShape(14, 9)
    if isa.registers >= 32:
        return TileShape(12, 9)
    return TileShape(6, 7) if isa.name == "avx2" else TileShape(4, 5)


def group_pixels(isa: Isa, depth: int) -> int:
    """The same of :attr:`TileShape.pixels` for groups of *depth* channels."""
    most = tile_shape(isa).pixels
    fills = depth * F32.nbytes == isa.vector_bytes
    return most // 2 if fills or isa.registers > 16 else most


BLOCK: Final = 128
"""Elements of a line that are added up before the rounding error is looked at."""


Line: TypeAlias = Callable[[Value, Value, Sequence[Value]], Sequence[Value]]
"""From the addresses of a line and its weights, and a state: the state after it."""


class Tile:
    """What the functions have in common: arguments by name, and lanes."""

    def __init__(self, module: Module, name: str, isa: Isa, combining: Combining):
        self.f = f = module.function(name, PARAMETERS)
        self.isa = isa
        self.arguments = {
            name: value
            for (name, _), value in zip(PARAMETERS, f.parameters, strict=True)
        }
        self.vector = vector_of(isa)
        self.lanes = self.vector.lanes
        self.folding = Folding(f, isa, combining, self.vector)
        self.weighs = combining.weighs

    def __getitem__(self, name: str) -> Value:
        return self.arguments[name]

    def strips(
        self,
        count: Value,
        body: Callable[[Value, Value | None], None],
        start: Operand = 0,
    ) -> None:
        """``body(index, mask)`` for each vector's part of *count*, from *start* on."""
        f, lanes = self.f, self.lanes

        def part(index: Value) -> None:
            body(index, f.first_lanes(count - index, lanes))

        if self.isa.name == "avx512":  # to which masks cost nothing
            f.loop(count, part, start=start, step=lanes)
            return
        full = count - count % lanes
        f.loop(full, lambda index: body(index, None), start=start, step=lanes)
        f.branch(full < count, lambda: part(full))

    def taps_within(
        self, begin: Value, low: Value | int, high: Value
    ) -> tuple[Value, Value]:
        """Which elements of a window that begins at a position lie in a range."""
        return taps_within(self.f, begin, low, high, self["taps"], self["dilation"])

    def lines(
        self,
        line: Line,
        x: Value,
        w: Value,
        state: Sequence[Value],
    ) -> list[Value]:
        """The state after all lines of a window that has some in the input."""
        f = self.f

        def plane(_: Value, x: Value, w: Value, *state: Value) -> list[Value]:
            def each(_: Value, x: Value, w: Value, *state: Value) -> list[Value]:
                after = line(opaque(f, x), w, state)
                return [move(f, x, self["x_line"]), self.next_w(w, "w_line"), *after]

            after = f.loop(self["lines"], each, [x, w, *state])[2:]
            return [move(f, x, self["x_plane"]), self.next_w(w, "w_plane"), *after]

        return f.loop(self["planes"], plane, [x, w, *state])[2:]

    def next_w(self, w: Value, distance: str) -> Value:
        """The address of other weights, if there are any."""
        return move(self.f, w, self[distance]) if self.weighs else w


def taps_within(
    f: Function,
    begin: Value,
    low: Value | int,
    high: Value,
    taps: Value,
    dilation: Value,
) -> tuple[Value, Value]:
    """The first element of a window that lies in a range, and the one after the last.

    Args:
        begin: the position of the window's first element.
        low, high: the range.
        taps: how many elements the window has.
        dilation: how far apart they are.
    """
    zero = f.value(0, I64)
    first = (f.maximum(f.value(low, I64) - begin, zero) + (dilation - 1)) // dilation
    end = (f.maximum(high - begin, zero) + (dilation - 1)) // dilation
    first = f.minimum(first, taps)
    return first, f.maximum(f.minimum(end, taps), first)


_SIDE: Final = 4
"""Vectors of channels that are combined side by side."""


class ChannelTaps(Generator):
    """Any windows, one after the other.

    Attributes:
        combining: what elements become.
        long: sums have many terms, and rounding errors are carried along.
        near: whether the channels of the output are consecutive; those of the input
            are.
    """

    combining: Combining
    long: bool
    near: bool

    def write(self, module: Module, name: str, isa: Isa) -> None:
        t = Tile(module, name, isa, self.combining)
        f = t.f
        source = Elements(f, t.vector)
        target = Elements(f, t.vector, None if self.near else t["out_channel"])
        sums = _Sums(t, self.long)

        def pixel(index: Value, x: Value, out: Value) -> list[Value]:
            begin = t["base"] + index * t["stride"]
            first, end = t.taps_within(begin, 0, t["width"])
            counted = t.taps_within(begin, t["low"], t["high"])

            def divisor() -> Value:
                elements = (counted[1] - counted[0]) * t["count"]
                return f.splat(f.convert(elements, F32), t.lanes)

            def strip(channel: Value, masks: Sequence[Value | None]) -> None:
                def vectors(place: Value) -> list[Value]:
                    return [
                        source.load(source.at(place, u * t.lanes), mask)
                        for u, mask in enumerate(masks)
                    ]

                def tap(
                    _: Value, x: Value, w: Value, totals: Sequence[Value]
                ) -> list[Value]:
                    weights: Sequence[Value | None] = [None] * len(masks)
                    if t.weighs:
                        weights = vectors(w)
                    return [
                        t.folding.step(total, element, weight)
                        for total, element, weight in zip(
                            totals, vectors(x), weights, strict=True
                        )
                    ]

                w = source.at(t["w"], channel) if t.weighs else t["w"]
                state = t.lines(
                    sums.over(first, end, tap),
                    source.at(x, channel),
                    w,
                    sums.start(len(masks)),
                )
                place = target.at(out, channel)
                for u, total in enumerate(sums.results(state)):
                    result = t.folding.finish(total, divisor)
                    target.store(result, target.at(place, u * t.lanes), masks[u])

            whole = t["channels"] - t["channels"] % (_SIDE * t.lanes)
            f.loop(
                whole,
                lambda channel: strip(channel, [None] * _SIDE),
                step=_SIDE * t.lanes,
            )
            t.strips(t["channels"], lambda c, mask: strip(c, [mask]), whole)
            return [
                move(f, x, t["stride"] * t["x_pixel"]),
                move(f, out, t["out_pixel"]),
            ]

        f.loop(t["pixels"], pixel, [t["x"], t["out"]])
        f.finish()


class PixelTile(Generator):
    """Any windows, a vector of them at a time, channel after channel.

    All positions that elements may have, whether or not they are in the line, fit an
    i32.

    Attributes:
        combining: what elements become.
        long: sums have many terms, and rounding errors are carried along.
        near: whether an element of a window is adjacent to the next window's.
        out_near: the same of their results.
    """

    combining: Combining
    long: bool
    near: bool
    out_near: bool

    def write(self, module: Module, name: str, isa: Isa) -> None:
        t = Tile(module, name, isa, self.combining)
        f, lanes = t.f, t.lanes
        window_step = t["x_pixel"] * t["stride"]
        source = Elements(f, t.vector, None if self.near else window_step)
        target = Elements(f, t.vector, None if self.out_near else t["out_pixel"])
        sums = _Sums(t, self.long)
        steps = f.splat(f.convert(t["stride"], U32), lanes) * f.iota(U32.vector(lanes))
        low, high = (f.splat(f.convert(t[n], U32), lanes) for n in ("low", "high"))
        width = f.splat(f.convert(t["width"], U32), lanes)

        def strip(index: Value, mask: Value | None) -> None:
            begin = t["base"] + index * t["stride"]
            begins = f.splat(f.convert(begin, U32), lanes) + steps

            def positions(tap: Value) -> Value:
                distance = f.convert(tap * t["dilation"], U32)
                return begins + f.splat(distance, lanes)

            # what the last window has first is first of all
            last = f.minimum(t["pixels"] - index, lanes) - 1
            first, _ = t.taps_within(begin + last * t["stride"], 0, t["width"])
            _, end = t.taps_within(begin, 0, t["width"])
            divisor = None
            if self.combining.divides:
                divisor = self._divisor(t, positions, low, high)

            def channel(_: Value, x: Value, w: Value, out: Value) -> list[Value]:
                def tap(
                    tap: Value, x: Value, w: Value, totals: Sequence[Value]
                ) -> list[Value]:
                    (total,) = totals
                    inside = positions(tap) < width
                    if mask is not None:
                        inside = inside & mask
                    element = source.load(x, inside)
                    weight = f.load_splat(w, t.vector) if t.weighs else None
                    after = t.folding.step(total, element, weight)
                    return [f.select(inside, after, total)]

                state = t.lines(sums.over(first, end, tap), x, w, sums.start(1))
                (total,) = sums.results(state)
                result = t.folding.finish(total, lambda: divisor or total)
                target.store(result, out, mask)
                return [
                    move(f, x, t["x_channel"]),
                    move(f, w, F32.nbytes) if t.weighs else w,
                    move(f, out, t["out_channel"]),
                ]

            f.loop(
                t["channels"],
                channel,
                [source.at(t["x"], index), t["w"], target.at(t["out"], index)],
            )

        t.strips(t["pixels"], strip)
        f.finish()

    def _divisor(
        self,
        t: Tile,
        positions: Callable[[Value], Value],
        low: Value,
        high: Value,
    ) -> Value:
        """How many elements of each window count."""
        f = t.f

        def tap(tap: Value, counted: Value) -> list[Value]:
            inside = (positions(tap) - low) < (high - low)
            return [counted + f.select(inside, f.value(1.0, t.vector), 0.0)]

        (counted,) = f.loop(t["taps"], tap, [f.zero(t.vector)])
        return counted * f.splat(f.convert(t["count"], F32), t.lanes)


_Tap: TypeAlias = Callable[[Value, Value, Value, Sequence[Value]], list[Value]]
"""From the number of an element in its line, its address, its weights' and totals: the
totals with it."""


class _Sums:
    """Goes along the lines of windows that have any number of elements.

    Args:
        long: rounding errors of sums are carried along.
    """

    def __init__(self, t: Tile, long: bool) -> None:
        self.t, self.long = t, long
        fold = Fold(0, lambda f, a, x: a + x, lambda f, a, b: a + b, blocked=True)
        self._accumulator = Accumulator(t.f, fold, t.vector)

    def start(self, vectors: int) -> list[Value]:
        """The state before the first line."""
        if self.long:
            return self._accumulator.start() * vectors
        return [self.t.folding.start()] * vectors

    def results(self, state: Sequence[Value]) -> list[Value]:
        """The totals."""
        if not self.long:
            return list(state)
        pairs = zip(state[::2], state[1::2], strict=True)
        return [self._accumulator.result(pair) for pair in pairs]

    def over(self, first: Value, end: Value, tap: _Tap) -> Line:
        """What takes the elements of a line from *first* to *end*."""
        t, f = self.t, self.t.f
        step = t["x_pixel"] * t["dilation"]

        def taps(
            first: Value, end: Value, x: Value, w: Value, totals: Sequence[Value]
        ) -> list[Value]:
            def each(index: Value, x: Value, w: Value, *totals: Value) -> list[Value]:
                after = tap(index, x, w, totals)
                return [move(f, x, step), t.next_w(w, "w_tap"), *after]

            return f.loop(end, each, [x, w, *totals], start=first)

        def line(x: Value, w: Value, state: Sequence[Value]) -> Sequence[Value]:
            x = move(f, x, first * step)
            w = move(f, w, first * t["w_tap"]) if t.weighs else w
            if not self.long:
                return taps(first, end, x, w, state)[2:]

            def block(begin: Value, x: Value, w: Value, *state: Value) -> list[Value]:
                zeros = [f.zero(t.vector)] * (len(state) // 2)
                until = f.minimum(begin + BLOCK, end)
                x, w, *totals = taps(begin, until, x, w, zeros)
                after = [x, w]
                for number, total in enumerate(totals):
                    pair = state[2 * number : 2 * number + 2]
                    after += self._accumulator.absorb(pair, total)
                return after

            return f.loop(end, block, [x, w, *state], start=first, step=BLOCK)[2:]

        return line
