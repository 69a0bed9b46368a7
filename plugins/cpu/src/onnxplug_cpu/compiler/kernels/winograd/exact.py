"""Tiles of the result as sums of products, where transforms give nothing finite.

An infinite element, or sums near the largest float, make NaN of all places of a tile.
What is a number there without transforms has to be one with them, too.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, F64, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.codegen.lanes import Lanes
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TAPS,
    TILINGS,
    lanes_of,
)
from onnxplug_cpu.compiler.target.isa import Isa

WEIGHTS: Final = (
    "kernel",
    "kernel_column",
    "kernel_channel",
    "kernel_line",
    "kernel_pixel",
)
"""The fields of the last argument: weights that are not transformed, and their
distances in bytes."""


class ExactTile(Generator):
    """A function that computes a tile of the result in float64.

    ``void (ptr pixels, i64 channels, i64 first, i64 columns, ptr target, i64 line, i64
    place, ptr weights)``: *pixels* as :class:`~.transforms.InputTransform` takes them;
    *target*, *line* and *place* as :class:`~.transforms.OutputTransform` does, for
    *columns* from *first* on; *weights* has :data:`WEIGHTS`.

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
                ("first", I64),
                ("columns", I64),
                ("target", PTR),
                ("line", I64),
                ("place", I64),
                ("weights", PTR),
            ],
        )
        pixels, channels, first, columns, target, line, place, weights = f.parameters
        tiling = TILINGS[self.tile]
        width = lanes_of(isa, F64.nbytes)
        vector = F64.vector(width)
        lanes = Lanes(f, isa, width)
        lanes.reserve_for("f32", True)
        kernel = f.load(weights, PTR)
        column_bytes, channel_bytes, line_bytes, pixel_bytes = (
            f.load(f.at(weights, n, I64), I64) for n in range(1, len(WEIGHTS))
        )

        def some(start: Value, y: Value, x: Value) -> None:
            part = lanes.first(columns - start)
            source = move(f, kernel, (first + start) * column_bytes)

            def over_taps(tap: Value, total: Value) -> list[Value]:
                i, j = tap // TAPS, tap % TAPS
                pixel = f.load(f.at(pixels, (y + i) * tiling.reach + (x + j), I64), PTR)
                at = move(f, source, i * line_bytes + j * pixel_bytes)

                def over_channels(channel: Value, total: Value) -> list[Value]:
                    factor = f.convert(f.load(f.at(pixel, channel, F32), F32), F64)
                    here = move(f, at, channel * channel_bytes)
                    loaded = lanes.load("f32", here, part, column_bytes)
                    weight = f.convert(loaded, vector)
                    return [multiply_add(f, isa, weight, f.splat(factor, width), total)]

                return f.loop(channels, over_channels, [total])

            (total,) = f.loop(TAPS * TAPS, over_taps, [f.zero(vector)])
            to = move(f, target, y * line + x * place)
            f.store(f.convert(total, F32.vector(width)), f.at(to, start, F32))

        def over_places(number: Value) -> None:
            y, x = number // tiling.size, number % tiling.size
            f.loop(columns, lambda start: some(start, y, x), step=width)

        f.loop(tiling.size * tiling.size, over_places)
        f.finish()
