"""Windows of codes side by side along a line, as quads of up to four lines.

Four codes above each other are one number of 32 bits of a channel, and ``vpdpbusd``
adds their products.  They are put together once for all windows that a column lies in.
What is outside the image is the zero point, and the same multiple of the sums of
weights is taken away from all results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import F32, I8, I32, PTR, Module, Type, Value
from onnxplug_cpu.compiler.codegen.integer_products import add_quads
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.window.tile import WindowArguments
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

QUAD: Final = 4
"""Lines whose codes are multiplied at once."""

_REGISTERS: Final = VECTOR_BYTES // LANES
"""Of i32, for as many channels as one has codes of."""

_HALF: Final = VECTOR_BYTES // 2
"""Channels up to which half registers are enough."""

_PART: Final = 16
"""Bytes of a register that instructions interleave with those of another."""


class QuadsTile(Generator):
    """Windows side by side, of one plane.

    The first window's last element of a line must lie at 0 or further on, and the last
    window's first one before the line's end.  The channels of input and output are
    consecutive.  ``w`` has, 32 bits for each channel: the sums of weights, and
    ``w_tap`` further on each the quads of weights of a tap, a row for four lines.

    Attributes:
        pixels: how many windows.
        lines: of a window.
        taps: elements of a line of a window.
        stride: from window to window.
        element: of the input: i8 or u8.
        moved: whether it has a zero point.
    """

    pixels: int
    lines: int
    taps: int
    stride: int
    element: str
    moved: bool

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _QuadsTile(module, name, isa, self).write()


class _Strip(NamedTuple):
    """Channels that a register, or half of one, has codes of.

    Attributes:
        width: how many it has room for.
        channel: the first one.
        masks: of lines, which channels of them there are, and are inside the image.
        lines: where lines begin.
        ends: of registers of sums, which channels there are.
    """

    width: int
    channel: Value
    masks: list[Value]
    lines: list[Value]
    ends: list[Value]

    @property
    def octets(self) -> Type:
        """The type of codes."""
        return Type("u8", self.width)

    @property
    def sums(self) -> Type:
        """The type of a register of sums."""
        return I32.vector(self.width // _REGISTERS)


class _QuadsTile:
    """The loop over strips of channels, and the columns of windows."""

    def __init__(self, module: Module, name: str, isa: Isa, form: QuadsTile) -> None:
        self.f = f = module.function(name, WindowArguments.parameters())
        self.isa, self.form = isa, form
        self.arguments = arguments = WindowArguments(*f.parameters)
        self.rows = -(-form.lines // QUAD)
        self.zero = f.value(0, I32)
        if form.moved:
            self.zero = f.convert(f.load(arguments.zero, F32), I32)
        self.outside = f.convert(self.zero, I8)
        if form.element == "i8":
            self.zero = self.zero + 128
        self.multiplies_zero = form.moved or form.element == "i8"
        last = (form.pixels - 1) * form.stride
        positions = {
            column: arguments.base + column
            for column in range(last + form.taps)
            if column < form.taps - 1 or column > last
        }
        self.inside = {
            column: position.compare("ge", 0) & position.compare("lt", arguments.width)
            for column, position in positions.items()
        }

    def write(self) -> None:
        f, channels = self.f, self.arguments.channels
        whole = (channels + (_HALF - 1)) & -VECTOR_BYTES
        strip = functools.partial(self._strip, VECTOR_BYTES)
        f.loop(whole, strip, step=VECTOR_BYTES)
        f.branch(whole < channels, lambda: self._strip(_HALF, whole))
        f.finish()

    def _strip(self, width: int, channel: Value) -> None:
        """All windows of as many channels as a register of *width* has codes of."""
        f, arguments, form = self.f, self.arguments, self.form
        left, lanes = arguments.channels - channel, width // _REGISTERS
        every = f.first_lanes(left, width)
        ends = [
            f.first_lanes(left - register * lanes, lanes)
            for register in range(_REGISTERS)
        ]
        masks, places = [], []
        for line in range(form.lines):
            number = f.value(line, arguments.lines.type) - arguments.first_line
            there = number.compare("ge", 0) & number.compare("lt", arguments.lines)
            masks.append(self._if(there, every))
            # to read nothing where no memory is takes a processor long
            number = f.select(there, number, 0)
            place = move(f, arguments.x, number * arguments.x_line)
            places.append(move(f, place, channel))
        self._windows(_Strip(width, channel, masks, places, ends))

    def _if(self, condition: Value, mask: Value) -> Value:
        none = self.f.value(0, mask.type)
        return self.f.instruction(mask.type, f"select {condition}, {mask}, {none}")

    def _windows(self, strip: _Strip) -> None:
        """Add up column by column; a window is finished with its last one."""
        form = self.form
        start = self._start(strip)
        totals: dict[int, list[Value]] = {}
        for column in range((form.pixels - 1) * form.stride + form.taps):
            users = [
                pixel
                for pixel in range(form.pixels)
                if 0 <= column - pixel * form.stride < form.taps
            ]
            if not users:
                continue
            quads = self._quads(strip, column)
            for pixel in users:
                tap = column - pixel * form.stride
                sums = self._added(strip, totals.get(pixel, start), quads, tap)
                if tap == form.taps - 1:
                    self._store(strip, pixel, sums)
                    sums = []
                totals[pixel] = sums

    def _start(self, strip: _Strip) -> list[Value]:
        """What the zero point takes away from sums."""
        if not self.multiplies_zero:
            return [self.f.zero(strip.sums)] * _REGISTERS
        negative = self.f.splat(0 - self.zero, strip.sums.lanes)
        return [each * negative for each in self._weights(strip, 0)]

    def _weights(self, strip: _Strip, row: int) -> list[Value]:
        """Registers of a row of numbers of the channels."""
        f, arguments = self.f, self.arguments
        place = move(f, arguments.w, arguments.w_tap * row)
        place = f.at(place, strip.channel, I32)
        return [
            f.load(f.at(place, register * strip.sums.lanes, I32), strip.sums, align=4)
            for register in range(_REGISTERS)
        ]

    def _quads(self, strip: _Strip, column: int) -> list[list[Value]]:
        """The registers of quads of a column, row by row of them."""
        f = self.f
        inside = self.inside.get(column)
        distance = self.arguments.x_pixel * column
        type_ = strip.octets
        outside = f.bitcast(f.splat(self.outside, strip.width), type_)
        if inside is not None:
            near = self.arguments.x_pixel * (self.form.taps - 1)
            distance = f.select(inside, distance, near)
        octets = []
        for mask, line in zip(strip.masks, strip.lines, strict=True):
            place = move(f, line, distance)
            there = mask if inside is None else self._if(inside, mask)
            name = f"llvm.masked.load.{type_.suffix}.p0"
            aligned = Value(f, f"align 1 {place.text}", PTR)
            codes = f.intrinsic(type_, name, aligned, there, outside)
            octets.append(self._in_parts(codes))
        return [
            self._interleaved(octets[first : first + QUAD])
            for first in range(0, len(octets), QUAD)
        ]

    def _in_parts(self, codes: Value) -> Value:
        """Codes without a sign, in the order in which they are to be interleaved: each
        part has four channels of each register of sums."""
        if self.form.element == "i8":
            codes = codes ^ 128
        parts = codes.type.lanes // _PART
        order = [
            QUAD * (parts * group + part) + octet
            for part in range(parts)
            for group in range(_PART // QUAD)
            for octet in range(QUAD)
        ]
        return self.f.shuffle(codes, codes, order)

    def _interleaved(self, octets: list[Value]) -> list[Value]:
        """The quads of up to four lines; weights of those that lack are 0."""
        first, second, third, fourth = [*octets, *octets[-1:] * (QUAD - len(octets))]
        low, high = self._pairs(first, second, 1), self._pairs(third, fourth, 1)
        return [
            self.f.bitcast(quads, I32.vector(quads.type.lanes // QUAD))
            for one, other in zip(low, high, strict=True)
            for quads in self._pairs(one, other, 2)
        ]

    def _pairs(self, one: Value, other: Value, size: int) -> list[Value]:
        """The lower and the upper halves of all parts, *size* bytes of each in turn."""
        each, width = _PART // 2 // size, one.type.lanes
        return [
            self.f.shuffle(
                one,
                other,
                [
                    part + width * which + (half * each + number) * size + octet
                    for part in range(0, width, _PART)
                    for number in range(each)
                    for which in (0, 1)
                    for octet in range(size)
                ],
            )
            for half in (0, 1)
        ]

    def _added(
        self,
        strip: _Strip,
        totals: Sequence[Value],
        quads: Sequence[Sequence[Value]],
        tap: int,
    ) -> list[Value]:
        found = list(totals)
        for number, factors in enumerate(quads):
            weights = self._weights(strip, 1 + tap * self.rows + number)
            found = [
                add_quads(self.f, self.isa, *each)
                for each in zip(factors, weights, found, strict=True)
            ]
        return found

    def _store(self, strip: _Strip, pixel: int, sums: Sequence[Value]) -> None:
        f, arguments = self.f, self.arguments
        line = move(f, arguments.out, arguments.out_pixel * pixel)
        line = f.at(line, strip.channel, F32)
        for register, (total, mask) in enumerate(zip(sums, strip.ends, strict=True)):
            number = f.convert(total, F32.vector(total.type.lanes))
            place = f.at(line, register * total.type.lanes, F32)
            f.store_masked(number, place, mask)
