"""Many rows times weights that are codes: how they are divided, and their command."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, worker_memory
from onnxplug_cpu.compiler.commands.words import Word, code_of
from onnxplug_cpu.compiler.kernels.coded.byte_panels import (
    TILE_ROWS,
    ByteManyRows,
    ByteTile,
)
from onnxplug_cpu.compiler.kernels.coded.many import ManyRows
from onnxplug_cpu.compiler.kernels.coded.weights import Weights
from onnxplug_cpu.compiler.kernels.contraction.division import Blocks, divide
from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
from onnxplug_cpu.compiler.kernels.contraction.product import Product
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    TileShape,
    chains_of,
    tile_shape,
)
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

DEPTH: Final = 384
"""The most of K that is summed in one chain, and of which a panel is made."""

BYTE_DEPTH: Final = 1024
"""The same of bytes, whose sums of blocks are exact."""

_ROWS_BYTES: Final = 344 << 10  # of a block of rows that shares panels


class PanelProduct(Product):
    """A product of many rows while it is recorded.

    Attributes:
        shape: of tiles.
        panel_bytes: of a row of a panel.
    """

    most_depth: int
    """Of K that a panel is made of."""

    most_panels: int = 8
    """Of a chunk: their tiles wait while all rows meet a block of K."""

    flops_a_second: float
    """Of one thread, to guess how long work takes."""

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        weights: Weights,
        label: str,
        shape: TileShape,
    ) -> None:
        super().__init__(recorder, contraction, label)
        self.weights, self.shape = weights, shape
        self.panel_bytes = shape.vectors * VECTOR_BYTES

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """What computes chunks."""

    @property
    @abstractmethod
    def unit(self) -> int:
        """Of how many codes a panel is made at least."""

    @abstractmethod
    def panel_words(self, depth: int) -> dict[str, Word]:
        """Those of the kernel's that name panels of a part of K."""

    @abstractmethod
    def tile_of(self, rows: int, vectors: int) -> Callable[..., Kernel]:
        """What makes the function of a tile of so many rows and one less, of its
        rows."""

    def record(self) -> None:
        """Record the command."""
        weights, unit = self.weights, self.unit
        panels = -(-self.columns * 4 // self.panel_bytes)
        units = weights.inner // unit
        count = -(-units // max(1, self.most_depth // unit))
        depth = -(-units // count) * unit
        rows_bytes = self.rows * self.most_depth * self.itemsize
        division = divide(
            1,
            self.rows,
            panels,
            most_rows=self.shape.rows,
            together=1,
            row_parts=larger(1, round(rows_bytes / _ROWS_BYTES)),
            column_parts=-(-panels // self.most_panels),
            chunks=chunks_for(
                self.flops / self.flops_a_second, self.recorder.target.workers
            ),
        )
        tile_bytes = division.tile_rows * self.panel_bytes
        sums, sums_distance = worker_memory(
            self.recorder, tile_bytes * division.chunk_tiles * division.chunk_panels
        )
        left = self.columns * 4 - (panels - 1) * self.panel_bytes
        words: dict[str, Word] = {
            "depth": weights.inner,
            "steps": weights.block // weights.form.step,
            "panel_bytes": self.panel_bytes,
            **self._tiles(division.tile_rows, -(-left // VECTOR_BYTES)),
            "sums": sums,
            "sums_distance": sums_distance,
            "tile_bytes": tile_bytes,
            "chunk_tiles": division.chunk_tiles,
            **self.panel_words(depth),
            **weights.words,
        }
        blocks = Blocks(1, count, count, 1, count, depth)
        self.call(self.kernel, self.a, division, blocks, words)

    def _tiles(self, rows: int, vectors: int) -> dict[str, Word]:
        """The functions of tiles of so many rows, and one less; *vectors* are those of
        the last panel."""
        tails = {"": self.shape.vectors, "_tail": vectors}
        return {
            f"tile{low}{tail}": code_of(
                self.tile_of(rows, width), larger(1, rows - less)
            )
            for tail, width in tails.items()
            for low, less in (("", 0), ("_low", 1))
        }


class FloatPanels(PanelProduct):
    """One whose panels are floats."""

    most_depth = DEPTH
    flops_a_second = 40e9

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        weights: Weights,
        label: str,
    ) -> None:
        shape = tile_shape(recorder.target.isa)
        super().__init__(recorder, contraction, weights, label, shape)

    @property
    def kernel(self) -> Kernel:
        return Kernel(ManyRows(self.weights.form))

    @property
    def unit(self) -> int:
        return self.weights.form.step

    def panel_words(self, depth: int) -> dict[str, Word]:
        made, distance = worker_memory(self.recorder, depth * self.panel_bytes)
        return {"panel_made": made, "made_distance": distance}

    def tile_of(self, rows: int, vectors: int) -> Callable[..., Kernel]:
        chains = chains_of(self.recorder.target.isa, rows * self.shape.vectors)
        return functools.partial(_float_tile, vectors, chains)


class BytePanels(PanelProduct):
    """One of rows that were rounded to bytes, whose panels are quads.

    Args:
        scales, sums: of the blocks of the rows, as :class:`~.rows.RoundRows` writes
            them.
    """

    most_depth = BYTE_DEPTH
    flops_a_second = 120e9

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        weights: Weights,
        label: str,
        scales: View,
        sums: View,
    ) -> None:
        shape = TileShape(TILE_ROWS, 2)
        super().__init__(recorder, contraction, weights, label, shape)
        self.scales, self.of_rows = scales, sums

    @property
    def kernel(self) -> Kernel:
        return Kernel(ByteManyRows(self.weights.form))

    @property
    def unit(self) -> int:
        return self.weights.block

    def panel_words(self, depth: int) -> dict[str, Word]:
        nbytes = depth // 4 * self.panel_bytes
        of_scales = depth // self.unit * 2 * self.panel_bytes
        made, distance = worker_memory(self.recorder, nbytes + of_scales)
        scales, sums, size = self.scales, self.of_rows, 4
        return {
            "panel_made": made,
            "scales_made": Address(made.buffer, made.offset + nbytes),
            "made_distance": distance,
            "a_scales": scales.address,
            "a_scales_row": scales.strides[0] * size,
            "a_distance": scales.shape[1] // self.weights.blocks * size,
            "a_sums": sums.address,
            "a_sums_row": sums.strides[0] * size,
        }

    def tile_of(self, rows: int, vectors: int) -> Callable[..., Kernel]:
        return functools.partial(_byte_tile, vectors, not self.weights.form.zero)


@functools.cache
def _float_tile(vectors: int, chains: int, rows: int) -> Kernel:
    return Kernel(TileProduct("f32", rows, vectors, chains))


@functools.cache
def _byte_tile(vectors: int, starts: bool, rows: int) -> Kernel:
    return Kernel(ByteTile(rows, vectors, starts))
