"""Tiles of the result as sums of products, where transforms give nothing finite.

An infinite element, or sums near the largest float, make NaN of all places of a tile.
What is a number there without transforms has to be one with them, too.
"""

from __future__ import annotations

import itertools
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
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TILINGS,
    lanes_of,
    padded,
)
from onnxplug_cpu.compiler.target.isa import Isa

_ROUNDED: Final = 2.0**-23
"""More than what transformed weights are rounded by, relative to their sizes."""


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
        whole = padded(columns)
        point = channels * whole * F32.nbytes
        places = list(itertools.product(range(tiling.size), repeat=2))
        taps = list(itertools.product(enumerate(tiling.taps), repeat=2))

        def some(start: Value) -> None:
            first = start - start % panel
            row = f.minimum(panel, whole - first) * F32.nbytes
            source = f.at(f.at(weights, first * channels, F32), start - first, F32)

            def over_channels(channel: Value, *totals: Value) -> list[Value]:
                here = move(f, source, channel * row)

                def transformed(line: int, pixel: int) -> Value:
                    number = line * tiling.reach + pixel
                    value = f.load(move(f, here, point * number), F32.vector(width))
                    return f.convert(value, vector)

                def element(line: int, pixel: int) -> Value:
                    at = f.load(f.at(pixels, line * tiling.reach + pixel, I64), PTR)
                    value = f.convert(f.load(f.at(at, channel, F32), F32), F64)
                    return f.splat(value, width)

                sums = list(totals)
                for (i, lines), (j, others) in taps:
                    terms = [
                        transformed(at, tap) * (factor * other)
                        for at, factor in lines
                        for tap, other in others
                    ]
                    weight = _sum(f, terms)
                    for n, (y, x) in enumerate(places):
                        value = element(y + i, x + j)
                        sums[n] = multiply_add(f, isa, weight, value, sums[n])
                return sums

            zeros = [f.zero(vector)] * len(places)
            totals = f.loop(channels, over_channels, zeros)
            for (y, x), total in zip(places, totals, strict=True):
                to = f.at(move(f, target, line * y + place * x), start, F32)
                f.store(f.convert(total, F32.vector(width)), to)

        f.loop(whole, some, step=width)
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
