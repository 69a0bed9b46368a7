"""Products of float32 with constants by tiles of bfloat16, as exact as by FMA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

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
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_block import TermsProduct
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_terms import (
    BLOCK,
    FLAGS_BYTES,
    STEP,
    STEP_BYTES,
    PackTerms,
    SplitTerms,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16x3_tile import (
    LINES,
    SUMS_BYTES,
    BlockOfSums,
)
from onnxplug_cpu.compiler.kernels.contraction.pack import PackPanel, panel_way
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.kernels.contraction.epilogue import Epilogue

LEAST_ROWS: Final = 32
LEAST_COLUMNS: Final = 64
LEAST_DEPTH: Final = 64
"""Below these, splitting A and the rest cost more than tiles save."""

BLOCK_STEPS: Final = 24
"""The most steps, 768 of K, whose products tiles sum up."""

_CHUNK_SECONDS: Final = 20e-6
_FLOPS, _BYTES = 200e9, 8e9  # of one thread, a second: to guess how long work takes
_ROWS_KEPT: Final = 128
"""Rows whose terms should stay in the second-level cache, before K is divided."""


def is_worthwhile(recorder: Recorder, a: View, b: View) -> bool:
    """Whether the product of *a* and *b* should be computed by :func:`record_product`
    here; the views are as it takes them."""
    rows, depth, columns = a.shape[2], a.shape[3], b.shape[3]
    return (
        bool(recorder.isa.tiles)
        and isinstance(b.buffer, Constant)
        and a.dtype == np.float32
        and rows >= LEAST_ROWS
        and depth >= LEAST_DEPTH
        and columns >= LEAST_COLUMNS
        and not recorder.is_refused(b, _layout(b))
        and recorder.may_split()
    )


def record_product(
    recorder: Recorder,
    a: View,
    b: View,
    out: View,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """Record the product of *a* and *b*, batch by batch.

    Args:
        a: ``[batch0, batch1, M, K]``, float32; copied first if rows are strided.
        b: ``[batch0 or 1, batch1 or 1, K, N]``, of a constant, whose packed form is
            refused if an element's terms are not exact: one that is not finite or so
            large that it rounds to infinity, or not 0 and below 2⁻¹⁰³.
        out: ``[batch0, batch1, M, N]``, with consecutive columns.
        epilogue: takes the blocks of the result instead of *out*.
        label: for profiles.

    M, N and K are not 0.  Rows of *a* with Inf, NaN, or elements that round to infinity
    are multiplied as float32.
    """
    if a.strides[3] != 1 and a.shape[3] > 1:
        copy = recorder.temporary(a.dtype, a.shape)
        record_copy(recorder, a, copy)
        a = copy
    _Product(recorder, a, b, out, epilogue, label).record()


class _Division(NamedTuple):
    """How one matrix of the result is divided.

    Attributes:
        row_blocks: blocks of rows.
        tile_rows: half the rows of each, but of the last, which may have fewer.
        panels: of columns.
        steps: of K.
        depth_blocks: parts of K whose sums begin anew.
        block_steps: steps of each, but of the last, which may have fewer.
        inner_blocks: parts of K that are done before the next panel.
        row_parts, column_parts: parts of blocks and panels; a chunk is one of each.
    """

    row_blocks: int
    tile_rows: int
    panels: int
    steps: int
    depth_blocks: int
    block_steps: int
    inner_blocks: int
    row_parts: int
    column_parts: int

    @property
    def chunk_blocks(self) -> int:
        """The most blocks of rows of a chunk."""
        return -(-self.row_blocks // self.row_parts)

    @property
    def chunk_panels(self) -> int:
        """The most panels of a chunk."""
        return -(-self.panels // self.column_parts)


class _Product:
    """One product while it is recorded."""

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
        self.label = f"{label} (bf16x3)"
        self.batches = out.shape[0] * out.shape[1]
        self.rows, self.columns = out.shape[2:]
        self.depth = a.shape[3]
        self.flops = 2 * self.batches * self.rows * self.columns * self.depth
        self.division = self._divide()

    def _divide(self) -> _Division:
        workers, cache = self.recorder.workers, self.recorder.isa.l2 // 2
        row_blocks = -(-self.rows // BLOCK)
        panels = -(-self.columns // BLOCK)
        steps = -(-self.depth // STEP)
        block_steps = -(-steps // -(-steps // BLOCK_STEPS))
        depth_blocks = -(-steps // block_steps)
        kept = min(row_blocks, _ROWS_KEPT // BLOCK) * block_steps * STEP_BYTES
        inner_blocks = min(depth_blocks, max(1, cache // kept))
        parts = row_blocks * inner_blocks * block_steps * STEP_BYTES / cache
        row_parts = min(row_blocks, max(1, round(parts)))
        seconds = self.flops / _FLOPS
        wanted = fewest_chunks(seconds)
        if workers > 1:
            wanted = max(wanted, min(4 * workers, int(seconds / _CHUNK_SECONDS)))
        wanted = -(-wanted // self.batches)
        # of columns first: what one thread reads of B no other has to
        column_parts = min(panels, max(1, -(-wanted // row_parts)))
        row_parts = min(row_blocks, max(row_parts, -(-wanted // column_parts)))
        return _Division(
            row_blocks,
            -(-self.rows // (2 * row_blocks)),
            panels,
            steps,
            depth_blocks,
            block_steps,
            inner_blocks,
            row_parts,
            column_parts,
        )

    def record(self) -> None:
        recorder, division = self.recorder, self.division
        a, out = self.a, self.out
        panel = division.steps * STEP_BYTES
        matrix = division.panels * panel
        b, packed = self.b, self._packed(matrix)
        waiting: Word = 0
        distance = 0
        waiting_panel = division.chunk_blocks * SUMS_BYTES
        if division.inner_blocks < division.depth_blocks:
            nbytes = division.chunk_panels * waiting_panel
            waiting, distance = recorder.scratch(nbytes)
        blocks = division.chunk_blocks
        share = -(-STEP_BYTES // 64 // blocks)
        lines = 0
        if blocks > 1:
            lines = next((n for n in LINES if n >= share), LINES[-1])
        narrow = 0 < self.columns % BLOCK <= BLOCK // 2
        code, epilogue_words = self.epilogue.call() if self.epilogue else (0, 0)
        words: dict[str, Word] = {
            "a": a.address,
            "a_batch0": a.strides[0] * 4,
            "a_batch1": a.strides[1] * 4,
            "a_row": a.strides[2] * 4,
            "b": packed,
            "b_batch0": 0 if b.shape[0] == 1 else matrix * b.shape[1],
            "b_batch1": 0 if b.shape[1] == 1 else matrix,
            "b_panel": panel,
            "out": out.address,
            "out_batch0": out.strides[0] * 4,
            "out_batch1": out.strides[1] * 4,
            "out_row": out.strides[2] * 4,
            "rows": self.rows,
            "columns": self.columns,
            "depth": self.depth,
            "batches1": out.shape[1],
            "row_parts": division.row_parts,
            "column_parts": division.column_parts,
            "row_blocks": division.row_blocks,
            "tile_rows": division.tile_rows,
            "panels": division.panels,
            "depth_blocks": division.depth_blocks,
            "inner_blocks": division.inner_blocks,
            "block_steps": division.block_steps,
            **self._terms(),
            "sums": Code(Kernel(BlockOfSums(2, lines))),
            "sums_tail": Code(Kernel(BlockOfSums(1 if narrow else 2, lines))),
            "prefetch": lines * 64,
            "partial": waiting,
            "partial_distance": distance,
            "partial_panel": waiting_panel,
            "epilogue": code,
            "epilogue_words": epilogue_words,
        }
        recorder.call(
            Kernel(TermsProduct()),
            words,
            chunks=self.batches * division.row_parts * division.column_parts,
            label=self.label,
            flops=self.flops,
            nbytes=a.nbytes + matrix * b.shape[0] * b.shape[1] + out.nbytes,
        )

    def _terms(self) -> dict[str, Word]:
        """Where the terms of A are; the command that makes them, if chunks do not."""
        recorder, division, a = self.recorder, self.division, self.a
        if division.column_parts == 1:
            block = division.inner_blocks * division.block_steps * STEP_BYTES
            terms, distance = recorder.scratch(division.chunk_blocks * block)
            nbytes = division.chunk_blocks * FLAGS_BYTES
            flags, flags_distance = recorder.scratch(nbytes)
            return {
                "splits": 1,
                "terms": terms,
                "terms_distance": distance,
                "terms_block": block,
                "flags": flags,
                "flags_distance": flags_distance,
            }
        block = division.steps * STEP_BYTES
        blocks = self.batches * division.row_blocks
        byte = np.dtype(np.uint8)
        terms = recorder.temporary(byte, (blocks, block)).address
        flags = recorder.temporary(byte, (blocks, FLAGS_BYTES)).address
        recorder.call(
            Kernel(SplitTerms()),
            {
                "a": a.address,
                "a_batch0": a.strides[0] * 4,
                "a_batch1": a.strides[1] * 4,
                "a_row": a.strides[2] * 4,
                "rows": self.rows,
                "depth": self.depth,
                "batches1": self.out.shape[1],
                "blocks": division.row_blocks,
                "tile_rows": division.tile_rows,
                "terms": terms,
                "terms_block": block,
                "flags": flags,
            },
            chunks=blocks,
            label=f"{self.label}: split A",
            nbytes=a.nbytes + blocks * block,
        )
        return {
            "splits": 0,
            "terms": terms,
            "terms_distance": 0,
            "terms_block": block,
            "flags": flags,
            "flags_distance": 0,
        }

    def _packed(self, matrix: int) -> Address:
        """B's terms, made once; before them the verdicts of those who make them."""
        b = self.b
        matrices = b.shape[0] * b.shape[1]
        workers, seconds = self.recorder.workers, b.nbytes / _BYTES
        wanted = fewest_chunks(seconds)
        if workers > 1:
            wanted = max(wanted, min(4 * workers, int(seconds / _CHUNK_SECONDS)))
        parts = min(self.division.panels, -(-wanted // matrices))
        verdicts = 8 * matrices * parts
        # with room for as many as there may be: threads do not change the layout
        head = -(-8 * matrices * self.division.panels // 64) * 64

        def record(filling: Recorder, b: View, target: Address) -> None:
            way = panel_way("f32", b.strides[2], b.strides[3], self.columns)
            filling.call(
                Kernel(PackTerms()),
                {
                    "source": b.address,
                    "batch0": b.strides[0] * 4,
                    "batch1": b.strides[1] * 4,
                    "row": b.strides[2] * 4,
                    "column": b.strides[3] * 4,
                    "target": target._replace(offset=target.offset + head),
                    "target_batch": matrix,
                    "rows": self.depth,
                    "columns": self.columns,
                    "batches1": b.shape[1],
                    "parts": parts,
                    "function": Code(Kernel(PackPanel("f32", way))),
                    "verdicts": target,
                },
                chunks=matrices * parts,
                label=f"{self.label}: pack B",
                nbytes=b.nbytes + matrices * matrix,
            )

        def accepts(content: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
            return not content[:verdicts].any()

        packed = self.recorder.packed(
            b, _layout(b), head + matrices * matrix, record, accepts
        )
        return packed._replace(offset=packed.offset + head)


def _layout(b: View) -> str:
    return f"matmul_bf16x3({b.offset},{b.shape},{b.strides})"
