"""Floats times weights that are codes: how they are divided, and their commands."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View, with_line
from onnxplug_cpu.compiler.codegen.byte_products import multiplies_fours
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.coded.byte_rows import ByteRows, byte_tile, middle_of
from onnxplug_cpu.compiler.kernels.coded.factors import record_zeros
from onnxplug_cpu.compiler.kernels.coded.float_rows import FloatRows, float_tile
from onnxplug_cpu.compiler.kernels.coded.panel_products import (
    BYTE_DEPTH,
    BytePanels,
    FloatPanels,
)
from onnxplug_cpu.compiler.kernels.coded.rows import OrderRows, RoundRows
from onnxplug_cpu.compiler.kernels.coded.tile_products import TilePanels, takes_tiles
from onnxplug_cpu.compiler.kernels.coded.weights import Form, Reading, Weights
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.contraction.left_factor import left_factor
from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

if TYPE_CHECKING:
    from onnxplug_compiler.ir.coded import Factor
    from onnxplug_compiler.ir.epilogue import Epilogue

FEWEST_MANY: Final = 5
"""From so many rows on, which were rounded to bytes, panels of codes are made."""

FEWEST_TILED: Final = 5
"""From so many rows on, panels of tiles are made where the processor has tiles."""

FEWEST_ROUNDED_TILED: Final = 32
"""The same of rows that were rounded to bytes, as these are multiplied faster without
tiles, too."""

# of one thread, a second: to guess how long work takes
_FLOPS: Final = 40e9
_BYTE_FLOPS: Final = 120e9
_ROUNDED_BYTES: Final = 256 << 10  # of rows that all columns of a chunk meet
_UNROLLED: Final = 4  # steps of a block
_F32: Final = np.dtype(np.float32)
_I32: Final = np.dtype(np.int32)


def most_few(isa: Isa) -> int:
    """Up to how many rows codes become floats for a few of them, without a panel."""
    return 4 if isa.name == "avx2" else 8


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
        self.recorder, self.out, self.rounds = recorder, out, a.rounds
        self.weights = Weights.of(b)
        self.epilogue = None if epilogue is None else epilogue.with_line()
        x = a.codes.view
        inner = math.prod(x.shape[3:])
        if a.scale is not None or a.zero is not None or a.codes.bits or a.offset:
            raise ValueError("the left factor has scales or zero points")
        if x.shape[:2] != (1, 1) or inner > self.weights.inner:
            raise ValueError(
                f"{x.shape} does not multiply weights of {self.weights.inner} rows"
            )
        if out.dtype != _F32 or (epilogue is None and out.strides[-1] != 1):
            raise ValueError(f"products of {out.dtype} or with strided columns")
        rows = x.reshape((x.shape[2], inner))
        if rows is None or rows.strides[1] != 1:
            copy = recorder.temporary(x.dtype, x.shape)
            record_copy(recorder, x, copy)
            rows = copy.reshape((x.shape[2], inner))
            assert rows is not None
        self.x = self._as_long(rows)
        self.rows, self.columns = x.shape[2], self.weights.columns
        self.flops = 2 * self.rows * self.columns * self.weights.inner
        sizes = f"{self.rows}×{self.columns}×{self.weights.inner}"
        self.label = f"{label} {sizes} of {self.weights.form.bits} bits"

    def _as_long(self, rows: View) -> View:
        """Rows with zeros where the weights have them, behind the last code."""
        count, inner = rows.shape
        missing = self.weights.inner - inner
        if not missing:
            return rows
        whole = self.recorder.temporary(rows.dtype, (count, self.weights.inner))
        record_copy(self.recorder, rows, whole.slice((0, 0), rows.shape))
        record_zeros(self.recorder, whole.slice((0, inner), (count, missing)))
        return whole

    @property
    def steps(self) -> int:
        """Of a block."""
        return self.weights.block // self.weights.form.step

    def record(self) -> None:
        """Record the commands."""
        if not self.out.size:
            return
        reading = None
        if self.rounds:
            reading = Reading.of(self.weights, self.recorder.target.isa)
        if reading is not None:
            self._record_bytes(reading)
            return
        if self.rows >= FEWEST_TILED and takes_tiles(self.recorder, self.weights):
            given = self.recorder, self._contraction(self.x), self.weights, self.label
            TilePanels(*given).record()
            return
        ordered, sums = self._order()
        if self.rows <= most_few(self.recorder.target.isa):
            self._record_floats(ordered, sums)
            return
        given = self.recorder, self._contraction(ordered), self.weights, self.label
        FloatPanels(*given).record()

    def _contraction(self, rows: View) -> Contraction:
        """Of rows as kernels read them."""
        shape, strides = (1, 1, 1, *rows.shape), (0, 0, 0, *rows.strides)
        a = View(rows.buffer, rows.offset, rows.dtype, shape, strides)
        out = with_line(self.out)
        return Contraction(a, (), (0,), self.weights.view, out, self.epilogue)

    def _order(self) -> tuple[View, View]:
        """The rows as kernels read them, and the sums of their blocks."""
        weights, recorder = self.weights, self.recorder
        ordered = left_factor(recorder, _F32, (self.rows, weights.inner))
        sums = recorder.temporary(_F32, (self.rows, weights.blocks))
        element = element_of(self.x.dtype)
        assert element is not None
        call(
            recorder,
            Kernel(OrderRows(element, weights.form.lanes, weights.form.per_byte)),
            {
                **_row_words("a", self.x),
                **_row_words("out", ordered),
                **_row_words("sums", sums),
                "blocks": weights.blocks,
                "steps": self.steps,
            },
            chunks=self.rows,
            label=f"{self.label}: order rows",
            nbytes=self.x.nbytes + ordered.nbytes,
        )
        return ordered, sums

    def _record_floats(self, ordered: View, sums: View) -> None:
        weights, steps = self.weights, self.steps
        rows, columns = float_tile(self.recorder.target.isa, self.rows)
        unrolled = steps if steps <= _UNROLLED else 0
        spans = weights.scales_at_once
        self._record_few(
            _float_rows(weights.form, rows, columns, unrolled, spans),
            (rows, columns, 1),
            self.flops / _FLOPS,
            {
                **_row_words("x", ordered),
                **_row_words("sums", sums),
                "blocks": weights.blocks,
                "steps": steps,
            },
        )

    def _round(
        self, reading: Reading, middle: int, *, ordered: bool = True
    ) -> tuple[View, View, View]:
        """The rows as bytes, the scales of their blocks and what takes zero points
        away; *middle* is taken away from codes as they are multiplied.  Unless they are
        *ordered* as codes are, bytes are in the order of elements."""
        weights, recorder, rows = self.weights, self.recorder, self.rows
        lanes, spans = reading
        of_sums = lanes // 4 // spans
        x = left_factor(recorder, np.dtype(np.int8), (rows, weights.inner))
        scales = recorder.temporary(_F32, (rows, weights.blocks * of_sums))
        sums = recorder.temporary(_F32, (rows, weights.blocks))
        if not weights.form.zero:
            sums = recorder.temporary(_I32, scales.shape)
        offset, element = weights.words["offset"], element_of(self.x.dtype)
        assert isinstance(offset, int) and element is not None
        per_byte = weights.form.per_byte if ordered else 1
        starts = not weights.form.zero
        width = lanes // spans
        call(
            recorder,
            Kernel(RoundRows(element, lanes, spans, per_byte, starts)),
            {
                **_row_words("a", self.x),
                **_row_words("out", x),
                **_row_words("sums", sums),
                **_row_words("scales", scales),
                "blocks": weights.blocks,
                "steps": weights.block // (width * per_byte),
                "middle": offset - middle,
            },
            chunks=rows,
            label=f"{self.label}: round rows",
            nbytes=self.x.nbytes + x.nbytes,
        )
        return x, scales, sums

    def _record_bytes(self, reading: Reading) -> None:
        weights, recorder, rows = self.weights, self.recorder, self.rows
        if rows >= FEWEST_ROUNDED_TILED and takes_tiles(recorder, weights):
            x, scales, _ = self._round(Reading(LANES, 1), 0, ordered=False)
            given = recorder, self._contraction(x), weights, self.label
            TilePanels(*given, scales).record()
            return
        if self._takes_quads():
            x, scales, sums = self._round(Reading(LANES, 1), 0)
            given = recorder, self._contraction(x), weights, self.label
            BytePanels(*given, scales, sums).record()
            return
        lanes, spans = reading
        form = weights.form._replace(lanes=lanes)
        groups = weights.blocks // spans
        x, scales, sums = self._round(reading, middle_of(recorder.target.isa, form))
        steps = weights.block * spans // form.step
        nbytes = weights.inner // form.per_byte
        tile = byte_tile(recorder.target.isa, rows, nbytes)
        row_parts = larger(1, round(rows * weights.inner / _ROUNDED_BYTES))
        unrolled = steps if steps <= _UNROLLED else 0
        self._record_few(
            _byte_rows(form, *tile, unrolled, spans),
            (*tile, row_parts),
            self.flops / _BYTE_FLOPS,
            {
                **_row_words("x", x),
                **_row_words("sums", sums),
                **_row_words("x_scales", scales),
                "blocks": weights.blocks,
                "steps": steps,
                "groups": groups,
            },
        )

    def _takes_quads(self) -> bool:
        """Whether panels of codes are worth being made, and products are added by an
        instruction."""
        isa = self.recorder.target.isa
        return (
            multiplies_fours(isa)
            and self.rows >= FEWEST_MANY
            and self.weights.block <= BYTE_DEPTH
        )

    def _record_few(
        self,
        kernel: Kernel,
        tile: tuple[int, int, int],
        seconds: float,
        words: dict[str, Word],
    ) -> None:
        """Record a command with those of :class:`~.few.FewWords` and *words*.

        Args:
            tile: rows and columns that are computed at once, and parts of rows.
            seconds: about how long it takes one thread, if caches have what it reads.
        """
        weights, recorder = self.weights, self.recorder
        rows, columns, row_parts = tile
        seconds = larger(weights.nbytes / BYTES_PER_SECOND, seconds)
        groups = -(-self.columns // columns)
        row_parts = smaller(row_parts, -(-self.rows // rows))
        chunks = chunks_for(seconds, recorder.target.workers)
        parts = smaller(groups, -(-chunks // row_parts))
        finished: Word = 0
        code: Word = 0
        more: Word = 0
        distance = row = 0
        if self.epilogue is not None:
            code, more = epilogue_call(self.epilogue)
            row = 4 * columns * -(-groups // parts)
            row_groups = -(-self.rows // rows)
            most = rows * -(-row_groups // row_parts)
            finished, distance = worker_memory(recorder, row * most)
        words |= {
            "rows": self.rows,
            "columns": self.columns,
            "parts": parts,
            "row_parts": row_parts,
            "out": self.out.address,
            "out_row": self.out.strides[2] * 4,
            "tile": finished,
            "tile_distance": distance,
            "tile_row": row,
            "epilogue": code,
            "epilogue_words": more,
            **weights.words,
        }
        call(
            recorder,
            kernel,
            words,
            chunks=parts * row_parts,
            label=self.label,
            flops=self.flops,
            nbytes=weights.nbytes + self.x.nbytes + self.out.nbytes,
        )


@functools.cache
def _float_rows(form: Form, rows: int, columns: int, steps: int, spans: int) -> Kernel:
    return Kernel(FloatRows(form, rows, columns, steps, spans))


@functools.cache
def _byte_rows(form: Form, rows: int, columns: int, steps: int, spans: int) -> Kernel:
    return Kernel(ByteRows(form, rows, columns, steps, spans))


def _row_words(name: str, view: View) -> dict[str, Word]:
    stride = view.strides[0] * view.dtype.itemsize
    return {name: view.address, f"{name}_row": stride}
