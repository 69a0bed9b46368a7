"""Floats times weights that are codes: how they are divided, and their commands."""

from __future__ import annotations

import functools
import math
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View, with_line
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, code_of
from onnxplug_cpu.compiler.kernels.coded.few import FewRows, together
from onnxplug_cpu.compiler.kernels.coded.many import ManyRows
from onnxplug_cpu.compiler.kernels.coded.rows import OrderRows
from onnxplug_cpu.compiler.kernels.coded.weights import Form, Weights
from onnxplug_cpu.compiler.kernels.contraction.division import Blocks, divide
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.contraction.left_factor import left_factor
from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
from onnxplug_cpu.compiler.kernels.contraction.pack import PackPanel
from onnxplug_cpu.compiler.kernels.contraction.product import Product
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
    tile_shape,
)
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

if TYPE_CHECKING:
    from onnxplug_compiler.ir.coded import Factor
    from onnxplug_compiler.ir.epilogue import Epilogue

DEPTH: Final = 384
"""The most of K that is summed in one chain, and of which a panel is made."""

PANELS: Final = 8
"""Panels of a chunk: their tiles wait while all rows meet a block of K."""

MOST_FEW: Final = 8
"""Up to so many rows weights are read once for all of them."""

_FLOPS: Final = 40e9  # of one thread, a second: to guess how long work takes
_ROWS_BYTES: Final = 344 << 10  # of a block of rows that shares panels
_UNROLLED: Final = 4  # steps of a block
_F32: Final = np.dtype(np.float32)


class WeightProduct:
    """A product while it is recorded.

    Raises:
        ValueError: factors are others than there are kernels of.
    """

    def __init__(
        self,
        recorder: Recorder,
        a: Factor,
        b: Factor,
        out: View,
        epilogue: Epilogue | None,
        label: str,
    ) -> None:
        self.recorder, self.out = recorder, out
        self.weights = Weights.of(b)
        self.epilogue = None if epilogue is None else epilogue.with_line()
        x = a.codes.view
        if a.scale is not None or a.zero is not None or a.codes.bits or a.offset:
            raise ValueError("the left factor has scales or zero points")
        if x.shape[:2] != (1, 1) or math.prod(x.shape[3:]) != self.weights.inner:
            raise ValueError(
                f"{x.shape} does not multiply weights of {self.weights.inner} rows"
            )
        if out.dtype != _F32 or (epilogue is None and out.strides[-1] != 1):
            raise ValueError(f"products of {out.dtype} or with strided columns")
        rows = x.reshape((x.shape[2], self.weights.inner))
        if rows is None or rows.strides[1] != 1:
            copy = recorder.temporary(x.dtype, x.shape)
            record_copy(recorder, x, copy)
            rows = copy.reshape((x.shape[2], self.weights.inner))
            assert rows is not None
        self.x = rows
        self.rows, self.columns = x.shape[2], self.weights.columns
        self.flops = 2 * self.rows * self.columns * self.weights.inner
        sizes = f"{self.rows}×{self.columns}×{self.weights.inner}"
        self.label = f"{label} {sizes} of {self.weights.form.bits} bits"

    @property
    def steps(self) -> int:
        """Of a block."""
        return self.weights.block // self.weights.form.step

    def record(self) -> None:
        """Record the commands."""
        if not self.out.size:
            return
        ordered, sums = self._order()
        if self.rows <= MOST_FEW:
            self._record_few(ordered, sums)
            return
        weights, inner = self.weights, self.weights.inner
        strides = (0, 0, 0, *ordered.strides)
        a = View(
            ordered.buffer, ordered.offset, _F32, (1, 1, 1, self.rows, inner), strides
        )
        out = with_line(self.out)
        product = Contraction(a, (), (0,), weights.view, out, self.epilogue)
        PanelProduct(self.recorder, product, weights, self.label).record()

    def _order(self) -> tuple[View, View]:
        """The rows as kernels read them, and the sums of their blocks."""
        weights, recorder = self.weights, self.recorder
        ordered = left_factor(recorder, _F32, (self.rows, weights.inner))
        sums = recorder.temporary(_F32, (self.rows, weights.blocks))
        element = element_of(self.x.dtype)
        assert element is not None
        factor = 1.0 if weights.form.zero else weights.words["offset"]
        assert isinstance(factor, int | float)
        call(
            recorder,
            Kernel(OrderRows(element, weights.form.lanes, weights.form.per_byte)),
            {
                "a": self.x.address,
                "a_row": self.x.strides[0] * self.x.dtype.itemsize,
                "out": ordered.address,
                "out_row": ordered.strides[0] * 4,
                "blocks": weights.blocks,
                "steps": self.steps,
                "sums": sums.address,
                "sums_row": sums.strides[0] * 4,
                "factor": struct.unpack("<I", struct.pack("<f", factor))[0],
            },
            chunks=self.rows,
            label=f"{self.label}: order rows",
            nbytes=self.x.nbytes + ordered.nbytes,
        )
        return ordered, sums

    def _record_few(self, ordered: View, sums: View) -> None:
        weights, recorder = self.weights, self.recorder
        rows, columns = together(recorder.target.isa, self.rows)
        seconds = larger(weights.nbytes / BYTES_PER_SECOND, self.flops / _FLOPS)
        groups = -(-self.columns // columns)
        parts = smaller(groups, chunks_for(seconds, recorder.target.workers))
        tile: Word = 0
        code: Word = 0
        words: Word = 0
        tile_distance = tile_row = 0
        if self.epilogue is not None:
            code, words = epilogue_call(self.epilogue)
            tile_row = 4 * columns * -(-groups // parts)
            tile, tile_distance = worker_memory(recorder, tile_row * self.rows)
        call(
            recorder,
            _few(weights.form, rows, columns, self.steps),
            {
                "x": ordered.address,
                "x_row": ordered.strides[0] * 4,
                "sums": sums.address,
                "sums_row": sums.strides[0] * 4,
                "rows": self.rows,
                "columns": self.columns,
                "blocks": weights.blocks,
                "steps": self.steps,
                "parts": parts,
                "out": self.out.address,
                "out_row": self.out.strides[2] * 4,
                "tile": tile,
                "tile_distance": tile_distance,
                "tile_row": tile_row,
                "epilogue": code,
                "epilogue_words": words,
                **weights.words,
            },
            chunks=parts,
            label=self.label,
            flops=self.flops,
            nbytes=weights.nbytes + self.x.nbytes + self.out.nbytes,
        )


class PanelProduct(Product):
    """A product of many rows while it is recorded."""

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        weights: Weights,
        label: str,
    ) -> None:
        super().__init__(recorder, contraction, label)
        self.weights, self.shape = weights, tile_shape(recorder.target.isa)

    def record(self) -> None:
        """Record the command."""
        weights, step = self.weights, self.weights.form.step
        panel_bytes = self.shape.vectors * VECTOR_BYTES
        columns = panel_bytes // 4
        panels = -(-self.columns // columns)
        wanted = chunks_for(self.flops / _FLOPS, self.recorder.target.workers)
        division = divide(
            1,
            self.rows,
            panels,
            most_rows=self.shape.rows,
            together=1,
            row_parts=larger(1, round(self.rows * DEPTH * 4 / _ROWS_BYTES)),
            column_parts=-(-panels // PANELS),
            chunks=wanted,
        )
        steps = weights.inner // step
        count = -(-steps // max(1, DEPTH // step))
        depth = -(-steps // count) * step
        blocks = Blocks(1, count, count, 1, count, depth)
        tile_bytes = division.tile_rows * panel_bytes
        sums, sums_distance = worker_memory(
            self.recorder, tile_bytes * division.chunk_tiles * division.chunk_panels
        )
        column_bytes = 4 * depth + VECTOR_BYTES
        made, distance = worker_memory(
            self.recorder, column_bytes * columns + depth * panel_bytes
        )
        left = self.columns - (panels - 1) * columns
        words: dict[str, Word] = {
            "depth": weights.inner,
            "steps": weights.block // step,
            "panel_bytes": panel_bytes,
            **self._tiles(division.tile_rows, -(-left * 4 // VECTOR_BYTES)),
            "pack": Code(Kernel(PackPanel("f32", "columns"))),
            "sums": sums,
            "sums_distance": sums_distance,
            "tile_bytes": tile_bytes,
            "chunk_tiles": division.chunk_tiles,
            "columns_made": made,
            "column_bytes": column_bytes,
            "panel_made": Address(made.buffer, made.offset + column_bytes * columns),
            "made_distance": distance,
            **weights.words,
        }
        self.call(Kernel(ManyRows(weights.form)), self.a, division, blocks, words)

    def _tiles(self, rows: int, vectors: int) -> dict[str, Word]:
        """The functions of tiles of so many rows, and one less; *vectors* are those of
        the last panel."""
        chains = chains_of(self.recorder.target.isa, rows * self.shape.vectors)
        tails = {"": self.shape.vectors, "_tail": vectors}
        return {
            f"tile{low}{tail}": code_of(
                functools.partial(_tile, width, chains), larger(1, rows - less)
            )
            for tail, width in tails.items()
            for low, less in (("", 0), ("_low", 1))
        }


@functools.cache
def _tile(vectors: int, chains: int, rows: int) -> Kernel:
    return Kernel(TileProduct("f32", rows, vectors, chains))


@functools.cache
def _few(form: Form, rows: int, columns: int, steps: int) -> Kernel:
    return Kernel(FewRows(form, rows, columns, steps if steps <= _UNROLLED else 0))
