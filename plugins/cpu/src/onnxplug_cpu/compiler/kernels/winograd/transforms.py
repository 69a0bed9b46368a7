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
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

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


class InputArguments(FunctionArguments):
    """The arguments of a function that transforms a tile of the input.

    ``pixels`` are the addresses of the elements' ``channels``, line after line, which
    are consecutive; ``target`` receives, ``point`` bytes apart, the channels of each
    point, rounded up to vectors of 64 bytes; ``stage`` is memory of
    :attr:`Tiling.stage_bytes`.
    """

    pixels: Pointer
    channels: Integer
    target: Pointer
    point: Integer
    stage: Pointer


class OutputArguments(FunctionArguments):
    """The arguments of a function that makes a tile of the result from its products.

    ``products`` are ``point`` bytes apart; ``target`` receives the places, lines being
    ``line`` bytes apart, and places of a line ``place`` bytes, each of ``columns``
    elements, rounded up to vectors of 64 bytes; ``stage`` is memory of
    :attr:`Tiling.stage_bytes`; ``doubtful``, an i64, becomes 1 if any of the elements
    is infinite or not a number, else 0.
    """

    products: Pointer
    point: Integer
    columns: Integer
    target: Pointer
    line: Integer
    place: Integer
    stage: Pointer
    doubtful: Pointer


class _Stage:
    """What is transformed along one axis, for a register's channels of a tile."""

    def __init__(self, f: Function, isa: Isa, tile: int, memory: Value) -> None:
        self.f, self.memory = f, memory
        self.tiling = TILINGS[tile]
        self.vector = F32.vector(lanes_of(isa))
        self.arithmetic = _Arithmetic(f, isa, self.tiling)

    def store(self, line: int, pixel: int, value: Value) -> None:
        self.f.store(value, self._at(line, pixel))

    def load(self, line: int, pixel: int) -> Value:
        return self.f.load(self._at(line, pixel), self.vector)

    def _at(self, line: int, pixel: int) -> Value:
        number = line * self.tiling.reach + pixel
        return self.f.at(self.memory, number * self.vector.lanes, F32)


class InputTransform(Generator):
    """A function that transforms a tile of the input, all its channels; its arguments
    are :class:`InputArguments`.

    Attributes:
        tile: a size of :data:`TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(name, InputArguments.parameters())
        arguments = InputArguments(*f.parameters)
        stage = _Stage(f, isa, self.tile, arguments.stage)
        width = stage.vector.lanes
        lanes = Lanes(f, isa, width)
        lanes.reserve_for("f32", False)
        channels = arguments.channels

        def some(start: Value, part: Part) -> None:
            self._transform(stage, arguments, lanes, start, part)

        full = channels & -width
        f.loop(full, lambda start: some(start, lanes.whole()), step=width)
        f.branch(full < channels, lambda: some(full, lanes.first(channels - full)))
        f.finish()

    def _transform(
        self,
        stage: _Stage,
        arguments: InputArguments,
        lanes: Lanes,
        start: Value,
        part: Part,
    ) -> None:
        """A register's channels from *start* on: lines, then columns."""
        f, arithmetic, reach = stage.f, stage.arithmetic, stage.tiling.reach
        for line in range(reach):
            elements = []
            for pixel in range(reach):
                place = f.at(arguments.pixels, line * reach + pixel, I64)
                place = f.at(f.load(place, PTR), start, F32)
                elements.append(lanes.load("f32", place, part))
            for pixel, value in enumerate(arithmetic.of_input(elements)):
                stage.store(line, pixel, value)
        target = f.at(arguments.target, start, F32)
        for pixel in range(reach):
            elements = [stage.load(line, pixel) for line in range(reach)]
            for line, value in enumerate(arithmetic.of_input(elements)):
                number = line * reach + pixel
                f.store(value, move(f, target, arguments.point * number))


class OutputTransform(Generator):
    """A function that makes a tile of the result from its products; its arguments are
    :class:`OutputArguments`.

    Attributes:
        tile: a size of :data:`TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(name, OutputArguments.parameters())
        arguments = OutputArguments(*f.parameters)
        stage = _Stage(f, isa, self.tile, arguments.stage)
        vector = stage.vector
        arithmetic, reach = stage.arithmetic, stage.tiling.reach

        def some(start: Value, nothing: Value) -> list[Value]:
            """*nothing* stays 0 as long as all is finite."""
            source = f.at(arguments.products, start, F32)
            for pixel in range(reach):
                numbers = (line * reach + pixel for line in range(reach))
                values = [
                    f.load(move(f, source, arguments.point * number), vector)
                    for number in numbers
                ]
                for line, value in enumerate(arithmetic.of_products(values)):
                    stage.store(line, pixel, value)
            for line in range(stage.tiling.size):
                values = [stage.load(line, pixel) for pixel in range(reach)]
                to = move(f, arguments.target, arguments.line * line)
                to = f.at(to, start, F32)
                for pixel, value in enumerate(arithmetic.of_products(values)):
                    f.store(value, move(f, to, arguments.place * pixel))
                    nothing = multiply_add(f, isa, value, f.zero(vector), nothing)
            return [nothing]

        end = padded(arguments.columns)
        (nothing,) = f.loop(end, some, [f.zero(vector)], step=vector.lanes)
        other = nothing.compare("ne", 0)
        f.store(f.convert(f.reduce("or", other), I64), arguments.doubtful)
        f.finish()


class WeightWords(KernelWords):
    """Words of :class:`TransformWeights`.

    ``source``, the weights, with the bytes from one column (filter), channel, line and
    pixel of the kernel to the next; ``target``; how many ``columns`` and channels
    (``depth``); ``panel``; columns of a ``group``; into how many ``parts`` panels are
    divided; ``verdicts``, an i64 for each chunk: 0 if all that it writes is finite.
    """

    source: Pointer
    column: Integer
    channel: Integer
    line: Integer
    pixel: Integer
    target: Pointer
    columns: Integer
    depth: Integer
    panel: Integer
    group: Integer
    parts: Integer
    verdicts: Pointer


class TransformWeights(Generator):
    """Transforms weights in float64, into panels; a chunk is a part of the panels.

    A panel has as many columns as a row of *panel* bytes, and rows for all channels;
    the last one has as many columns as are left, rounded up to vectors of 64 bytes and
    filled with zeros.  Groups of panels follow each other, in a group its points, and
    in a point its panels: so they are read.

    Attributes:
        tile: a size of :data:`TILINGS`.
    """

    tile: int

    words = WeightWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Weights(WeightWords(module, name), isa, TILINGS[self.tile]).write()


_LINE: Final = F32.vector(LANES)


class _Weights:
    """The loops over panels, channels and columns.

    A line of each point is written at once: their lines evict each other.
    """

    def __init__(self, k: WeightWords, isa: Isa, tiling: Tiling) -> None:
        f = self.f = k.function
        self.k, self.tiling = k, tiling
        self.width = lanes_of(isa, F64.nbytes)
        self.arithmetic = _Arithmetic(f, isa, tiling)
        self.stage = f.stack(F32, tiling.points * LANES)
        # stays 0 as long as all is finite
        self.nothing = f.stack(_LINE, 1)
        f.store(f.zero(_LINE), self.nothing)
        self.source, self.target = k.source, k.target
        self.columns, self.depth, panel = k.columns, k.depth, k.panel
        self.per_panel = panel // F32.nbytes

    def write(self) -> None:
        f, k = self.f, self.k
        panels = (self.columns + (self.per_panel - 1)) // self.per_panel
        parts = k.parts
        end = panels * (k.chunk + 1) // parts
        f.loop(end, self._panel, start=panels * k.chunk // parts)
        other = f.reduce("or", f.load(self.nothing, _LINE).compare("ne", 0))
        f.store(f.convert(other, I64), f.at(k.verdicts, k.chunk, I64))
        f.finish()

    def _panel(self, index: Value) -> None:
        f, k, points = self.f, self.k, self.tiling.points
        first = index * self.per_panel
        end = f.minimum(first + self.per_panel, self.columns)
        row_columns = padded(end - first)
        group = first - first % k.group
        together = padded(f.minimum(self.columns - group, k.group))
        start = f.at(self.target, group * self.depth * points, F32)
        start = f.at(start, (first - group) * self.depth, F32)
        point = self.depth * together * F32.nbytes

        def row(channel: Value) -> None:
            place = f.at(start, channel * row_columns, F32)

            def line(column: Value) -> None:
                def some(n: Value) -> None:
                    at = first + column + n
                    self._transform(at, end, channel, f.at(self.stage, n, F32))

                f.loop(LANES, some, step=self.width)
                self._store_points(f.at(place, column, F32), point)

            f.loop(row_columns, line, step=LANES)

        f.loop(self.depth, row)

    def _transform(
        self, first: Value, end: Value, channel: Value, place: Value
    ) -> None:
        """Stage the points of a register's columns from *first* on, of those before
        *end*."""
        f, k = self.f, self.k
        mask = f.first_lanes(f.maximum(end - first, 0), self.width)
        sources = [
            # none may be left; the last one is read then
            move(f, self.source, f.minimum(first + lane, end - 1) * k.column)
            for lane in range(self.width)
        ]
        sources = [move(f, at, channel * k.channel) for at in sources]
        of_weights, reach = self.arithmetic.of_weights, self.tiling.reach
        lines = [of_weights(self._taps(sources, mask, line)) for line in range(TAPS)]
        for pixel in range(reach):
            values = of_weights([line[pixel] for line in lines])
            for line, value in enumerate(values):
                rounded = f.convert(value, F32.vector(self.width))
                point = (line * reach + pixel) * LANES
                f.store(rounded, f.at(place, point, F32))

    def _taps(self, sources: Sequence[Value], mask: Value, line: int) -> list[Value]:
        """A line of the kernels at *sources*; zeros where there are none."""
        f, k, taps = self.f, self.k, []
        for pixel in range(TAPS):
            step = k.line * line + k.pixel * pixel
            tap = f.zero(F32.vector(self.width))
            for lane, at in enumerate(sources):
                tap = f.insert(tap, f.load(move(f, at, step), F32), lane)
            tap = f.select(mask, tap, 0)
            taps.append(f.convert(tap, F64.vector(self.width)))
        return taps

    def _store_points(self, place: Value, point: Value) -> None:
        """Write what is staged, *point* bytes apart."""
        f = self.f
        total = f.load(self.nothing, _LINE)
        for number in range(self.tiling.points):
            line = f.load(f.at(self.stage, number * LANES, F32), _LINE)
            f.store(line, move(f, place, point * number))
            total = total + line * 0
        f.store(total, self.nothing)
