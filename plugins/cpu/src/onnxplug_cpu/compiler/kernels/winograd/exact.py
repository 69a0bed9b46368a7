"""Tiles of the result as sums of products, where transforms give nothing finite.

An infinite element, or sums near the largest float, make NaN of all places of a tile.
What is a number there without transforms has to be one with them, too.
"""

from __future__ import annotations

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
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.transforms import TILINGS, lanes_of
from onnxplug_cpu.compiler.target.isa import LANES, Isa


class ExactTile(Generator):
    """A function that computes a tile of the result in float64.

    ``void (ptr pixels, i64 channels, i64 columns, ptr target, i64 line, i64 place, ptr
    weights, i64 panel)``: *pixels* as :class:`~.transforms.InputTransform` takes them;
    *target*, *line* and *place* as :class:`~.transforms.OutputTransform` does;
    *weights*, as :class:`~.transforms.TransformWeights` writes them, of a group of
    *columns*; so many of these are a *panel*.

    What weights were follows from transformed ones but for their last bits, and for
    those that are millions of times as small as the others, which are 0 then.

    Attributes:
        tile: a size of :data:`~.transforms.TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(
            name,
            [
                ("pixels", PTR),
                ("channels", I64),
                ("columns", I64),
                ("target", PTR),
                ("line", I64),
                ("place", I64),
                ("weights", PTR),
                ("panel", I64),
            ],
        )
        pixels, channels, columns, target, line, place, weights, panel = f.parameters
        tiling = TILINGS[self.tile]
        width = lanes_of(isa, F64.nbytes)
        vector = F64.vector(width)
        padded = (columns + (LANES - 1)) & -LANES
        point = channels * padded * F32.nbytes

        def some(start: Value, y: Value, x: Value) -> None:
            first = start - start % panel
            row = f.minimum(panel, padded - first) * F32.nbytes
            source = f.at(f.at(weights, first * channels, F32), start - first, F32)

            def over_channels(channel: Value, total: Value) -> list[Value]:
                here = move(f, source, channel * row)

                def at(line: int, pixel: int) -> Value:
                    number = line * tiling.reach + pixel
                    value = f.load(move(f, here, point * number), F32.vector(width))
                    return f.convert(value, vector)

                for i, lines in enumerate(tiling.taps):
                    for j, taps in enumerate(tiling.taps):
                        terms = [
                            at(line, tap) * (factor * other)
                            for line, factor in lines
                            for tap, other in taps
                        ]
                        address = f.at(pixels, (y + i) * tiling.reach + (x + j), I64)
                        pixel = f.at(f.load(address, PTR), channel, F32)
                        element = f.convert(f.load(pixel, F32), F64)
                        total = multiply_add(
                            f, isa, _sum(f, terms), f.splat(element, width), total
                        )
                return [total]

            (total,) = f.loop(channels, over_channels, [f.zero(vector)])
            to = move(f, target, y * line + x * place)
            f.store(f.convert(total, F32.vector(width)), f.at(to, start, F32))

        def over_places(number: Value) -> None:
            y, x = number // tiling.size, number % tiling.size
            f.loop(padded, lambda start: some(start, y, x), step=width)

        f.loop(tiling.size * tiling.size, over_places)
        f.finish()


def _sum(f: Function, terms: list[Value]) -> Value:
    """Of *terms*; 0 if it is no more than what they were rounded by."""
    total, *rest = terms
    size = f.unary("fabs", total)
    for term in rest:
        total = total + term
        size = size + f.unary("fabs", term)
    if not rest:
        return total
    return f.select(
        f.unary("fabs", total) <= size * _ROUNDED, f.zero(total.type), total
    )


_ROUNDED: Final = 2.0**-23
