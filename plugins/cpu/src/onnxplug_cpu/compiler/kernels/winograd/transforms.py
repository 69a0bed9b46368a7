"""The transforms of F(T×T, 3×3): tiles of the input, their products, and weights.

A tile of T×T places of the result is reached by (T+2)×(T+2) elements of the input.
Along an axis these are a polynomial's coefficients, evaluated at 0, at T/2 pairs of
points, and at infinity; the products of values are those of a longer polynomial, which
is found from them (S. Winograd, "Arithmetic complexity of computations", 1980; A.
Lavin, S. Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308).
So 16 multiplications for each pair of channels take the place of 36, or 36 that of 144.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    F64,
    I64,
    PTR,
    Function,
    Module,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.target.isa import LANES, VECTOR_BYTES, Isa

TAPS: Final = 3
"""Elements of the kernel along an axis."""


class Tiling(NamedTuple):
    """How a tile is transformed along an axis.

    Attributes:
        size: places of the result that a tile has.
        pairs: the points, but for 0 and infinity, are these and their negatives.
    """

    size: int
    pairs: tuple[float, ...]

    @property
    def reach(self) -> int:
        """Elements of the input that a tile reaches, and points."""
        return self.size + TAPS - 1

    @property
    def points(self) -> int:
        """Products of a tile for each pair of channels, along both axes."""
        return self.reach * self.reach

    @property
    def taps(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """Of each element of a kernel: at which points it is told by what is there, and
        by what factors; the inverse of the transform of weights."""
        first, *others = self.pairs
        apart = first * math.prod(first * first - other * other for other in others)
        return (
            ((0, _vanishing_at(self.pairs)[0]),),
            ((1, apart), (2, -apart)),
            ((self.reach - 1, 1.0),),
        )

    @property
    def stage_bytes(self) -> int:
        """Memory for what is transformed along one axis."""
        return self.points * VECTOR_BYTES


TILINGS: Final = {
    tiling.size: tiling for tiling in (Tiling(2, (1.0,)), Tiling(4, (0.625, 1.5)))
}
"""By size.  Errors with 5/8 and 3/2 are half of those with 1 and 2 (B. Barabasz et al.,
"Error analysis and improving the accuracy of Winograd convolution for deep neural
networks", arXiv:1803.10986)."""


Number = TypeVar("Number", int, Value)


def padded(elements: Number) -> Number:
    """So many elements rounded up to vectors of 64 bytes."""
    return (elements + (LANES - 1)) & -LANES


def lanes_of(isa: Isa, nbytes: int = F32.nbytes) -> int:
    """Elements of *nbytes* in a register."""
    return isa.vector_bytes // nbytes


class _Arithmetic:
    """Multiples of vectors, added."""

    def __init__(self, f: Function, isa: Isa, tiling: Tiling) -> None:
        self._f, self._isa, self._pairs = f, isa, tiling.pairs

    def plus(self, total: Value, factor: float, value: Value) -> Value:
        """``total + factor · value``."""
        if abs(factor) == 1:
            return total + value if factor > 0 else total - value
        f = self._f
        return multiply_add(f, self._isa, value, f.value(factor, value.type), total)

    def of_input(self, d: Sequence[Value]) -> list[Value]:
        """Elements of the input at the points."""
        every = _vanishing_at(self._pairs)
        values = [self._sum(every, d[0::2])]
        for point, *others in _each_first(self._pairs):
            rest = _vanishing_at(others)
            even, odd = self._sum(rest, d[2::2]), self._sum(rest, d[1:-1:2])
            values += [self.plus(even, point, odd), self.plus(even, -point, odd)]
        return [*values, self._sum(every, d[1::2])]

    def of_products(self, m: Sequence[Value]) -> list[Value]:
        """Places of the result from products at the points."""
        first, *between, last = m
        sums = [a + b for a, b in zip(between[0::2], between[1::2], strict=True)]
        differences = [a - b for a, b in zip(between[0::2], between[1::2], strict=True)]
        size = 2 * len(self._pairs)
        places = []
        for power in range(size):
            terms = differences if power % 2 else sums
            if power == 0:
                total = first
            elif power == size - 1:
                total = last
            else:
                total, terms = (
                    self._scaled(terms[0], self._pairs[0] ** power),
                    terms[1:],
                )
            points = self._pairs[-len(terms) :]
            for point, term in zip(points, terms, strict=True):
                total = self.plus(total, point**power, term)
            places.append(total)
        return places

    def of_weights(self, g: Sequence[Value]) -> list[Value]:
        """Three elements of a kernel at the points, divided by what the points are
        apart from the others, so that no other transform has to."""
        values = [g[0] * (1 / _vanishing_at(self._pairs)[0])]
        for point, *others in _each_first(self._pairs):
            square = point * point
            even, odd = self.plus(g[0], square, g[2]), self._scaled(g[1], point)
            scale = 1 / (2 * square * math.prod(square - p * p for p in others))
            values += [(even + odd) * scale, (even - odd) * scale]
        return [*values, g[2]]

    def _sum(self, factors: Sequence[float], values: Sequence[Value]) -> Value:
        """Of multiples, the last of which is the value itself."""
        *smaller, total = values
        for factor, value in reversed(list(zip(factors, smaller, strict=False))):
            total = self.plus(total, factor, value)
        return total

    def _scaled(self, value: Value, factor: float) -> Value:
        return value if factor == 1 else value * factor


def _vanishing_at(pairs: Sequence[float]) -> list[float]:
    """The coefficients of x², lowest first, of what vanishes at the points of *pairs*
    only; the highest is 1."""
    coefficients = [1.0]
    for point in pairs:
        lower = [-point * point * c for c in coefficients]
        coefficients = [
            a + b for a, b in zip([*lower, 0.0], [0.0, *coefficients], strict=True)
        ]
    return coefficients


def _each_first(pairs: Sequence[float]) -> list[list[float]]:
    """*pairs* in orders that begin with each of them."""
    return [[p, *(q for q in pairs if q != p)] for p in pairs]


class InputTransform(Generator):
    """A function that transforms a tile of the input, all its channels.

    ``void (ptr pixels, i64 channels, ptr target, i64 point, ptr stage)``: *pixels* are
    the addresses of the elements' channels, line after line, which are consecutive;
    *target* receives, *point* bytes apart, the channels of each point, rounded up to
    vectors of 64 bytes; *stage* is memory of :attr:`Tiling.stage_bytes`.

    Attributes:
        tile: a size of :data:`TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(
            name,
            [
                ("pixels", PTR),
                ("channels", I64),
                ("target", PTR),
                ("point", I64),
                ("stage", PTR),
            ],
        )
        pixels, channels, target, point, stage = f.parameters
        width = lanes_of(isa)
        vector = F32.vector(width)
        tiling = TILINGS[self.tile]
        reach = tiling.reach
        lanes, arithmetic = Lanes(f, isa, width), _Arithmetic(f, isa, tiling)
        lanes.reserve_for("f32", False)

        def some(start: Value, part: Part) -> None:
            for line in range(reach):
                elements = [
                    lanes.load(
                        "f32",
                        f.at(
                            f.load(f.at(pixels, line * reach + pixel, I64), PTR),
                            start,
                            F32,
                        ),
                        part,
                    )
                    for pixel in range(reach)
                ]
                for pixel, value in enumerate(arithmetic.of_input(elements)):
                    f.store(value, f.at(stage, (line * reach + pixel) * width, F32))
            place = f.at(target, start, F32)
            for pixel in range(reach):
                elements = [
                    f.load(f.at(stage, (line * reach + pixel) * width, F32), vector)
                    for line in range(reach)
                ]
                for line, value in enumerate(arithmetic.of_input(elements)):
                    f.store(value, move(f, place, point * (line * reach + pixel)))

        full = channels & -width
        f.loop(full, lambda start: some(start, lanes.whole()), step=width)
        f.branch(full < channels, lambda: some(full, lanes.first(channels - full)))
        f.finish()


class OutputTransform(Generator):
    """A function that makes a tile of the result from its products.

    ``void (ptr products, i64 point, i64 columns, ptr target, i64 line, i64 place,
    ptr stage, ptr doubtful)``: *products* are *point* bytes apart; *target* receives
    the places, lines being *line* bytes apart, and places of a line *place* bytes, each
    of *columns* elements, rounded up to vectors of 64 bytes; *stage* is memory of
    :attr:`Tiling.stage_bytes`; *doubtful*, an i64, becomes 1 if any of the elements is
    infinite or not a number, else 0.

    Attributes:
        tile: a size of :data:`TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(
            name,
            [
                ("products", PTR),
                ("point", I64),
                ("columns", I64),
                ("target", PTR),
                ("line", I64),
                ("place", I64),
                ("stage", PTR),
                ("doubtful", PTR),
            ],
        )
        products, point, columns, target, line_bytes, place, stage, doubtful = (
            f.parameters
        )
        width = lanes_of(isa)
        vector = F32.vector(width)
        tiling = TILINGS[self.tile]
        size, reach = tiling.size, tiling.reach
        arithmetic = _Arithmetic(f, isa, tiling)

        def some(start: Value, nothing: Value) -> list[Value]:
            """*nothing* stays 0 as long as all is finite."""
            source = f.at(products, start, F32)
            for pixel in range(reach):
                values = [
                    f.load(move(f, source, point * (line * reach + pixel)), vector)
                    for line in range(reach)
                ]
                for line, value in enumerate(arithmetic.of_products(values)):
                    f.store(value, f.at(stage, (line * reach + pixel) * width, F32))
            for line in range(size):
                values = [
                    f.load(f.at(stage, (line * reach + pixel) * width, F32), vector)
                    for pixel in range(reach)
                ]
                to = f.at(move(f, target, line_bytes * line), start, F32)
                for pixel, value in enumerate(arithmetic.of_products(values)):
                    f.store(value, move(f, to, place * pixel))
                    nothing = multiply_add(f, isa, value, f.zero(vector), nothing)
            return [nothing]

        end = padded(columns)
        (nothing,) = f.loop(end, some, [f.zero(vector)], step=width)
        other = nothing.compare("ne", 0)
        f.store(f.convert(f.reduce("or", other), I64), doubtful)
        f.finish()


class TransformWeights(Generator):
    """Transforms weights in float64, into panels; a chunk is a part of the panels.

    A panel has as many columns as a row of *panel* bytes, and rows for all channels;
    the last one has as many columns as are left, rounded up to vectors of 64 bytes and
    filled with zeros.  Groups of panels follow each other, in a group its points, and
    in a point its panels: so they are read.

    Attributes:
        tile: a size of :data:`TILINGS`.

    Words: ``source``, the weights, with the bytes from one column (filter), channel,
    line and pixel of the kernel to the next; ``target``; how many ``columns`` and
    channels (``depth``); ``panel``; columns of a ``group``; into how many ``parts``
    panels are divided; ``verdicts``, an i64 for each chunk: 0 if all that it writes is
    finite.
    """

    tile: int

    words = (
        "source",
        "column",
        "channel",
        "line",
        "pixel",
        "target",
        "columns",
        "depth",
        "panel",
        "group",
        "parts",
        "verdicts",
    )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, integer = k.function, k.integer
        width = lanes_of(isa, F64.nbytes)
        tiling = TILINGS[self.tile]
        reach = tiling.reach
        arithmetic = _Arithmetic(f, isa, tiling)
        # a line of each point is written at once: their lines evict each other
        stage = f.stack(F32, tiling.points * LANES)
        line_of = F32.vector(LANES)
        # stays 0 as long as all is finite
        nothing = f.stack(line_of, 1)
        f.store(f.zero(line_of), nothing)
        source, target = k.pointer("source"), k.pointer("target")
        columns, depth, panel = integer("columns"), integer("depth"), integer("panel")
        per_panel = panel // F32.nbytes
        panels = (columns + (per_panel - 1)) // per_panel
        parts = integer("parts")

        def some(first: Value, end: Value, channel: Value, place: Value) -> None:
            """The points of some columns, from *first* on, of those before *end*."""
            mask = f.first_lanes(f.maximum(end - first, 0), width)
            sources = [
                # none may be left; the last one is read then
                move(f, source, f.minimum(first + lane, end - 1) * integer("column"))
                for lane in range(width)
            ]
            sources = [move(f, at, channel * integer("channel")) for at in sources]
            lines = []
            for line in range(TAPS):
                taps = []
                for pixel in range(TAPS):
                    step = integer("line") * line + integer("pixel") * pixel
                    tap = f.zero(F32.vector(width))
                    for lane, at in enumerate(sources):
                        tap = f.insert(tap, f.load(move(f, at, step), F32), lane)
                    tap = f.select(mask, tap, 0)
                    taps.append(f.convert(tap, F64.vector(width)))
                lines.append(arithmetic.of_weights(taps))
            for pixel in range(reach):
                values = arithmetic.of_weights([line[pixel] for line in lines])
                for line, value in enumerate(values):
                    rounded = f.convert(value, F32.vector(width))
                    point = (line * reach + pixel) * LANES
                    f.store(rounded, f.at(place, point, F32))

        def one_panel(index: Value) -> None:
            first = index * per_panel
            end = f.minimum(first + per_panel, columns)
            row_columns = padded(end - first)
            group = first - first % integer("group")
            together = padded(f.minimum(columns - group, integer("group")))
            start = f.at(target, group * depth * tiling.points, F32)
            start = f.at(start, (first - group) * depth, F32)
            point = depth * together * F32.nbytes

            def vector(column: Value, channel: Value, place: Value) -> None:
                f.loop(
                    LANES,
                    lambda n: some(
                        first + column + n, end, channel, f.at(stage, n, F32)
                    ),
                    step=width,
                )
                place = f.at(place, column, F32)
                total = f.load(nothing, line_of)
                for number in range(tiling.points):
                    line = f.load(f.at(stage, number * LANES, F32), line_of)
                    f.store(line, move(f, place, point * number))
                    total = total + line * 0
                f.store(total, nothing)

            def row(channel: Value) -> None:
                place = f.at(start, channel * row_columns, F32)
                f.loop(row_columns, lambda c: vector(c, channel, place), step=LANES)

            f.loop(depth, row)

        f.loop(
            panels * (k.chunk + 1) // parts, one_panel, start=panels * k.chunk // parts
        )
        other = f.reduce("or", f.load(nothing, line_of).compare("ne", 0))
        f.store(f.convert(other, I64), f.at(k.pointer("verdicts"), k.chunk, I64))
        f.finish()
