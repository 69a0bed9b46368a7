"""Which kernel computes a tile of a product by fused multiply-adds."""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.contraction.dot import DotProducts
from onnxplug_cpu.compiler.kernels.contraction.square_tile import SquareTile
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
)
from onnxplug_cpu.compiler.machine.isa import Isa

SQUARES: Final = "squares"
"""The way of tiles of quads whose panels have what these need; see
:mod:`~.square_tile`."""


class TileKernel(NamedTuple):
    """What the kernel of a tile depends on besides sizes.

    Attributes:
        way: :data:`SQUARES`, or empty for vectors.

    The others are as of :class:`~.tile.TileProduct`.
    """

    element: str
    factor: str
    keeps: bool
    alone: bool
    masked: bool
    taps: bool
    nbytes: int
    way: str
    isa: Isa

    def kernel(self, rows: int, vectors: int, added: int) -> Kernel:
        """That of so many rows of *vectors*, where *added* are added up together."""
        if self.way == SQUARES:
            form = self.element, rows, self.alone, self.taps, self.nbytes
            return _square_tile(*form)
        # integers are added in one cycle, so none waits
        is_float = self.element.startswith("f")
        chains = chains_of(self.isa, added) if is_float else 1
        return _tile(
            self.element,
            rows,
            vectors,
            chains,
            self.alone,
            self.masked,
            self.taps,
            self.nbytes,
            self.factor,
            self.keeps,
        )


@functools.cache
def _tile(
    element: str,
    rows: int,
    vectors: int,
    chains: int,
    alone: bool,
    masked: bool,
    taps: bool,
    nbytes: int,
    factor: str,
    keeps: bool,
) -> Kernel:
    form = TileProduct(element, rows, vectors, chains, alone, masked, taps, nbytes)
    return Kernel(form._replace(factor=factor, keeps=keeps))


@functools.cache
def _square_tile(
    element: str, rows: int, alone: bool, taps: bool, nbytes: int
) -> Kernel:
    return Kernel(SquareTile(element, rows, alone, taps, nbytes))


@functools.cache
def dot_kernel(rows: int) -> Kernel:
    """That of so many rows times columns that are consecutive."""
    return Kernel(DotProducts(rows))
