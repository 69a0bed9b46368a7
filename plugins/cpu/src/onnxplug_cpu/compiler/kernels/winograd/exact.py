"""Tiles of the result as sums of products, where transforms give nothing finite.

An infinite element, or sums near the largest float, make NaN of all places of a tile.
What is a number there without transforms has to be one with them, too.
"""

from __future__ import annotations

import itertools
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
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.rows import move
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TILINGS,
    Tiling,
    lanes_of,
    padded,
)
from onnxplug_cpu.compiler.machine.isa import Isa

_ROUNDED: Final = 2.0**-23
"""More than what transformed weights are rounded by, relative to their sizes."""


class ExactArguments(FunctionArguments):
    """The arguments of a function that computes a tile without transforms.

    ``pixels`` as :class:`~.transforms.InputArguments` has them; ``target``, ``line``
    and ``place`` as :class:`~.transforms.OutputArguments`; ``weights``, as
    :class:`~.transforms.TransformWeights` writes them, of a group of ``columns``; so
    many of these are a ``panel``.
    """

    pixels: Pointer
    channels: Integer
    columns: Integer
    target: Pointer
    line: Integer
    place: Integer
    weights: Pointer
    panel: Integer


class ExactTile(Generator):
    """A function that computes a tile of the result in float64; its arguments are
    :class:`ExactArguments`.

    What weights were follows from transformed ones but for their last bits, and for
    those that are millions of times as small as the others, which are 0 then.

    Attributes:
        tile: a size of :data:`~.transforms.TILINGS`.
    """

    tile: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        f = module.function(name, ExactArguments.parameters())
        _Sums(f, isa, ExactArguments(*f.parameters), TILINGS[self.tile]).write()


class _Sums:
    """The loops over columns and channels; they carry a sum for each place."""

    def __init__(
        self, f: Function, isa: Isa, arguments: ExactArguments, tiling: Tiling
    ) -> None:
        self.f, self.isa, self.arguments, self.tiling = f, isa, arguments, tiling
        self.width = lanes_of(isa, F64.nbytes)
        self.whole = padded(arguments.columns)
        self.point = arguments.channels * self.whole * F32.nbytes
        self.places = list(itertools.product(range(tiling.size), repeat=2))

    def write(self) -> None:
        self.f.loop(self.whole, self._columns, step=self.width)
        self.f.finish()

    def _columns(self, start: Value) -> None:
        f, arguments = self.f, self.arguments
        first = start - start % arguments.panel
        row = f.minimum(arguments.panel, self.whole - first) * F32.nbytes
        panel = f.at(arguments.weights, first * arguments.channels, F32)
        source = f.at(panel, start - first, F32)
        zeros = [f.zero(F64.vector(self.width))] * len(self.places)

        def channel(number: Value, *sums: Value) -> list[Value]:
            return self._channel(number, move(f, source, number * row), sums)

        totals = f.loop(arguments.channels, channel, zeros)
        for (y, x), total in zip(self.places, totals, strict=True):
            at = arguments.line * y + arguments.place * x
            to = f.at(move(f, arguments.target, at), start, F32)
            f.store(f.convert(total, F32.vector(self.width)), to)

    def _channel(
        self, channel: Value, weights: Value, sums: Sequence[Value]
    ) -> list[Value]:
        f, sums = self.f, list(sums)
        for (i, lines), (j, others) in itertools.product(
            enumerate(self.tiling.taps), repeat=2
        ):
            terms = [
                self._transformed(weights, line, pixel) * (factor * other)
                for line, factor in lines
                for pixel, other in others
            ]
            weight = _sum(f, terms)
            for n, (y, x) in enumerate(self.places):
                value = self._element(channel, y + i, x + j)
                sums[n] = multiply_add(f, self.isa, weight, value, sums[n])
        return sums

    def _transformed(self, weights: Value, line: int, pixel: int) -> Value:
        f, number = self.f, line * self.tiling.reach + pixel
        place = move(f, weights, self.point * number)
        value = f.load(place, F32.vector(self.width))
        return f.convert(value, F64.vector(self.width))

    def _element(self, channel: Value, line: int, pixel: int) -> Value:
        f, number = self.f, line * self.tiling.reach + pixel
        at = f.load(f.at(self.arguments.pixels, number, I64), PTR)
        value = f.convert(f.load(f.at(at, channel, F32), F32), F64)
        return f.splat(value, self.width)


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
