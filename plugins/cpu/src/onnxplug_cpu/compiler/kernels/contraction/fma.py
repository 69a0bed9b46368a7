"""Contractions by fused multiply-adds: how they are divided, and their commands."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.ir.traced import either, larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, code_of
from onnxplug_cpu.compiler.kernels.contraction.block import (
    STRIP_BYTES,
    BlockProduct,
)
from onnxplug_cpu.compiler.kernels.contraction.division import (
    Blocks,
    Division,
    divide,
    divide_depth,
)
from onnxplug_cpu.compiler.kernels.contraction.left_factor import (
    left_factor,
    rows_collide,
)
from onnxplug_cpu.compiler.kernels.contraction.operands import once
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    CopyMatrices,
    PackPanel,
    panel_way,
)
from onnxplug_cpu.compiler.kernels.contraction.right_factor import (
    BLOCK_BYTES,
    DOT_ROWS,
    ProductOfPanels,
    Right,
    rows_together,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileShape,
)
from onnxplug_cpu.compiler.kernels.contraction.tile_kernel import (
    TileKernel,
    dot_kernel,
)
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

BLOCK_DEPTH: Final = 384
"""The most of K that is summed in one chain: longer sums round worse than those of
other libraries."""

TAPS_DEPTH: Final = 256
"""The same of several taps, as networks of convolutions are deep and add up what each
layer rounds: their errors are 0.6 to 1.4 times those of other libraries."""

FEW_CHANNELS: Final = 64
"""So few are at the beginnings of networks, and all layers behind pass on what sums
over them round."""

FEW_CHANNELS_DEPTH: Final = 144
"""The most of several taps of so few channels: with 256, DETR's errors are 1.7 times as
large.  It costs networks half a percent."""

KEPT_TILES: Final = 2
"""From so many tiles on that read a panel of 16 bits, the first widens it for all of
them: each that widens it by itself takes 7 % longer with AVX-512 (Zen 4)."""

ROWS_BYTES: Final = 344 << 10
"""About how much of A shares a panel of B before the next one."""

B_BYTES: Final = 256 << 10
"""What of B should stay in the second-level cache."""

_FLOPS: Final = 60e9  # of one thread, a second: to guess how long work takes
_BLOCK_PRODUCT: Final = Kernel(BlockProduct())


class FmaProduct(ProductOfPanels):
    """A contraction by fused multiply-adds while it is recorded.

    Attributes:
        tile_element: as tiles multiply the factors, if that is not *element*.
        way: of the tiles; see :class:`~.tile_kernel.TileKernel`.
    """

    tile_element = ""
    way = ""

    def record(self) -> None:
        """Record the commands."""
        a, right = self._rows_of_a(), self.right()
        # tiles of B in place are as wide as few rows leave room for
        usual = tile = self.usual._replace(vectors=right.vectors)
        if right.way == "panels":
            usual, tile = self.usual, self.tile
        division = self._divide(tile)
        blocks = self.blocks(self._divide(usual), right)
        outer = blocks.outer_blocks
        panel_bytes = right.vectors * VECTOR_BYTES
        read_bytes = right.vectors * self.right_vector
        tile_bytes = division.tile_rows * panel_bytes
        a_row = abs(a.strides[3]) * self.itemsize
        strip = 1
        by_rows = self._by_rows(division, right, -(-self.inner // outer))
        if by_rows and outer == 1 and right.way != "dot":
            together = STRIP_BYTES // tile_bytes
            strip = larger(1, smaller(division.chunk_panels, together))
        partial: Word = 0
        partial_distance = 0
        if outer > 1:
            partial, partial_distance = worker_memory(
                self.recorder, tile_bytes * division.chunk_tiles * division.chunk_panels
            )
        widening = self._widening(division, right, blocks, by_rows=by_rows)
        widens = bool(widening["widened_distance"])
        row, tail_row = (
            n * self.itemsize // self.right_size if widens else n
            for n in (right.row, right.tail_row)
        )
        words: dict[str, Word] = {
            "b": right.address,
            "b_batch0": right.batch0,
            "b_batch1": right.batch1,
            "b_row": row,
            "b_tail_row": tail_row,
            "b_depth": right.depth,
            "b_tail_depth": right.tail_depth,
            "b_panel": right.panel,
            "depth": self.depth,
            "element": self.itemsize,
            "panel_bytes": panel_bytes,
            "by_rows": int(by_rows),
            "strip": strip,
            "a_prefetch": -(
                -division.tile_rows * a_row // larger(1, self.inner * strip)
            ),
            "b_prefetch": -(-read_bytes // division.chunk_tiles),
            "partial": partial,
            "partial_distance": partial_distance,
            "partial_tile": tile_bytes if partial else 0,
            "partial_panel": tile_bytes * division.chunk_tiles if partial else 0,
            **self._tiles(division, right, "" if widens else self.factor),
            **self._packing(division, right),
            **widening,
        }
        self.call(_BLOCK_PRODUCT, a, division, blocks, words)

    # the division of the work

    def _divide(self, tile: TileShape) -> Division:
        per_panel = tile.vectors * VECTOR_BYTES // self.itemsize
        seconds = larger(self.flops / _FLOPS, self.nbytes / BYTES_PER_SECOND)
        wanted = chunks_for(seconds, self.recorder.target.workers)
        row_parts = self.row_parts()
        # all rows use some columns of B while those are in the cache
        cached = round(self.inner * self.columns * self.itemsize / (1 << 20))
        if cached > 1 and row_parts == 1:
            cached = 1
        return divide(
            self.lines,
            self.line_rows,
            -(-self.columns // per_panel),
            most_rows=tile.rows,
            together=1,
            row_parts=row_parts,
            column_parts=cached,
            chunks=-(-wanted // self.batches),
            rows_first=self._rows_first() if cached <= 1 else 0,
        )

    def _rows_first(self) -> int:
        """Whether each thread should have some rows, and read all of B: 1 or 0.

        What other threads wrote is read more slowly than what nobody writes.  If rows
        of the result are divided as those of A were, a thread has both in its cache.
        """
        nbytes = self.inner * self.columns * self.itemsize
        return either(nbytes, self.nbytes // 2, 1, 0)

    def row_parts(self) -> int:
        """Into how many parts caches want the rows divided."""
        kept = self.rows * min(self.depth, 2 * BLOCK_DEPTH) * self.itemsize
        if self.taps > 1:
            kept = self.contraction.window_bytes
        return larger(1, round(kept / ROWS_BYTES))

    def blocks(self, division: Division, right: Right) -> Blocks:
        """Blocks as *division* wants them: they say how sums are rounded."""
        if right.way == "dot":
            return divide_depth(1, self.depth, most=max(1, self.depth))
        passes = 1
        # taps share most of A, so that blocks of them need as much of it as all
        if division.all_tiles > 1 and self.taps == 1:
            rows = division.chunk_tiles * division.tile_rows
            cached = larger(BLOCK_DEPTH, BLOCK_BYTES // (rows * self.itemsize))
            passes = larger(1, -(-self.depth // cached))
        most = BLOCK_DEPTH
        if self.taps > 1:
            few = self.depth <= FEW_CHANNELS
            most = FEW_CHANNELS_DEPTH if few else TAPS_DEPTH
        return divide_depth(self.taps, self.depth, most=most, passes=passes)

    def _by_rows(self, division: Division, right: Right, depth: int) -> bool:
        """Whether a chunk's part of B, *depth* of K, stays in the cache, so that the
        result can be written in order."""
        nbytes = depth * right.vectors * VECTOR_BYTES * division.chunk_panels
        return division.all_tiles > 1 and nbytes <= B_BYTES

    def _widening(
        self, division: Division, right: Right, blocks: Blocks, *, by_rows: bool
    ) -> dict[str, Word]:
        """How the first tile widens a narrower B for others, if there are some."""
        if not self.factor or division.chunk_tiles < KEPT_TILES:
            names = ("", "_low", "_tail", "_low_tail")
            words: dict[str, Word] = {f"keeping{name}": 0 for name in names}
            return {**words, "widened": 0, "widened_distance": 0}
        length = self.inner
        if blocks.outer_blocks > 1:
            length = blocks.inner_blocks * blocks.block_depth
        panels = division.chunk_panels if by_rows else 1
        scratch, distance = worker_memory(
            self.recorder, panels * length * right.vectors * VECTOR_BYTES
        )
        tiles = self._tiles(division, right, self.factor, keeps=True)
        words = {
            name.replace("tile", "keeping", 1): tile for name, tile in tiles.items()
        }
        return {**words, "widened": scratch, "widened_distance": distance}

    def _tiles(
        self, division: Division, right: Right, factor: str, *, keeps: bool = False
    ) -> dict[str, Word]:
        """The functions of tiles, which read elements of *factor*."""
        lanes = VECTOR_BYTES // self.itemsize
        left = self.columns - (division.panels - 1) * right.vectors * lanes
        masked = right.way == "rows" and left % lanes != 0
        alone = division.all_tiles == 1
        tall = division.tile_rows
        low = either(division.tall_tiles, division.tiles, tall - 1, tall)
        isa = self.processor

        # a function that is never called need not be compiled
        whole = division.panels > 1 or left == right.vectors * lanes
        part = left != right.vectors * lanes
        panels = right.way == "panels"
        added = self._added_together(self.usual.vectors if panels else right.vectors)

        def function(rows: int, *, tail: bool) -> Word:
            if right.way == "dot":
                return code_of(dot_kernel, rows)
            vectors, ends, nbytes = right.vectors, False, VECTOR_BYTES
            if tail:
                vectors, ends = -(-left // lanes), masked
                half = lanes // 2
                halves = left <= half or isa.vector_bytes < VECTOR_BYTES
                if -(-left // half) % 2 and not masked and halves:
                    vectors, nbytes = -(-left // half), VECTOR_BYTES // 2
            kind = self.tile_element or self.element
            taps = self.taps > 1
            tile = TileKernel(
                kind, factor, keeps, alone, ends, taps, nbytes, self.way, isa
            )
            return code_of(tile.kernel, rows, vectors, added)

        return {
            "tile": function(tall, tail=not whole),
            "tile_low": function(low, tail=not whole),
            "tile_tail": function(tall, tail=part),
            "tile_low_tail": function(low, tail=part),
        }

    def _added_together(self, vectors: int) -> int:
        """The vectors of a usual tile, of so many in a row, which say in how many
        chains an element is added up by every schedule."""
        vectors = min(vectors, -(-self.columns * self.itemsize // VECTOR_BYTES))
        tiles = -(-self.line_rows // self.usual.rows)
        return -(-self.line_rows // tiles) * vectors

    def _packing(self, division: Division, right: Right) -> dict[str, Word]:
        """How chunks pack B, if they do."""
        b = right.pack
        if b is None:
            names = ("pack", "pack_row", "pack_column", "pack_rows", "packed")
            return dict.fromkeys((*names, "packed_distance"), 0)
        packed, distance = worker_memory(
            self.recorder, division.chunk_panels * right.panel
        )
        way = panel_way(self.element, b.strides[-2], b.strides[-1], self.columns)
        return {
            "pack": Code(Kernel(PackPanel(self.element, way))),
            "pack_row": b.strides[-2] * self.itemsize,
            "pack_column": b.strides[-1] * self.itemsize,
            "pack_rows": rows_together(way, self.inner),
            "packed": packed,
            "packed_distance": distance,
        }

    # operands

    def _rows_of_a(self) -> View:
        """A with rows of consecutive elements that do not evict each other."""
        a, size = self.a, self.itemsize
        if (a.strides[4] == 1 or self.depth <= 1) and (
            self.taps > 1
            or self.lines > 1
            or not rows_collide(abs(a.strides[3] * size))
            or self.rows <= DOT_ROWS
            or self.columns < 2 * VECTOR_BYTES // size
        ):
            return a
        a = once(a)
        target = left_factor(self.recorder, a.dtype, a.shape)
        matrices = a.shape[0] * a.shape[1]
        way = panel_way(self.element, a.strides[3], a.strides[4], self.depth)
        parts = self.pack_parts(matrices, a.nbytes, self.rows)
        call(
            self.recorder,
            Kernel(CopyMatrices()),
            {
                "source": a.address,
                "batch0": a.strides[0] * size,
                "batch1": a.strides[1] * size,
                "row": a.strides[3] * size,
                "column": a.strides[4] * size,
                "target": target.address,
                "target_row": target.strides[3] * size,
                "rows": self.rows,
                "columns": self.depth,
                "batches1": a.shape[1],
                "parts": parts,
                "pack": Code(Kernel(PackPanel(self.element, way))),
            },
            chunks=matrices * parts,
            label=f"{self.label}: pack A",
            nbytes=2 * a.nbytes,
        )
        return target.broadcast_to(self.a.shape)
