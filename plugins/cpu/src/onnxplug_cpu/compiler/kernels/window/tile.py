"""The innermost loops of windows: some windows of a line, for some channels.

There are three, which take the same arguments.  Two have channels along their lanes:
:class:`~.channel_tile.ChannelTile` knows how many elements a line of a window has, so
that each that is loaded serves all windows that it lies in; :class:`ChannelTaps` takes
any windows.  :class:`PixelTile` has windows along its lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from onnxplug_compiler.ir.windows import Combining
from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I64,
    U32,
    Function,
    Module,
    Operand,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.reduction.accumulator import Accumulator, Fold
from onnxplug_cpu.compiler.kernels.rows import Elements, move, opaque
from onnxplug_cpu.compiler.kernels.window.combining import Folding, vector_of
from onnxplug_cpu.compiler.machine.isa import Isa


class WindowArguments(FunctionArguments):
    """The arguments of a function that computes *pixels* windows for *channels*
    channels.

    Distances in memory are in bytes.  A window has *taps* elements in each of *lines*
    lines of *planes* planes, ``x_line`` and ``x_plane`` apart.  Along a line the first
    window begins at the position *base*, the next ones *stride* further on, and
    elements are *dilation* apart; ``x`` is the address of the position *base*, whether
    or not that is in the line, and only positions from 0 to *width* are read.  Those
    that count are from *low* to *high*, in *count* lines.

    ``w`` has the weights of the first line, whose channels are consecutive, and which
    is *first_line* of a window's.  From codes the f32 at *zero* may be subtracted.
    """

    x: Pointer
    x_plane: Integer
    x_line: Integer
    x_pixel: Integer
    x_channel: Integer
    planes: Integer
    lines: Integer
    first_line: Integer
    w: Pointer
    w_plane: Integer
    w_line: Integer
    w_tap: Integer
    taps: Integer
    stride: Integer
    dilation: Integer
    base: Integer
    width: Integer
    low: Integer
    high: Integer
    count_: Integer
    pixels: Integer
    channels: Integer
    out: Pointer
    out_pixel: Integer
    out_channel: Integer
    zero: Pointer


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
    """What the functions have in common: arguments, and lanes."""

    def __init__(self, module: Module, name: str, isa: Isa, combining: Combining):
        self.f = f = module.function(name, WindowArguments.parameters())
        self.isa = isa
        self.arguments = WindowArguments(*f.parameters)
        self.vector = vector_of(isa)
        self.lanes = self.vector.lanes
        self.combining = combining
        self.folding = Folding(f, isa, combining, self.vector)
        self.weighs = combining.weighs

    def results(self, near: bool) -> Elements:
        """Where finished vectors are written; *near*: to consecutive channels."""
        channel = None if near else self.arguments.out_channel
        return Elements(self.f, self.vector, channel)

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
        taps, dilation = self.arguments.taps, self.arguments.dilation
        return taps_within(self.f, begin, low, high, taps, dilation)

    def lines(
        self,
        line: Line,
        x: Value,
        w: Value,
        state: Sequence[Value],
    ) -> list[Value]:
        """The state after all lines of a window that has some in the input."""
        f, arguments = self.f, self.arguments

        def plane(_: Value, x: Value, w: Value, *state: Value) -> list[Value]:
            def each(_: Value, x: Value, w: Value, *state: Value) -> list[Value]:
                after = line(opaque(f, x), w, state)
                x = move(f, x, arguments.x_line)
                return [x, self.next_w(w, arguments.w_line), *after]

            after = f.loop(arguments.lines, each, [x, w, *state])[2:]
            x = move(f, x, arguments.x_plane)
            return [x, self.next_w(w, arguments.w_plane), *after]

        return f.loop(arguments.planes, plane, [x, w, *state])[2:]

    def next_w(self, w: Value, distance: Value) -> Value:
        """The address of other weights, if there are any."""
        return move(self.f, w, distance) if self.weighs else w


class Numbers:
    """What consecutive channels of the input stand for, as vectors of f32.

    Args:
        element: f32, or i8 or u8 for codes.
        moved: whether a zero point is subtracted from these.
    """

    def __init__(self, t: Tile, element: str, moved: bool) -> None:
        self._f, self._vector = t.f, t.vector
        self._elements = Elements(t.f, Type(element, t.lanes))
        self._is_float = element == "f32"
        self._zero = None
        if moved:
            self._zero = t.f.load_splat(t.arguments.zero, t.vector)

    def at(self, pointer: Value, index: Operand) -> Value:
        """The address of element *index*."""
        return self._elements.at(pointer, index)

    def load(self, pointer: Value, mask: Value | None) -> Value:
        """Those from *pointer* on; anything where *mask* is false."""
        value = self._elements.load(pointer, mask)
        if self._is_float:
            return value
        wide = self._f.convert(value, self._vector.of("i32"))
        number = self._f.convert(wide, self._vector)
        return number if self._zero is None else number - self._zero


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
        element: of the input: f32, or i8 or u8 for codes.
        moved: whether these have a zero point.
    """

    combining: Combining
    long: bool
    near: bool
    element: str = "f32"
    moved: bool = False

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _ChannelTaps(module, name, isa, self).write()


class _Window(NamedTuple):
    """A window.

    Attributes:
        x, out: of its first element, if all were there, and of its result.
        first, end: which elements of a line are in the input.
        first_counted, end_counted: which count.
    """

    x: Value
    out: Value
    first: Value
    end: Value
    first_counted: Value
    end_counted: Value


class _ChannelTaps(Tile):
    """The loops over windows, and strips of channels."""

    def __init__(self, module: Module, name: str, isa: Isa, form: ChannelTaps) -> None:
        super().__init__(module, name, isa, form.combining)
        self.source = Numbers(self, form.element, form.moved)
        self.weights = Elements(self.f, self.vector)
        self.target = self.results(form.near)
        self.sums = _Sums(self, form.long)

    def write(self) -> None:
        begin = [self.arguments.x, self.arguments.out]
        self.f.loop(self.arguments.pixels, self._pixel, begin)
        self.f.finish()

    def _pixel(self, index: Value, x: Value, out: Value) -> list[Value]:
        f, arguments, side = self.f, self.arguments, _SIDE * self.lanes
        begin = arguments.base + index * arguments.stride
        window = _Window(
            x,
            out,
            *self.taps_within(begin, 0, arguments.width),
            *self.taps_within(begin, arguments.low, arguments.high),
        )
        channels = arguments.channels
        whole = channels - channels % side
        strip = functools.partial(self._strip, window)
        f.loop(whole, lambda channel: strip(channel, [None] * _SIDE), step=side)
        self.strips(channels, lambda channel, mask: strip(channel, [mask]), whole)
        return [
            move(f, x, arguments.stride * arguments.x_pixel),
            move(f, out, arguments.out_pixel),
        ]

    def _strip(
        self, window: _Window, channel: Value, masks: Sequence[Value | None]
    ) -> None:
        """Some vectors of channels, from *channel* on."""
        source, target, w = self.source, self.target, self.arguments.w

        def tap(_: Value, x: Value, w: Value, totals: Sequence[Value]) -> list[Value]:
            weights: Sequence[Value | None] = [None] * len(masks)
            if self.weighs:
                weights = self._vectors(self.weights, w, masks)
            elements = self._vectors(source, x, masks)
            terms = zip(totals, elements, weights, strict=True)
            return [self.folding.step(*each) for each in terms]

        w = self.weights.at(w, channel) if self.weighs else w
        line = self.sums.over(window.first, window.end, tap)
        start = self.sums.start(len(masks))
        state = self.lines(line, source.at(window.x, channel), w, start)
        place = target.at(window.out, channel)
        for u, total in enumerate(self.sums.results(state)):
            result = self.folding.finish(total, lambda: self._divisor(window))
            target.store(result, target.at(place, u * self.lanes), masks[u])

    def _vectors(
        self, source: Numbers | Elements, place: Value, masks: Sequence[Value | None]
    ) -> list[Value]:
        return [
            source.load(source.at(place, u * self.lanes), mask)
            for u, mask in enumerate(masks)
        ]

    def _divisor(self, window: _Window) -> Value:
        """How many elements count."""
        along = window.end_counted - window.first_counted
        elements = self.f.convert(along * self.arguments.count_, F32)
        return self.f.splat(elements, self.lanes)


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
        _PixelTile(module, name, isa, self).write()


class _PixelTile(Tile):
    """The loops over strips of windows, and channels."""

    def __init__(self, module: Module, name: str, isa: Isa, form: PixelTile) -> None:
        super().__init__(module, name, isa, form.combining)
        f, arguments, lanes = self.f, self.arguments, self.lanes
        step = arguments.x_pixel * arguments.stride
        self.source = Elements(f, self.vector, None if form.near else step)
        out_pixel = None if form.out_near else arguments.out_pixel
        self.target = Elements(f, self.vector, out_pixel)
        self.sums = _Sums(self, form.long)
        self.steps = self._splat(arguments.stride) * f.iota(U32.vector(lanes))
        self.low, self.high = self._splat(arguments.low), self._splat(arguments.high)
        self.width = self._splat(arguments.width)

    def _splat(self, number: Value) -> Value:
        return self.f.splat(self.f.convert(number, U32), self.lanes)

    def write(self) -> None:
        self.strips(self.arguments.pixels, self._strip)
        self.f.finish()

    def _strip(self, index: Value, mask: Value | None) -> None:
        f, arguments = self.f, self.arguments
        begin = arguments.base + index * arguments.stride
        begins = self._splat(begin) + self.steps
        # what the last window has first is first of all
        last = f.minimum(arguments.pixels - index, self.lanes) - 1
        first, _ = self.taps_within(begin + last * arguments.stride, 0, arguments.width)
        _, end = self.taps_within(begin, 0, arguments.width)
        divisor = self._divisor(begins) if self.combining.divides else None

        def tap(tap: Value, x: Value, w: Value, totals: Sequence[Value]) -> list[Value]:
            (total,) = totals
            inside = self._positions(begins, tap) < self.width
            if mask is not None:
                inside = inside & mask
            element = self.source.load(x, inside)
            weight = f.load_splat(w, self.vector) if self.weighs else None
            after = self.folding.step(total, element, weight)
            return [f.select(inside, after, total)]

        x, out = (
            self.source.at(arguments.x, index),
            self.target.at(arguments.out, index),
        )
        line = functools.partial(self.sums.over, first, end, tap)
        channel = functools.partial(self._channel, line, divisor, mask)
        f.loop(arguments.channels, channel, [x, arguments.w, out])

    def _channel(
        self,
        line: Callable[[], Line],
        divisor: Value | None,
        mask: Value | None,
        _: Value,
        x: Value,
        w: Value,
        out: Value,
    ) -> list[Value]:
        f, arguments = self.f, self.arguments
        state = self.lines(line(), x, w, self.sums.start(1))
        (total,) = self.sums.results(state)
        result = self.folding.finish(total, lambda: divisor or total)
        self.target.store(result, out, mask)
        return [
            move(f, x, arguments.x_channel),
            move(f, w, F32.nbytes) if self.weighs else w,
            move(f, out, arguments.out_channel),
        ]

    def _positions(self, begins: Value, tap: Value) -> Value:
        """Where an element of each window is."""
        return begins + self._splat(tap * self.arguments.dilation)

    def _divisor(self, begins: Value) -> Value:
        """How many elements of each window count."""
        f = self.f

        def tap(tap: Value, counted: Value) -> list[Value]:
            position = self._positions(begins, tap)
            inside = (position - self.low) < (self.high - self.low)
            return [counted + f.select(inside, f.value(1.0, self.vector), 0.0)]

        (counted,) = f.loop(self.arguments.taps, tap, [f.zero(self.vector)])
        return counted * f.splat(f.convert(self.arguments.count_, F32), self.lanes)


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
        t, f, arguments = self.t, self.t.f, self.t.arguments
        step = arguments.x_pixel * arguments.dilation

        def taps(
            first: Value, end: Value, x: Value, w: Value, totals: Sequence[Value]
        ) -> list[Value]:
            def each(index: Value, x: Value, w: Value, *totals: Value) -> list[Value]:
                after = tap(index, x, w, totals)
                return [move(f, x, step), t.next_w(w, arguments.w_tap), *after]

            return f.loop(end, each, [x, w, *totals], start=first)

        def line(x: Value, w: Value, state: Sequence[Value]) -> Sequence[Value]:
            x = move(f, x, first * step)
            w = move(f, w, first * arguments.w_tap) if t.weighs else w
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
