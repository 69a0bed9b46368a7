"""Many rows times weights that are codes, in tiles of bfloat16: their commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.tile_registers import ROWS, TILE_BYTES
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.coded.panel_products import PanelProduct
from onnxplug_cpu.compiler.kernels.coded.tile_panels import CodeTile, TileManyRows
from onnxplug_cpu.compiler.kernels.coded.tile_rows import RoundedPlanes, SplitRows
from onnxplug_cpu.compiler.kernels.coded.weights import Weights
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import STEP
from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
from onnxplug_cpu.compiler.kernels.contraction.tile import TileShape
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES

_VECTORS: Final = 8
"""Tiles of columns that meet a tile of rows while that is in the first cache."""

_DEPTHS: Final = {1: 512, 2: 256, 3: 256}
"""The most of K that a panel is made of, by terms: so that rows stay in a cache."""

_SUM_DEPTH: Final = 128
"""The most codes of a block whose products tiles sum up."""

_TERMS: Final = {"f32": 3, "f16": 2, "bf16": 1, "i8": 1}
"""Of elements of rows."""


def takes_tiles(recorder: Recorder, weights: Weights) -> bool:
    """Whether the processor has tiles, and codes are their elements exactly."""
    form = weights.form
    of_codes = "i8" if form.signed else "u8"
    return (
        bool(recorder.target.isa.tiles)
        and form.lanes == LANES
        and weights.block % STEP == 0
        and form.zero in ("", "packed", of_codes)
        and recorder.target.allow_bf16x3()
    )


class TilePanels(PanelProduct):
    """A product by tiles.

    Args:
        contraction: of rows of floats, or as :class:`~.rows.RoundRows` writes them in
            the order in which they are.
        scales: of the blocks of rows that were rounded.
    """

    most_panels = 4
    flops_a_second = 300e9

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        weights: Weights,
        label: str,
        scales: View | None = None,
    ) -> None:
        shape = TileShape(ROWS, _VECTORS)
        super().__init__(recorder, contraction, weights, f"{label} (tiles)", shape)
        self.scales = scales
        element = element_of(self.a.dtype)
        assert element is not None
        self.element, self.terms = element, _TERMS[element]
        self.most_depth = _DEPTHS[self.terms]
        # what is added up is a part of a block, of whole steps of codes and of tiles
        block, step = weights.block, max(STEP, weights.form.step)
        self.sum_depth = next(
            depth
            for depth in range(min(block, _SUM_DEPTH), 0, -1)
            if block % depth == 0 and depth % step == 0
        )

    @property
    def kernel(self) -> Kernel:
        return Kernel(TileManyRows(self.weights.form, self.element, self.terms))

    @property
    def unit(self) -> int:
        return self.sum_depth

    def panel_words(self, depth: int) -> dict[str, Word]:
        nbytes = depth // STEP * _VECTORS * TILE_BYTES
        of_scales = depth // self.sum_depth * _VECTORS * VECTOR_BYTES
        made, distance = worker_memory(self.recorder, nbytes + of_scales)
        return {
            "panel_made": made,
            "scales_made": Address(made.buffer, made.offset + nbytes),
            "made_distance": distance,
            "sum_depth": self.sum_depth,
            **self._planes(),
        }

    def _planes(self) -> dict[str, Word]:
        """Those of the rows, and what else kernels read of them."""
        recorder, rows, bits = self.recorder, self.rows, self.weights.form.bits
        # with what tiles of fewer rows read behind theirs; an odd number of tiles, for
        # planes not to evict each other
        plane = ((rows + ROWS) // (2 * ROWS) * 2 + 1) * TILE_BYTES
        count = self.weights.inner // STEP * self.terms
        planes = recorder.temporary(np.dtype(np.uint8), (count * plane,))
        words: dict[str, Word] = {
            "a": self.a.address,
            "a_row": self.a.strides[3] * self.itemsize,
            "depth": self.weights.inner,
            "planes": planes.address,
            "plane": plane,
        }
        given: dict[str, Word] = {"flags": 0, "a_scales": 0, "a_distance": 0}
        if self.scales is None:
            flags = recorder.temporary(np.dtype(np.int32), (rows + LANES,))
            given["flags"] = words["flags"] = flags.address
            kernel = Kernel(SplitRows(self.element, bits, self.terms))
        else:
            given |= self._turned(self.scales, words)
            kernel = Kernel(RoundedPlanes(bits))
        call(
            recorder,
            kernel,
            words,
            chunks=rows,
            label=f"{self.label}: rows in planes",
            nbytes=self.a.nbytes + rows * self.terms * self.weights.inner * 2,
        )
        return {"planes": planes.address, "plane": plane, **given}

    def _turned(self, scales: View, words: dict[str, Word]) -> dict[str, Word]:
        """The words of scales of rows that lie next to each other; *words* receive
        those of what puts them so."""
        blocks = self.weights.blocks
        sums = self.weights.inner // self.sum_depth
        # tiles of fewer rows read what is behind
        turned = self.recorder.temporary(scales.dtype, (sums, self.rows + LANES))
        words |= {
            "scales": scales.address,
            "scales_row": scales.strides[0] * scales.dtype.itemsize,
            "scales_block": scales.shape[1] // blocks * scales.dtype.itemsize,
            "each": self.weights.block // self.sum_depth,
            "sums": sums,
            "turned": turned.address,
            "turned_sum": turned.strides[0] * turned.dtype.itemsize,
        }
        return {"a_scales": words["turned"], "a_distance": words["turned_sum"]}

    def tile_of(self, rows: int, vectors: int) -> Callable[..., Kernel]:
        steps = self.sum_depth // STEP
        form = vectors, self.terms, self.scales is not None, steps
        return functools.partial(_code_tile, form)


@functools.cache
def _code_tile(form: tuple[int, int, bool, int], rows: int) -> Kernel:
    return Kernel(CodeTile(rows, *form))
