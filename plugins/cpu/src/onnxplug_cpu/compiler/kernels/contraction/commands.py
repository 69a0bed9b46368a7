"""Matrix products: how a product is divided, and the commands that compute it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.ir.commands import (
    Address,
    Code,
    Constant,
    Word,
    fewest_chunks,
)
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.block import BlockProduct
from onnxplug_cpu.compiler.kernels.contraction.dot import DotProducts
from onnxplug_cpu.compiler.kernels.contraction.left_factor import (
    left_factor,
    rows_collide,
)
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    CopyMatrices,
    PackMatrices,
    PackPanel,
    panel_way,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    masked_rows,
    tile_shape,
    wide_vectors,
)
from onnxplug_cpu.compiler.target.isa import VECTOR_BYTES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.kernels.contraction.epilogue import Epilogue

BLOCK_DEPTH: Final = 384
"""The most of K that is summed in one chain: longer sums round worse than those of
other libraries."""

ROWS_BYTES: Final = 344 << 10
"""About how much of A shares a panel of B before the next one."""

BLOCK_BYTES: Final = 400 << 10
"""What of A, and of sums that wait, should stay in the second-level cache."""

B_BYTES: Final = 256 << 10
"""What of B should stay in the second-level cache."""

DOT_ROWS: Final = 4
"""Up to as many rows, a transposed B is read as it is."""

WIDE_ROWS: Final = 3
"""Up to as many rows, any B with consecutive columns is read as it is."""

_CHUNK_SECONDS = 20e-6
_FLOPS, _BYTES = 60e9, 8e9  # of one thread, a second: to guess how long work takes
_ROWS_TOGETHER = 32  # of B, packed into all panels in turn: so many streams of reads
_ELEMENTS = {"float32": "f32", "float64": "f64"}


def record_matmul(
    recorder: Recorder,
    a: View,
    b: View,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """Record the product of *a* and *b*, batch by batch.

    Args:
        a: ``[*batch, M, K]``, at most two batch axes, float32 or float64.
        b: ``[*batch, K, N]``.  A view of a constant is packed once.
        out: ``[*batch, M, N]``, with consecutive columns.  Batch axes of *a* and *b*
            that are missing, of size 1, or of stride 0 are repeated.
        epilogue: takes the tiles of the result instead of *out*, which is then not
            written and whose strides do not matter; float32 only.
        label: for profiles, the sizes not included.

    Any strides of *a* and *b* are accepted.  Rows of consecutive elements are fastest,
    consecutive columns of *b* cost a transposition, anything else (and *a* without
    consecutive rows) a copy.  K = 0 gives zeros.

    Raises:
        ValueError: *out* has strided columns, or shapes do not fit.
    """
    a, b, out = (_with_batches(view) for view in (a, b, out))
    batches, (rows, columns) = out.shape[:2], out.shape[2:]
    depth = a.shape[3]
    if a.shape[2] != rows or b.shape[2:] != (depth, columns):
        raise ValueError(
            f"a of shape {a.shape} times b of shape {b.shape} does not give {out.shape}"
        )
    if epilogue is None and out.strides[3] != 1 and columns > 1:
        raise ValueError(f"the result's columns are strided: {out.strides}")
    if 0 in out.shape:
        return
    sizes = [*(size for size in batches if size > 1), rows, columns, depth]
    label = f"{label} {'×'.join(map(str, sizes))}"
    a = a.broadcast_to((*batches, rows, depth))
    b = b.broadcast_to((*batches, depth, columns))
    if recorder.isa.tiles:  # otherwise the modules need not be imported
        from onnxplug_cpu.compiler.kernels.contraction import bf16x3

        if bf16x3.is_worthwhile(recorder, a, _once(b)):
            bf16x3.record_product(recorder, a, _once(b), out, epilogue, label)
            return
    _Product(recorder, a, b, out, epilogue, label).record()


@dataclass(frozen=True, slots=True)
class _Right:
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


@dataclass(frozen=True, slots=True)
class _Division:
    """How one matrix of the result is divided.

    Attributes:
        tiles: row tiles.
        tile_rows: rows of the first ones.
        tall_tiles: how many have *tile_rows* rows; the others have one less.
        panels: of columns.
        row_parts, column_parts: parts of tiles and panels; a chunk is one of each.
    """

    tiles: int
    tile_rows: int
    tall_tiles: int
    panels: int
    row_parts: int
    column_parts: int

    @property
    def chunk_tiles(self) -> int:
        """The most tiles of a chunk."""
        return -(-self.tiles // self.row_parts)

    @property
    def chunk_panels(self) -> int:
        """The most panels of a chunk."""
        return -(-self.panels // self.column_parts)


class _Product:
    """One product while it is recorded; all views have two batch axes."""

    def __init__(
        self,
        recorder: Recorder,
        a: View,
        b: View,
        out: View,
        epilogue: Epilogue | None,
        label: str,
    ) -> None:
        self.recorder = recorder
        self.a, self.b, self.out = a, b, out
        self.epilogue = epilogue
        self.label = label
        self.batches = out.shape[0] * out.shape[1]
        self.rows, self.columns = out.shape[2:]
        self.depth = a.shape[3]
        self.element = _ELEMENTS[a.dtype_name]
        self.itemsize = a.dtype.itemsize
        self.tile = tile_shape(recorder.isa)
        self.flops = 2 * self.batches * self.rows * self.columns * self.depth
        self.nbytes = _distinct(a) + _distinct(b) + out.nbytes

    def record(self) -> None:
        recorder, size = self.recorder, self.itemsize
        a, right = self._rows_of_a(), self._right()
        division = self._divide(right)
        outer, inner, block_depth = self._blocks(division, right)
        panel_bytes = right.vectors * VECTOR_BYTES
        tile_bytes = division.tile_rows * panel_bytes
        partial: Word = 0
        partial_distance = 0
        if outer > 1:
            partial, partial_distance = recorder.scratch(
                tile_bytes * division.chunk_tiles * division.chunk_panels
            )
        words: dict[str, Word] = {
            "a": a.address,
            "a_batch0": a.strides[0] * size,
            "a_batch1": a.strides[1] * size,
            "a_row": a.strides[2] * size,
            "b": right.address,
            "b_batch0": right.batch0,
            "b_batch1": right.batch1,
            "b_row": right.row,
            "b_tail_row": right.tail_row,
            "b_depth": right.depth,
            "b_tail_depth": right.tail_depth,
            "b_panel": right.panel,
            "out": self.out.address,
            "out_batch0": self.out.strides[0] * size,
            "out_batch1": self.out.strides[1] * size,
            "out_row": self.out.strides[2] * size,
            "columns": self.columns,
            "depth": self.depth,
            "element": size,
            "batches1": self.out.shape[1],
            "row_parts": division.row_parts,
            "column_parts": division.column_parts,
            "tiles": division.tiles,
            "tall_tiles": division.tall_tiles,
            "tile_rows": division.tile_rows,
            "panels": division.panels,
            "panel_bytes": panel_bytes,
            "outer_blocks": outer,
            "inner_blocks": inner,
            "block_depth": block_depth,
            "by_rows": int(self._by_rows(division, right, -(-self.depth // outer))),
            "prefetch": -(-panel_bytes // division.chunk_tiles),
            "partial": partial,
            "partial_distance": partial_distance,
            "partial_tile": tile_bytes if partial else 0,
            "partial_panel": tile_bytes * division.chunk_tiles if partial else 0,
            "epilogue": self.epilogue.code if self.epilogue else 0,
            "epilogue_words": self.epilogue.words if self.epilogue else 0,
            **self._tiles(division, right),
            **self._packing(division, right),
        }
        recorder.call(
            Kernel(BlockProduct()),
            words,
            chunks=self.batches * division.row_parts * division.column_parts,
            label=self.label,
            flops=self.flops,
            nbytes=self.nbytes,
        )

    # the division of the work

    def _divide(self, right: _Right) -> _Division:
        tiles = -(-self.rows // self.tile.rows)
        tile_rows = -(-self.rows // tiles)
        per_panel = right.vectors * VECTOR_BYTES // self.itemsize
        panels = -(-self.columns // per_panel)
        seconds = max(self.flops / _FLOPS, self.nbytes / _BYTES)
        workers = self.recorder.workers
        wanted = fewest_chunks(seconds)
        if workers > 1:
            wanted = max(wanted, min(4 * workers, int(seconds / _CHUNK_SECONDS)))
        wanted = -(-wanted // self.batches)
        row_parts = self._row_parts()
        # all rows use some columns of B while those are in the cache
        cached = 1
        if row_parts > 1:
            cached = round(self.depth * self.columns * self.itemsize / (1 << 20))
        column_parts = min(panels, max(cached, -(-wanted // row_parts), 1))
        row_parts = min(tiles, max(row_parts, -(-wanted // column_parts)))
        return _Division(
            tiles,
            tile_rows,
            self.rows - tiles * (tile_rows - 1),
            panels,
            row_parts,
            column_parts,
        )

    def _row_parts(self) -> int:
        """Into how many parts caches want the rows divided."""
        kept = self.rows * min(self.depth, 2 * BLOCK_DEPTH) * self.itemsize
        return max(1, round(kept / ROWS_BYTES))

    def _blocks(self, division: _Division, right: _Right) -> tuple[int, int, int]:
        """Blocks of K: passes over a chunk, blocks in each pass, their depth."""
        if right.way == "dot":
            return 1, 1, max(1, self.depth)
        rows = division.chunk_tiles * division.tile_rows
        cached = max(BLOCK_DEPTH, BLOCK_BYTES // (rows * self.itemsize))
        outer = 1
        if division.tiles > 1:
            outer = max(1, -(-self.depth // cached))
        inner = max(1, -(-self.depth // (outer * BLOCK_DEPTH)))
        return outer, inner, max(1, -(-self.depth // (outer * inner)))

    def _by_rows(self, division: _Division, right: _Right, depth: int) -> bool:
        """Whether a chunk's part of B, *depth* of K, stays in the cache, so that the
        result can be written in order."""
        panel = depth * right.vectors * VECTOR_BYTES
        return division.tiles > 1 and panel * division.chunk_panels <= B_BYTES

    def _tiles(self, division: _Division, right: _Right) -> dict[str, Word]:
        """The functions of tiles."""
        lanes = VECTOR_BYTES // self.itemsize
        left = self.columns - (division.panels - 1) * right.vectors * lanes
        masked = right.way == "rows" and left % lanes != 0
        alone = division.tiles == 1
        low_rows = division.tile_rows
        if division.tall_tiles < division.tiles:
            low_rows -= 1

        def function(rows: int, *, tail: bool) -> Code:
            if right.way == "dot":
                return Code(Kernel(DotProducts(rows)))
            vectors, ends = right.vectors, False
            if tail:
                vectors, ends = -(-left // lanes), masked
            return Code(Kernel(TileProduct(self.element, rows, vectors, alone, ends)))

        # a function that is never called need not be compiled
        whole = division.panels > 1 or left == right.vectors * lanes
        part = left != right.vectors * lanes
        tall, low = division.tile_rows, low_rows
        return {
            "tile": function(tall, tail=not whole),
            "tile_low": function(low, tail=not whole),
            "tile_tail": function(tall, tail=part),
            "tile_low_tail": function(low, tail=part),
        }

    def _packing(self, division: _Division, right: _Right) -> dict[str, Word]:
        """How chunks pack B, if they do."""
        b = right.pack
        if b is None:
            names = ("pack", "pack_row", "pack_column", "pack_rows", "packed")
            return dict.fromkeys((*names, "packed_distance"), 0)
        packed, distance = self.recorder.scratch(division.chunk_panels * right.panel)
        way = panel_way(self.element, b.strides[2], b.strides[3], self.columns)
        return {
            "pack": Code(Kernel(PackPanel(self.element, way))),
            "pack_row": b.strides[2] * self.itemsize,
            "pack_column": b.strides[3] * self.itemsize,
            "pack_rows": _rows_together(way, self.depth),
            "packed": packed,
            "packed_distance": distance,
        }

    # operands

    def _rows_of_a(self) -> View:
        """A with rows of consecutive elements that do not evict each other."""
        a, size = self.a, self.itemsize
        if a.strides[3] == 1 or self.depth <= 1:
            apart = a.strides[2] * size
            if (
                not rows_collide(abs(apart))
                or self.rows <= DOT_ROWS
                or self.columns < 2 * VECTOR_BYTES // size
            ):
                return a
        a = _once(a)
        target = left_factor(self.recorder, a.dtype, a.shape)
        matrices = a.shape[0] * a.shape[1]
        way = panel_way(self.element, a.strides[2], a.strides[3], self.depth)
        parts = self._pack_parts(matrices, a.nbytes, self.rows)
        self.recorder.call(
            Kernel(CopyMatrices()),
            {
                "source": a.address,
                "batch0": a.strides[0] * size,
                "batch1": a.strides[1] * size,
                "row": a.strides[2] * size,
                "column": a.strides[3] * size,
                "target": target.address,
                "target_row": target.strides[2] * size,
                "rows": self.rows,
                "columns": self.depth,
                "batches1": a.shape[1],
                "parts": parts,
                "function": Code(Kernel(PackPanel(self.element, way))),
            },
            chunks=matrices * parts,
            label=f"{self.label}: pack A",
            nbytes=2 * a.nbytes,
        )
        return target.broadcast_to(self.a.shape)

    def _right(self) -> _Right:
        """B where tiles can read it, the commands that pack it recorded."""
        b = _once(self.b)
        if isinstance(b.buffer, Constant):
            return self._packed(b)
        size = self.itemsize
        in_place = _Right(
            b.address,
            self.b.strides[0] * size,
            self.b.strides[1] * size,
            self.tile.vectors,
            b.strides[2] * size,
            b.strides[2] * size,
            b.strides[2] * size,
            b.strides[2] * size,
            self.tile.vectors * VECTOR_BYTES,
            "rows",
        )
        isa = self.recorder.isa
        most = self.tile.rows
        if self.columns * size % VECTOR_BYTES:
            most = masked_rows(isa)
        if b.strides[3] == 1 or self.columns == 1:
            if self.rows <= min(WIDE_ROWS, most):
                vectors = wide_vectors(isa, self.rows)
                return replace(in_place, vectors=vectors, panel=vectors * VECTOR_BYTES)
            if self.rows <= most and self.depth * self.columns * size <= BLOCK_BYTES:
                return in_place
        if b.strides[2] == 1 and self.rows <= DOT_ROWS and self.element == "f32":
            column = b.strides[3] * size
            per_panel = in_place.vectors * VECTOR_BYTES // size
            return replace(
                in_place,
                row=column,
                tail_row=column,
                depth=size,
                tail_depth=size,
                panel=column * per_panel,
                way="dot",
            )
        workers = self.recorder.workers
        few = workers > 1 and self.batches < 2 * workers
        repeated = b.shape[0] * b.shape[1] < self.batches
        if not (few or repeated) and self.rows >= 64 * (self._row_parts() - 1):
            return self._packed_by_chunks(b)
        return self._packed(b)

    def _packed_by_chunks(self, b: View) -> _Right:
        size = self.itemsize
        return replace(
            self._panels(b.address),
            batch0=self.b.strides[0] * size,
            batch1=self.b.strides[1] * size,
            pack=b,
        )

    def _panels(self, address: Address) -> _Right:
        """One matrix in panels."""
        row = self.tile.vectors * VECTOR_BYTES
        left = (self.columns * self.itemsize - 1) % row + 1
        tail = -(-left // VECTOR_BYTES) * VECTOR_BYTES
        return _Right(
            address,
            0,
            0,
            self.tile.vectors,
            row,
            tail,
            row,
            tail,
            self.depth * row,
            "panels",
        )

    def _packed(self, b: View) -> _Right:
        """All matrices in panels: constants once, others by a command before."""
        lanes = VECTOR_BYTES // self.itemsize
        matrix = self.depth * -(-self.columns // lanes) * VECTOR_BYTES
        matrices = b.shape[0] * b.shape[1]
        if isinstance(b.buffer, Constant):
            address = self.recorder.packed(
                b,
                f"matmul({b.offset},{b.shape},{b.strides},{b.dtype_name},"
                f"{self.tile.vectors})",
                matrices * matrix,
                functools.partial(self._record_pack, matrix=matrix),
            )
        else:
            address = self.recorder.temporary(
                b.dtype, (matrices, matrix // self.itemsize)
            ).address
            self._record_pack(self.recorder, b, address, matrix=matrix)
        return replace(
            self._panels(address),
            batch0=0 if b.shape[0] == 1 else matrix * b.shape[1],
            batch1=0 if b.shape[1] == 1 else matrix,
        )

    def _record_pack(
        self, recorder: Recorder, b: View, target: Address, *, matrix: int
    ) -> None:
        size = self.itemsize
        matrices = b.shape[0] * b.shape[1]
        panel = self.tile.vectors * VECTOR_BYTES
        parts = self._pack_parts(matrices, b.nbytes, -(-self.columns * size // panel))
        way = panel_way(self.element, b.strides[2], b.strides[3], self.columns)
        recorder.call(
            Kernel(PackMatrices()),
            {
                "source": b.address,
                "batch0": b.strides[0] * size,
                "batch1": b.strides[1] * size,
                "row": b.strides[2] * size,
                "column": b.strides[3] * size,
                "target": target,
                "target_batch": matrix,
                "rows": self.depth,
                "rows_together": _rows_together(way, self.depth),
                "columns": self.columns,
                "panel": panel,
                "element": size,
                "batches1": b.shape[1],
                "parts": parts,
                "function": Code(Kernel(PackPanel(self.element, way))),
            },
            chunks=matrices * parts,
            label=f"{self.label}: pack B",
            nbytes=2 * b.nbytes,
        )

    def _pack_parts(self, matrices: int, nbytes: int, most: int) -> int:
        """Into how many parts the packing of one matrix is divided."""
        workers, seconds = self.recorder.workers, nbytes / _BYTES
        wanted = fewest_chunks(seconds)
        if workers > 1:
            wanted = max(wanted, min(4 * workers, int(seconds / _CHUNK_SECONDS)))
        return min(most, -(-wanted // matrices))


def _rows_together(way: str, depth: int) -> int:
    """How many of B's rows to pack at a time."""
    return max(1, depth if way == "columns" else _ROWS_TOGETHER)


def _with_batches(view: View) -> View:
    """The view with two batch axes."""
    if not 2 <= len(view.shape) <= 4:
        raise ValueError(
            "a matrix with at most two batch axes is needed; got the shape "
            f"{view.shape}"
        )
    lead = 4 - len(view.shape)
    shape, strides = (1,) * lead + view.shape, (0,) * lead + view.strides
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _once(view: View) -> View:
    """The view without repetitions over batch axes."""
    shape = tuple(
        1 if stride == 0 else size
        for size, stride in zip(view.shape[:2], view.strides[:2], strict=True)
    )
    return View(
        view.buffer, view.offset, view.dtype, shape + view.shape[2:], view.strides
    )


def _distinct(view: View) -> int:
    """Bytes of the elements, each counted once."""
    return view.dtype.itemsize * math.prod(
        size for size, stride in zip(view.shape, view.strides, strict=True) if stride
    )
