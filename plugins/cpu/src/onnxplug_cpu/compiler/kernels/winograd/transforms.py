"""The transforms of F(4×4, 3×3): tiles of the input, their products, and weights.

A tile of 4×4 places of the result is reached by 6×6 elements of the input.  Along an
axis these are a polynomial's coefficients, evaluated at 0, at two pairs of points, and
at infinity; the products of values are those of a longer polynomial, which is found
from them (S. Winograd, "Arithmetic complexity of computations", 1980; A. Lavin,
S. Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308).  So 36
multiplications for each pair of channels take the place of 144.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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

TILE: Final = 4
"""Places of the result that a tile has along an axis."""

TAPS: Final = 3
"""Elements of the kernel along an axis."""

REACH: Final = TILE + TAPS - 1
"""Elements of the input that a tile reaches along an axis, and points."""

POINTS: Final = REACH * REACH
"""Products of a tile for each pair of channels."""

STAGE_BYTES: Final = POINTS * VECTOR_BYTES
"""Memory for what is transformed along one axis."""

_NEAR: Final = 0.625
_FAR: Final = 1.5
"""The points, but for 0 and infinity, are these and their negatives.  Errors are half
of those with 1 and 2 (B. Barabasz et al., "Error analysis and improving the accuracy
of Winograd convolution for deep neural networks", arXiv:1803.10986)."""


def lanes_of(isa: Isa, nbytes: int = F32.nbytes) -> int:
    """Elements of *nbytes* in a register."""
    return isa.vector_bytes // nbytes


class _Arithmetic:
    """Multiples of vectors, added."""

    def __init__(self, f: Function, isa: Isa) -> None:
        self._f, self._isa = f, isa

    def plus(self, total: Value, factor: float, value: Value) -> Value:
        """``total + factor · value``."""
        f = self._f
        return multiply_add(f, self._isa, value, f.value(factor, value.type), total)

    def of_input(self, d: Sequence[Value]) -> list[Value]:
        """Six elements of the input at the points."""
        near, far = _NEAR * _NEAR, _FAR * _FAR
        values = [self.plus(self.plus(d[4], near * far, d[0]), -(near + far), d[2])]
        for point, other in ((_NEAR, far), (_FAR, near)):
            even, odd = self.plus(d[4], -other, d[2]), self.plus(d[3], -other, d[1])
            values += [self.plus(even, point, odd), self.plus(even, -point, odd)]
        last = self.plus(self.plus(d[5], near * far, d[1]), -(near + far), d[3])
        return [*values, last]

    def of_products(self, m: Sequence[Value]) -> list[Value]:
        """Four places of the result from products at the points."""
        near, near_odd = m[1] + m[2], m[1] - m[2]
        far, far_odd = m[3] + m[4], m[3] - m[4]
        return [
            (m[0] + near) + far,
            self.plus(near_odd * _NEAR, _FAR, far_odd),
            self.plus(near * _NEAR**2, _FAR**2, far),
            self.plus(self.plus(m[5], _NEAR**3, near_odd), _FAR**3, far_odd),
        ]

    def of_weights(self, g: Sequence[Value]) -> list[Value]:
        """Three elements of a kernel at the points, divided by what the points are
        apart from the others, so that no other transform has to."""
        near, far = _NEAR * _NEAR, _FAR * _FAR
        values = [g[0] * (1 / (near * far))]
        for point, other in ((_NEAR, far), (_FAR, near)):
            square = point * point
            even, odd = self.plus(g[0], square, g[2]), g[1] * point
            scale = 1 / (2 * square * (square - other))
            values += [(even + odd) * scale, (even - odd) * scale]
        return [*values, g[2]]


class InputTransform(Generator):
    """A function that transforms a tile of the input, all its channels.

    ``void (ptr pixels, i64 channels, ptr target, i64 point, ptr stage)``: *pixels* are
    the addresses of the 6×6 elements' channels, which are consecutive; *target*
    receives, *point* bytes apart, the channels of each point, rounded up to vectors of
    64 bytes; *stage* is memory of :data:`STAGE_BYTES`.
    """

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
        lanes, arithmetic = Lanes(f, isa, width), _Arithmetic(f, isa)
        lanes.reserve_for("f32", False)

        def some(start: Value, part: Part) -> None:
            for line in range(REACH):
                elements = [
                    lanes.load(
                        "f32",
                        f.at(
                            f.load(f.at(pixels, line * REACH + pixel, I64), PTR),
                            start,
                            F32,
                        ),
                        part,
                    )
                    for pixel in range(REACH)
                ]
                for pixel, value in enumerate(arithmetic.of_input(elements)):
                    f.store(value, f.at(stage, (line * REACH + pixel) * width, F32))
            place = f.at(target, start, F32)
            for pixel in range(REACH):
                elements = [
                    f.load(f.at(stage, (line * REACH + pixel) * width, F32), vector)
                    for line in range(REACH)
                ]
                for line, value in enumerate(arithmetic.of_input(elements)):
                    f.store(value, move(f, place, point * (line * REACH + pixel)))

        full = channels & -width
        f.loop(full, lambda start: some(start, lanes.whole()), step=width)
        f.branch(full < channels, lambda: some(full, lanes.first(channels - full)))
        f.finish()


class OutputTransform(Generator):
    """A function that makes a tile of the result from its products.

    ``void (ptr products, i64 point, i64 columns, ptr target, i64 place, ptr stage)``:
    *products* are *point* bytes apart; *target* receives, *place* bytes apart, the 4×4
    places, each of *columns* elements, rounded up to vectors of 64 bytes; *stage* is
    memory of :data:`STAGE_BYTES`.
    """

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(
            name,
            [
                ("products", PTR),
                ("point", I64),
                ("columns", I64),
                ("target", PTR),
                ("place", I64),
                ("stage", PTR),
            ],
        )
        products, point, columns, target, place, stage = f.parameters
        width = lanes_of(isa)
        vector = F32.vector(width)
        arithmetic = _Arithmetic(f, isa)

        def some(start: Value) -> None:
            source = f.at(products, start, F32)
            for pixel in range(REACH):
                values = [
                    f.load(move(f, source, point * (line * REACH + pixel)), vector)
                    for line in range(REACH)
                ]
                for line, value in enumerate(arithmetic.of_products(values)):
                    f.store(value, f.at(stage, (line * REACH + pixel) * width, F32))
            for line in range(TILE):
                values = [
                    f.load(f.at(stage, (line * REACH + pixel) * width, F32), vector)
                    for pixel in range(REACH)
                ]
                for pixel, value in enumerate(arithmetic.of_products(values)):
                    at = move(f, target, place * (line * TILE + pixel))
                    f.store(value, f.at(at, start, F32))

        f.loop((columns + (LANES - 1)) & -LANES, some, step=width)
        f.finish()


class TransformWeights(Generator):
    """Transforms weights in float64, into panels; a chunk is a part of the panels.

    A panel has as many columns as a row of *panel* bytes, rows for all channels, point
    after point; the last one has as many columns as are left, rounded up to vectors of
    64 bytes and filled with zeros.

    Words: ``source``, the weights, with the bytes from one column (filter), channel,
    line and pixel of the kernel to the next; ``target``; how many ``columns`` and
    channels (``depth``); ``panel``; into how many ``parts`` panels are divided.
    """

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
        "parts",
    )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, integer = k.function, k.integer
        width = lanes_of(isa, F64.nbytes)
        lanes, arithmetic = Lanes(f, isa, width), _Arithmetic(f, isa)
        lanes.reserve_for("f32", True)
        source, target = k.pointer("source"), k.pointer("target")
        columns, depth, panel = integer("columns"), integer("depth"), integer("panel")
        per_panel = panel // F32.nbytes
        panels = (columns + (per_panel - 1)) // per_panel
        parts = integer("parts")

        def some(
            first: Value, end: Value, channel: Value, place: Value, point: Value
        ) -> None:
            """The points of some columns, from *first* on, of those before *end*."""
            left = f.maximum(f.minimum(end - first, width), f.value(0, I64))
            # none may be left; the last one is read then
            within = f.minimum(first, end - 1)
            part = lanes.first(f.maximum(left, f.value(1, I64)))
            mask = f.first_lanes(left, width)
            at = move(f, source, within * integer("column"))
            at = move(f, at, channel * integer("channel"))
            lines = []
            for line in range(TAPS):
                taps = []
                for pixel in range(TAPS):
                    step = integer("line") * line + integer("pixel") * pixel
                    tap = lanes.load("f32", move(f, at, step), part, integer("column"))
                    tap = f.select(mask, tap, 0)
                    taps.append(f.convert(tap, F64.vector(width)))
                lines.append(arithmetic.of_weights(taps))
            for pixel in range(REACH):
                values = arithmetic.of_weights([line[pixel] for line in lines])
                for line, value in enumerate(values):
                    rounded = f.convert(value, F32.vector(width))
                    f.store(rounded, move(f, place, point * (line * REACH + pixel)))

        def one_panel(index: Value) -> None:
            first = index * per_panel
            end = f.minimum(first + per_panel, columns)
            padded = ((end - first) + (LANES - 1)) & -LANES
            start = f.at(target, first * depth * POINTS, F32)
            point = depth * padded * F32.nbytes

            def row(channel: Value) -> None:
                place = f.at(start, channel * padded, F32)
                f.loop(
                    padded,
                    lambda column: some(
                        first + column, end, channel, f.at(place, column, F32), point
                    ),
                    step=width,
                )

            f.loop(depth, row)

        f.loop(
            panels * (k.chunk + 1) // parts, one_panel, start=panels * k.chunk // parts
        )
        f.finish()
