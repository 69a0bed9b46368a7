"""The right factor of a product: where tiles read it, and what packs it."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.math.narrow import has_f16
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Code, Words
from onnxplug_cpu.compiler.kernels.contraction.operands import once, tap_offsets
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    PackMatrices,
    PackPanel,
    panel_way,
)
from onnxplug_cpu.compiler.kernels.contraction.product import Product
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileShape,
    masked_rows,
    narrow_tile,
    tile_shape,
    wide_vectors,
)
from onnxplug_cpu.compiler.kernels.widening import widened
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction

BLOCK_BYTES: Final = 400 << 10
"""What of A, and of sums that wait, should stay in the second-level cache."""

DOT_ROWS: Final = 4
"""Up to as many rows, a transposed B is read as it is."""

WIDE_ROWS: Final = 3
"""Up to as many rows, any B with consecutive columns is read as it is."""

_ROWS_TOGETHER: Final = 32
"""Of B, packed into all panels in turn: so many streams of reads."""

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


class ProductOfPanels(Product):
    """A contraction whose tiles read B in panels, or where it is, while it is recorded.

    Attributes:
        element: of the factors as they are packed and copied.
        factor: of B, where that stays narrower in panels; else empty.
        usual: the largest tiles.
        tile: those that panels are made for.
    """

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
    ) -> None:
        super().__init__(recorder, contraction, label)
        self.element = _ELEMENTS[self.a.dtype_name]
        self.factor = _NARROW.get(self.b.dtype_name, "")
        if self.factor == "f16" and not has_f16(recorder.target.isa):
            self.factor = ""  # widening it takes longer than multiplying
        self.usual = self.tile = self.shape_of_tiles(self.processor)
        narrow = narrow_tile(recorder.target.isa, self.columns * self.itemsize)
        if narrow is not None and self.line_rows > narrow.rows:
            self.tile = narrow

    @property
    def processor(self) -> Isa:
        """Whose tiles are used."""
        return self.recorder.target.isa

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return tile_shape(isa)

    @abstractmethod
    def row_parts(self) -> int:
        """Into how many parts caches want the rows divided."""

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
        if not (few or repeated) and self.rows >= 64 * (self.row_parts() - 1):
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
        vector = self.right_vector
        row = self.tile.vectors * vector
        left = (self.columns * self.right_size - 1) % row + 1
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
    def right_size(self) -> int:
        """Bytes of an element of B in panels."""
        return self.b.dtype.itemsize if self.factor else self.itemsize

    @property
    def right_vector(self) -> int:
        """Bytes of B in panels for a vector of the result."""
        return VECTOR_BYTES // self.itemsize * self.right_size

    def _packed(self, b: View) -> Right:
        """All matrices in panels: constants once, others by a command before."""
        lanes = VECTOR_BYTES // self.itemsize
        matrix = self.inner * -(-self.columns // lanes) * self.right_vector
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
        size, vector = self.right_size, self.right_vector
        matrices = b.shape[0] * b.shape[1]
        panel = self.tile.vectors * vector
        parts = self.pack_parts(matrices, b.nbytes, -(-self.columns * size // panel))
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
                "rows_together": rows_together(way, b.shape[-2]),
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

    def pack_parts(self, matrices: int, nbytes: int, most: int) -> int:
        """Into how many parts the packing of one matrix is divided."""
        wanted = chunks_for(nbytes / BYTES_PER_SECOND, self.recorder.target.workers)
        return min(most, -(-wanted // matrices))


def rows_together(way: str, depth: int) -> int:
    """How many of B's rows to pack at a time."""
    return max(1, depth if way == "columns" else _ROWS_TOGETHER)
