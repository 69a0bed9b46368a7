"""Products of quads by tile registers, and their constant factor in panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.tile_registers import ROWS
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.kernels.coded.byte_tiles import (
    QUAD_BYTES,
    STRIP_PANELS,
    TOGETHER,
    VECTORS,
    ByteTiles,
)
from onnxplug_cpu.compiler.kernels.coded.factors import I16, record_zeros
from onnxplug_cpu.compiler.kernels.coded.quad_product import QuadProduct, rows_of_b
from onnxplug_cpu.compiler.kernels.contraction.division import Division, divide
from onnxplug_cpu.compiler.kernels.contraction.tile import TileShape
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from onnxplug_compiler.ir.coded import Factor
    from onnxplug_cpu.compiler.commands.recording import Recorder
    from onnxplug_cpu.compiler.commands.words import Word

_LINE: Final = 64
"""Bytes that caches have together."""

_OPERATIONS: Final = 1e12  # of one thread, a second: to guess how long work takes


class TiledQuads(QuadProduct):
    """A contraction of quads by tiles while it is recorded.

    Attributes:
        step: quads of a step.
        steps: of a tap.
    """

    @property
    def step(self) -> int:
        """Quads of a step."""
        return smaller(self.depth, ROWS)

    @property
    def steps(self) -> int:
        """Of a tap."""
        return -(-self.depth // ROWS)

    @property
    def quads(self) -> int:
        """Of a column of a panel, with those that are zero."""
        return self.taps * self.steps * self.step

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return TileShape(TOGETHER * ROWS, VECTORS)

    def record(self) -> None:
        """Record the commands."""
        a, right = self._rows_of_a(), self.right()
        division = self._divide_tiles()
        cells = -(-division.chunk_tiles // TOGETHER)
        row = VECTORS * VECTOR_BYTES
        nbytes = self.quads * row * division.chunk_panels
        by_rows = cells > 1 and nbytes <= self.processor.l2 // 4
        strip = smaller(division.chunk_panels, STRIP_PANELS)
        of_step = self.step * row // _LINE
        words: dict[str, Word] = {
            "b": right.address,
            "b_batch0": right.batch0,
            "b_batch1": right.batch1,
            "b_panel": right.panel,
            "quads": self.step,
            "steps": self.steps,
            "last": QUAD_BYTES * (self.depth - self.step),
            "by_rows": int(by_rows),
            "strip": strip,
            "ahead": 0 if by_rows else -(-of_step // cells),
        }
        blocks = self.blocks(division, right)
        self.call(Kernel(ByteTiles(self.tile_element)), a, division, blocks, words)

    def _divide_tiles(self) -> Division:
        panels = -(-self.columns // (VECTORS * LANES))
        seconds = larger(self.flops / _OPERATIONS, self.nbytes / BYTES_PER_SECOND)
        wanted = chunks_for(seconds, self.recorder.target.workers)
        return divide(
            self.lines,
            self.line_rows,
            panels,
            most_rows=ROWS,
            together=TOGETHER,
            row_parts=self.row_parts(),
            column_parts=1,
            chunks=-(-wanted // self.batches),
            rows_first=self._rows_first(),
        )

    def rows_of_b(self, recorder: Recorder, b: Factor, width: int) -> View:
        """The rows that are packed, step by step: the last of a tap has zeros before
        what the others have not."""
        inner = QUAD_BYTES * self.inner
        rows = rows_of_b(recorder, b, inner, width, self.joined)
        before = ROWS * (self.steps - 1)
        rest = self.depth - before
        if self.steps == 1 or rest == ROWS:
            return rows
        batches = rows.shape[0] * rows.shape[1] * self.taps

        def of_taps(view: View, rows: int) -> View:
            shape = (batches, rows * QUAD_BYTES, width)
            return View.contiguous(view.buffer, I16, shape, view.offset)

        whole = recorder.temporary(
            I16, (*rows.shape[:2], QUAD_BYTES * self.quads, width)
        )
        source, target = of_taps(rows, self.depth), of_taps(whole, ROWS * self.steps)
        for first, count, place in (
            (0, before, 0),
            (before, rest, ROWS * self.steps - rest),
        ):
            size = (batches, count * QUAD_BYTES, width)
            part = source.slice((0, first * QUAD_BYTES, 0), size)
            record_copy(recorder, part, target.slice((0, place * QUAD_BYTES, 0), size))
        size = (batches, (ROWS - rest) * QUAD_BYTES, width)
        record_zeros(recorder, target.slice((0, before * QUAD_BYTES, 0), size))
        return whole
