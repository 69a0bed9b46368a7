"""Contractions by fused multiply-adds: how they are divided, and their commands."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.traced import either, larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.math.narrow import has_f16
from onnxplug_cpu.compiler.commands.chunks import chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, Words, code_of
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
from onnxplug_cpu.compiler.kernels.contraction.dot import DotProducts
from onnxplug_cpu.compiler.kernels.contraction.left_factor import (
    left_factor,
    rows_collide,
)
from onnxplug_cpu.compiler.kernels.contraction.operands import once, tap_offsets
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    CopyMatrices,
    PackMatrices,
    PackPanel,
    panel_way,
)
from onnxplug_cpu.compiler.kernels.contraction.product import Product
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    TileShape,
    chains_of,
    masked_rows,
    narrow_tile,
    tile_shape,
    wide_vectors,
)
from onnxplug_cpu.compiler.kernels.widening import widened
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction

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

ROWS_BYTES: Final = 344 << 10
"""About how much of A shares a panel of B before the next one."""

BLOCK_BYTES: Final = 400 << 10
"""What of A, and of sums that wait, should stay in the second-level cache."""

B_BYTES: Final = 256 << 10
"""What of B should stay in the second-level cache."""

WIDENED_ROWS: Final = 64
"""From so many rows on a small B of 16 bits is packed as float32: it is read from a
cache, and widening it for each tile costs MobileNetV2 8 % with AVX2."""

DOT_ROWS: Final = 4
"""Up to as many rows, a transposed B is read as it is."""

WIDE_ROWS: Final = 3
"""Up to as many rows, any B with consecutive columns is read as it is."""

_FLOPS, _BYTES = 60e9, 8e9  # of one thread, a second: to guess how long work takes
_ROWS_TOGETHER = 32  # of B, packed into all panels in turn: so many streams of reads
_ELEMENTS = {
    "float32": "f32",
    "float64": "f64",
    # products and sums that wrap are the same with and without signs
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
}
_NARROW: Final = {"float16": "f16", "bfloat16": "bf16"}
"""Of B, where A is of float32."""


class Right(NamedTuple):
    """B as the tiles read it, panel by panel; distances are in bytes.

    Attributes:
        address: of the first matrix's first panel.
        batch0, batch1: distances of two matrices.
        vectors: of 64 bytes in a panel's row.
        row, tail_row: what tiles receive of strides; in the last panel.
        depth, tail_depth: distances of two elements along K; in the last panel.
        panel: distance of two panels.
        way: ``panels`` (whole vectors), ``rows`` (in place, the last vector masked), or
            ``dot``.
        pack: B, when each chunk packs its panels.
    """

    address: Address
    batch0: int
    batch1: int
    vectors: int
    row: int
    tail_row: int
    depth: int
    tail_depth: int
    panel: int
    way: str
    pack: View | None = None


_BLOCK_PRODUCT: Final = Kernel(BlockProduct())


class _Tile(NamedTuple):
    """What the kernel of a tile depends on besides sizes; as of
    :class:`~.tile.TileProduct`."""

    element: str
    factor: str
    alone: bool
    masked: bool
    taps: bool
    nbytes: int
    isa: Isa

    def kernel(self, rows: int, vectors: int, added: int) -> Kernel:
        """That of so many rows of *vectors*, where *added* are added up together."""
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
) -> Kernel:
    form = TileProduct(element, rows, vectors, chains, alone, masked, taps, nbytes)
    return Kernel(form._replace(factor=factor))


@functools.cache
def _dot(rows: int) -> Kernel:
    return Kernel(DotProducts(rows))


class FmaProduct(Product):
    """A contraction by fused multiply-adds while it is recorded.

    Attributes:
        element: of the factors as they are packed and copied.
        tile_element: as tiles multiply them, if that is another.
        factor: of B, where that stays narrower in panels; else empty.
    """

    tile_element = ""

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
    ) -> None:
        super().__init__(recorder, contraction, label)
        self.element = _ELEMENTS[self.a.dtype_name]
        self.factor = _NARROW.get(self.b.dtype_name, "")
        nbytes = self.inner * self.columns * self.itemsize
        if self.factor and self.rows >= WIDENED_ROWS and nbytes <= B_BYTES:
            self.factor = ""
        if self.factor == "f16" and not has_f16(recorder.target.isa):
            self.factor = ""  # widening it takes longer than multiplying
        self.usual = self.tile = self.shape_of_tiles(recorder.target.isa)
        narrow = narrow_tile(recorder.target.isa, self.columns * self.itemsize)
        if narrow is not None and self.line_rows > narrow.rows:
            self.tile = narrow

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return tile_shape(isa)

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
        tile_bytes = division.tile_rows * panel_bytes
        a_row = abs(a.strides[3]) * self.itemsize
        strip = 1
        by_rows = self._by_rows(division, right, -(-self.inner // outer))
        if by_rows and outer == 1 and right.way != "dot":
            strip = larger(1, smaller(division.chunk_panels, STRIP_BYTES // tile_bytes))
        partial: Word = 0
        partial_distance = 0
        if outer > 1:
            partial, partial_distance = worker_memory(
                self.recorder, tile_bytes * division.chunk_tiles * division.chunk_panels
            )
        words: dict[str, Word] = {
            "b": right.address,
            "b_batch0": right.batch0,
            "b_batch1": right.batch1,
            "b_row": right.row,
            "b_tail_row": right.tail_row,
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
            "b_prefetch": -(-panel_bytes // division.chunk_tiles),
            "partial": partial,
            "partial_distance": partial_distance,
            "partial_tile": tile_bytes if partial else 0,
            "partial_panel": tile_bytes * division.chunk_tiles if partial else 0,
            **self._tiles(division, right),
            **self._packing(division, right),
        }
        self.call(_BLOCK_PRODUCT, a, division, blocks, words)

    # the division of the work

    def _divide(self, tile: TileShape) -> Division:
        per_panel = tile.vectors * VECTOR_BYTES // self.itemsize
        seconds = larger(self.flops / _FLOPS, self.nbytes / _BYTES)
        wanted = chunks_for(seconds, self.recorder.target.workers)
        row_parts = self._row_parts()
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

    def _row_parts(self) -> int:
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
        panel = depth * right.vectors * VECTOR_BYTES
        return division.all_tiles > 1 and panel * division.chunk_panels <= B_BYTES

    def _tiles(self, division: Division, right: Right) -> dict[str, Word]:
        """The functions of tiles."""
        lanes = VECTOR_BYTES // self.itemsize
        left = self.columns - (division.panels - 1) * right.vectors * lanes
        masked = right.way == "rows" and left % lanes != 0
        alone = division.all_tiles == 1
        tall = division.tile_rows
        low = either(division.tall_tiles, division.tiles, tall - 1, tall)
        isa = self.recorder.target.isa

        # a function that is never called need not be compiled
        whole = division.panels > 1 or left == right.vectors * lanes
        part = left != right.vectors * lanes
        panels = right.way == "panels"
        added = self._added_together(self.usual.vectors if panels else right.vectors)

        def function(rows: int, *, tail: bool) -> Word:
            if right.way == "dot":
                return code_of(_dot, rows)
            vectors, ends, nbytes = right.vectors, False, VECTOR_BYTES
            if tail:
                vectors, ends = -(-left // lanes), masked
                half = lanes // 2
                halves = left <= half or isa.vector_bytes < VECTOR_BYTES
                if -(-left // half) % 2 and not masked and halves:
                    vectors, nbytes = -(-left // half), VECTOR_BYTES // 2
            kind = self.tile_element or self.element
            tile = _Tile(kind, self.factor, alone, ends, self.taps > 1, nbytes, isa)
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
            "pack_rows": _rows_together(way, self.inner),
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
        parts = self._pack_parts(matrices, a.nbytes, self.rows)
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

    def right(self) -> Right:
        """B where tiles can read it, the commands that pack it recorded."""
        b = once(self.b)
        if isinstance(b.buffer, Constant) or len(b.shape) > 4:
            return self._packed(b)
        size = self.itemsize
        in_place = Right(
            b.address,
            self.b.strides[0] * size,
            self.b.strides[1] * size,
            self.usual.vectors,
            b.strides[2] * size,
            b.strides[2] * size,
            b.strides[2] * size,
            b.strides[2] * size,
            self.usual.vectors * VECTOR_BYTES,
            "rows",
        )
        isa = self.recorder.target.isa
        most = self.usual.rows
        if self.columns * size % VECTOR_BYTES:
            most = masked_rows(isa)
        if b.strides[3] == 1 or self.columns == 1:
            if self.rows <= min(WIDE_ROWS, most):
                vectors = wide_vectors(isa, self.rows)
                return in_place._replace(vectors=vectors, panel=vectors * VECTOR_BYTES)
            if self.rows <= most and self.inner * self.columns * size <= BLOCK_BYTES:
                return in_place
        if (
            b.strides[2] == 1
            and self.rows <= DOT_ROWS
            and self.taps == 1
            and self.element == "f32"
        ):
            column = b.strides[3] * size
            per_panel = in_place.vectors * VECTOR_BYTES // size
            return in_place._replace(
                row=column,
                tail_row=column,
                depth=size,
                tail_depth=size,
                panel=column * per_panel,
                way="dot",
            )
        workers = self.recorder.target.workers
        few = workers > 1 and self.batches < 2 * workers
        repeated = b.shape[0] * b.shape[1] < self.batches
        if not (few or repeated) and self.rows >= 64 * (self._row_parts() - 1):
            return self._packed_by_chunks(b)
        return self._packed(b)

    def _packed_by_chunks(self, b: View) -> Right:
        size = self.itemsize
        return self.panels(b.address)._replace(
            batch0=self.b.strides[0] * size,
            batch1=self.b.strides[1] * size,
            pack=b,
        )

    def panels(self, address: Address) -> Right:
        """One matrix in panels."""
        vector = self._right_vector
        row = self.tile.vectors * vector
        left = (self.columns * self._right_size - 1) % row + 1
        tail = -(-left // vector) * vector
        return Right(
            address,
            0,
            0,
            self.tile.vectors,
            row,
            tail,
            row,
            tail,
            self.inner * row,
            "panels",
        )

    @property
    def _right_size(self) -> int:
        """Bytes of an element of B in panels."""
        return self.b.dtype.itemsize if self.factor else self.itemsize

    @property
    def _right_vector(self) -> int:
        """Bytes of B in panels for a vector of the result."""
        return VECTOR_BYTES // self.itemsize * self._right_size

    def _packed(self, b: View) -> Right:
        """All matrices in panels: constants once, others by a command before."""
        lanes = VECTOR_BYTES // self.itemsize
        matrix = self.inner * -(-self.columns // lanes) * self._right_vector
        matrices = b.shape[0] * b.shape[1]
        if isinstance(b.buffer, Constant):
            address = self.recorder.packed(
                b,
                self.layout(b),
                matrices * matrix,
                functools.partial(self.record_pack, matrix=matrix),
            )
        else:
            address = self.recorder.temporary(
                self.a.dtype, (matrices, matrix // self.itemsize)
            ).address
            self.record_pack(self.recorder, b, address, matrix=matrix)
        return self.panels(address)._replace(
            batch0=0 if b.shape[0] == 1 else matrix * b.shape[1],
            batch1=0 if b.shape[1] == 1 else matrix,
        )

    def layout(self, b: View) -> str:
        """The name of the layout of a constant B that is packed."""
        kept = self.factor or self.element
        form = b.offset, b.shape, b.strides, b.dtype_name, kept, self.tile.vectors
        return f"matmul({','.join(map(str, form))})"

    def record_pack(
        self, recorder: Recorder, b: View, target: Address, *, matrix: int
    ) -> None:
        """Record what packs B, *matrix* bytes for each of its matrices."""
        if not self.factor:
            b = widened(recorder, b)
        size, vector = self._right_size, self._right_vector
        matrices = b.shape[0] * b.shape[1]
        panel = self.tile.vectors * vector
        parts = self._pack_parts(matrices, b.nbytes, -(-self.columns * size // panel))
        way = panel_way(
            self.factor or self.element, b.strides[-2], b.strides[-1], self.columns
        )
        call(
            recorder,
            Kernel(PackMatrices(vector)),
            {
                "source": b.address,
                "batch0": b.strides[0] * size,
                "batch1": b.strides[1] * size,
                "row": b.strides[-2] * size,
                "column": b.strides[-1] * size,
                "target": target,
                "target_batch": matrix,
                "rows": b.shape[-2],
                "rows_together": _rows_together(way, b.shape[-2]),
                "columns": self.columns,
                "panel": panel,
                "element": size,
                "taps": math.prod(b.shape[2:-2]),
                "offsets": Words(tap_offsets(b, range(2, len(b.shape) - 2))),
                "batches1": b.shape[1],
                "parts": parts,
                "pack": Code(Kernel(PackPanel(self.factor or self.element, way))),
            },
            chunks=matrices * parts,
            label=f"{self.label}: pack B",
            nbytes=2 * b.nbytes,
        )

    def _pack_parts(self, matrices: int, nbytes: int, most: int) -> int:
        """Into how many parts the packing of one matrix is divided."""
        wanted = chunks_for(nbytes / _BYTES, self.recorder.target.workers)
        return min(most, -(-wanted // matrices))


def _rows_together(way: str, depth: int) -> int:
    """How many of B's rows to pack at a time."""
    return max(1, depth if way == "columns" else _ROWS_TOGETHER)
