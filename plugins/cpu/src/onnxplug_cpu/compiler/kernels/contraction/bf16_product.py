"""Contractions of float32 with constants by bfloat16: from so many terms that they are
as exact as by FMA, or from factors that are rounded."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.math.narrow import has_f16
from onnxplug_cpu.compiler.codegen.tile_registers import ROWS
from onnxplug_cpu.compiler.commands.chunks import chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, Words
from onnxplug_cpu.compiler.kernels.contraction.bf16_block import TermsProduct
from onnxplug_cpu.compiler.kernels.contraction.bf16_narrow import (
    STEP_BYTES as NARROW_STEP,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_narrow import (
    TERMS_OF_F16,
    PackNarrow,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_pairs import MOST_ROWS as PAIRS_ROWS
from onnxplug_cpu.compiler.kernels.contraction.bf16_pairs import (
    PAIRS_LINES,
    BlockOfPairs,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_pixels import (
    is_strided,
    lines_of,
    pixels_of,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_squares import (
    MOST_ROWS as SQUARES_ROWS,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_squares import BlockOfSquares
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    BLOCK,
    FLAG_BYTES,
    PIXEL_BYTES,
    STEP,
    TERM_BYTES,
    TERMS,
    PackTerms,
    SplitTerms,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import (
    LINES,
    SUMS_BYTES,
    BlockOfSums,
    products_of,
)
from onnxplug_cpu.compiler.kernels.contraction.division import (
    Blocks,
    Division,
    divide,
    divide_depth,
)
from onnxplug_cpu.compiler.kernels.contraction.operands import once, tap_offsets
from onnxplug_cpu.compiler.kernels.contraction.pack import PackPanel, panel_way
from onnxplug_cpu.compiler.kernels.contraction.product import Product
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.widening import widened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
    from onnxplug_cpu.compiler.machine.isa import Isa

LEAST_ROWS: Final = 32
LEAST_COLUMNS: Final = 64
LEAST_DEPTH: Final = 64
"""Below these, splitting A and the rest cost more than tiles save.  Several taps share
what is split: then half as many columns do."""

MOST_TAPS: Final = 1 << 14
"""Above it, planning would look at each of them for too long."""

_TERMS_OF: Final = {"float16": TERMS_OF_F16, "bfloat16": 1}
"""How many terms numbers of fewer than 24 bits have."""

BLOCK_STEPS: Final = 24
"""The most steps, 768 of K, whose products tiles sum up."""

_FLOPS, _BYTES = 200e9, 8e9  # of one thread, a second: to guess how long work takes
_MOST_TURNS: Final = 8
_TURN_BYTES: Final = 12 << 10
"""Of terms of B that stay in the first-level cache while pairs of tiles take turns."""

_ROWS_KEPT: Final = 128
"""Rows whose terms should stay in the second-level cache, before K is divided."""

_TILE_CYCLES: Final = 16  # of a multiplication of tiles
_SPLIT_CYCLES: Final = 10  # of a step of a pixel
_COPY_CYCLES: Final = 10  # of the same
_FMA_PER_CYCLE: Final = 32
_VECTOR_CYCLES: Final = ROWS // 2
"""Of vectors of pairs for a row of a product of tiles, half of what FMA takes."""

_WORTHWHILE: Final = 0.8
"""The most of what FMA would take that tiles may, as far as cycles can be told."""

_CLEARLY: Final = 0.9
"""The most of what other ways take that one may for which A is copied."""


class Terms(NamedTuple):
    """Of how many terms elements of A and of B are made."""

    left: int
    right: int


def terms_of(recorder: Recorder, b: View, *, of_matrices: bool) -> Terms:
    """The terms of what is recorded now.

    Convolutions have one, if factors are rounded, or as many as are exact: networks of
    them make errors larger from layer to layer, to hundreds of times what two terms
    leave out, and little of their time is that of weights.

    Args:
        b: the second factor.
        of_matrices: it is a product of matrices, not a convolution.
    """
    rounds = dict(recorder.target.rounds) if recorder.narrows else {}
    most = rounds.get(b.dtype_name, TERMS)
    if most > 1 and not of_matrices:
        most = TERMS
    return Terms(most, min(most, _TERMS_OF.get(b.dtype_name, TERMS)))


def stays_narrow(recorder: Recorder, b: View, terms: Terms) -> bool:
    """Whether *b* is packed as float16, of which terms are made when it is read."""
    return (
        b.dtype_name == "float16"
        and terms.right == TERMS_OF_F16
        and has_f16(recorder.target.isa)
    )


def best(
    recorder: Recorder,
    contractions: Iterable[Contraction],
    copied: Contraction,
    terms: Terms,
) -> Contraction | None:
    """Which of *contractions*, ways to compute the same, should be computed by tiles
    here; ``None`` if none should.

    Args:
        copied: another way, for which A is to be copied with all its taps.
    """
    found, least = None, _WORTHWHILE
    for contraction in contractions:
        share = _share_of_fma(recorder, contraction, terms)
        if share <= least and _may_be_used(recorder, contraction, terms):
            found, least = contraction, share
    share = _share_of_fma(recorder, copied, terms, _SPLIT_CYCLES + _COPY_CYCLES)
    if share <= _CLEARLY * least and _may_be_used(recorder, copied, terms):
        found = copied
    if found is not None and recorder.target.isa.tiles:
        return found if recorder.target.allow_bf16x3() else None
    return found


def _may_be_used(recorder: Recorder, contraction: Contraction, terms: Terms) -> bool:
    b = once(contraction.b)
    return (
        (bool(recorder.target.isa.tiles) or terms == (1, 1))
        and isinstance(b.buffer, Constant)
        and contraction.a.dtype == np.float32
        and not recorder.is_refused(b, _layout(recorder, contraction, terms))
    )


def _share_of_fma(
    recorder: Recorder,
    contraction: Contraction,
    terms: Terms,
    each: int = _SPLIT_CYCLES,
) -> float:
    """How long tiles, or vectors of pairs, take as a share of what FMA takes, as far as
    cycles tell.

    Args:
        each: cycles of a step of a pixel that is no multiplication.
    """
    lines, rows, columns = contraction.out.shape[2:]
    taps, depth = len(contraction.offsets), contraction.a.shape[4]
    inner = taps * depth
    if (
        lines * rows < LEAST_ROWS
        or columns * min(taps, 2) < LEAST_COLUMNS
        or inner < LEAST_DEPTH
        or taps > MOST_TAPS
    ):
        return math.inf
    pixels = pixels_of(contraction)
    if pixels is None:
        return math.inf
    steps = -(-depth // STEP)
    tiled = lines_of(pixels, lines, rows)
    if recorder.target.isa.tiles:
        down = tiled.tiles * _TILE_CYCLES
    else:
        down = tiled.number * tiled.rows * _VECTOR_CYCLES
    across = -(-columns // ROWS) * len(products_of(*terms))
    cycles = (down * across * taps + pixels.number * each) * steps
    return cycles * _FMA_PER_CYCLE / (lines * rows * columns * inner)


class SplitProduct(Product):
    """A contraction by tiles, or by vectors of pairs, while it is recorded.

    B is a constant, whose packed form is refused if an element's terms are not exact:
    one that is not finite or so large that it rounds to infinity, or not 0 and below
    2⁻¹⁰³.  Rows of A with Inf, NaN, or elements that round to infinity are multiplied
    as float32.

    Raises:
        ValueError: lines or taps of A do not follow each other.
    """

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
        terms: Terms,
    ) -> None:
        left, right = self.left, self.right = self.terms = terms
        self.step_bytes = self.read_bytes = right * TERM_BYTES
        self.narrow = stays_narrow(recorder, contraction.b, terms)
        if self.narrow:
            self.read_bytes = NARROW_STEP
        way = "bf16" if left == 1 else f"bf16x{left}"
        super().__init__(recorder, contraction, f"{label} ({way})")
        pixels = pixels_of(contraction)
        if pixels is None:
            raise ValueError(f"strides of {self.a.strides} are not those of pixels")
        self.pixels = pixels
        self.tiled = lines_of(pixels, self.lines, self.line_rows)
        self.steps = -(-self.depth // STEP)
        self.panels = -(-self.columns // BLOCK)
        self.turns = self._turns()
        self.blocks = self._blocks()
        self.division = self._divide()

    def _turns(self) -> int:
        """How many pairs of tiles take turns at a block: with one term reading is what
        takes time, and terms that are made on the way are made once for them."""
        is_light = self.narrow or self.left == 1
        if not (is_light and self.recorder.target.isa.tiles):
            return 1
        return smaller(_MOST_TURNS, -(-self.tiled.tiles // 2))

    def _blocks(self) -> Blocks:
        """Passes over K are as long as the terms of some rows stay in the cache, and
        blocks of a panel that pairs of tiles take turns at stay in the first one."""
        passes = 1
        if self.taps == 1:
            blocks = divide_depth(1, self.steps, most=BLOCK_STEPS)
            rows = min(-(-self.rows // BLOCK) * BLOCK, _ROWS_KEPT)
            kept = rows * blocks.block_depth * self.left * PIXEL_BYTES
            together = min(blocks.blocks, max(1, self._cache // kept))
            passes = -(-blocks.blocks // together)
        most = BLOCK_STEPS
        if self.turns > 1:
            most = _TURN_BYTES // self.step_bytes
        return divide_depth(self.taps, self.steps, most=most, passes=passes)

    @property
    def _block_steps(self) -> int:
        """The most steps of a block, of all of its taps."""
        blocks = self.blocks
        if blocks.tap_blocks > 1:
            return blocks.block_depth
        return blocks.block_taps * self.steps

    @property
    def _chain(self) -> int:
        """Of how many blocks sums go on from each other: what is rounded is not less
        exact for long ones."""
        if not self.recorder.target.isa.tiles:
            return 1
        if self.left < TERMS:
            return self.blocks.blocks
        return larger(1, BLOCK_STEPS // self._block_steps)

    @property
    def _cache(self) -> int:
        return self.recorder.target.isa.l2 // 2

    @property
    def _kept_steps(self) -> int:
        """Steps of a tap whose terms a pass has."""
        blocks = self.blocks
        if blocks.outer_blocks == 1:
            return self.steps
        return blocks.inner_blocks * blocks.block_depth

    def _divide(self) -> Division:
        kept = self.pixels.number * self._kept_steps * self.left * PIXEL_BYTES
        parts = kept / self._cache
        chunks = chunks_for(self.flops / _FLOPS, self.recorder.target.workers)
        return divide(
            self.tiled.number,
            self.tiled.rows,
            self.panels,
            most_rows=most_rows(self.recorder.target.isa),
            together=2,
            row_parts=max(1, round(parts)),
            column_parts=1,
            chunks=-(-chunks // self.batches),
        )

    def record(self) -> None:
        """Record the commands."""
        if is_strided(self.a):
            single = once(self.a)
            copy = self.recorder.temporary(single.dtype, single.shape)
            record_copy(self.recorder, single, copy)
            self.a = copy.broadcast_to(self.a.shape)
        recorder, division, blocks = self.recorder, self.division, self.blocks
        panel = self.taps * self.steps * self.read_bytes
        matrix = self.panels * panel
        b, packed = once(self.b), self._packed(matrix)
        waiting_panel, sums = 0, self.turns * SUMS_BYTES
        if blocks.outer_blocks > 1:
            waiting_panel = division.chunk_groups * SUMS_BYTES
            sums = division.chunk_panels * waiting_panel
        partial, distance = worker_memory(recorder, self.turns * SUMS_BYTES + sums)
        share = -(-self.read_bytes // 64 // division.chunk_groups)
        lines = 0
        if division.chunk_groups > 1:
            some = LINES if recorder.target.isa.tiles else PAIRS_LINES
            lines = next((n for n in some if n >= share), some[-1])
        narrow = 0 < self.columns % BLOCK <= BLOCK // 2

        def function(rows: int, columns: int) -> Code:
            if recorder.target.isa.tiles:
                form = BlockOfSums(rows, columns, lines, self.left, self.right)
                return Code(Kernel(form))
            tile_rows = int(division.tile_rows)
            has_squares = recorder.target.isa.has("bf16")
            block = BlockOfSquares if has_squares else BlockOfPairs
            return Code(Kernel(block(rows, tile_rows, columns, lines)))

        # a function that is never called need not be compiled
        high = min(2, division.all_tiles)
        low = 1 if division.all_tiles % 2 else high
        tail = 1 if narrow else 2
        words: dict[str, Word] = {
            "b": packed,
            "b_batch0": 0 if b.shape[0] == 1 else matrix * b.shape[1],
            "b_batch1": 0 if b.shape[1] == 1 else matrix,
            "b_panel": panel,
            "depth": self.depth,
            "pixel": self.pixels.apart * 4,
            "pixel_line": self.pixels.line,
            "pixel_row": self.pixels.row,
            "last_pixel": max(self.pixels.taps),
            "pitch": self.tiled.pitch,
            "line_rows": self.line_rows,
            "term_offsets": Words(tuple(tap * PIXEL_BYTES for tap in self.pixels.taps)),
            **self._terms(),
            "sums": function(high, 2),
            "sums_tail": function(high, tail),
            "sums_low": function(low, 2),
            "sums_low_tail": function(low, tail),
            "prefetch": lines * 64,
            "chain": self._chain,
            "turns": self.turns,
            "partial": partial,
            "partial_distance": distance,
            "partial_panel": waiting_panel,
            "b_terms": 0,
            "b_terms_distance": 0,
        }
        if self.narrow:
            nbytes = self._block_steps * self.step_bytes
            words["b_terms"], words["b_terms_distance"] = worker_memory(
                recorder, nbytes
            )
        kernel = Kernel(TermsProduct(self.left, self.right, self.narrow))
        self.call(kernel, self.a, division, blocks, words)

    def _plane(self, pixels: int) -> int:
        """Bytes of a plane of so many pixels, and what tiles of fewer rows read behind
        them; an odd number of lines, for planes not to evict each other."""
        return ((pixels + self.pixels.row) | 1) * PIXEL_BYTES

    def _chunk_pixels(self) -> int:
        """The most pixels of a chunk."""
        division, pixels, tiled = self.division, self.pixels, self.tiled
        tiles = division.chunk_tiles
        rows = min(tiled.rows, tiles * division.tile_rows)
        lines = min(tiled.number, (tiles - 2) // division.tiles + 2)
        if lines > 1:
            rows = tiled.rows
        last = (lines - 1) * pixels.line + (rows - 1) * pixels.row
        return last + max(pixels.taps) + 1

    def _terms(self) -> dict[str, Word]:
        """Where the terms of A are; the command that makes them, if chunks do not."""
        recorder, a = self.recorder, self.a
        if self.division.column_parts == 1:
            pixels = self._chunk_pixels()
            plane = self._plane(pixels)
            nbytes = self._kept_steps * self.left * plane
            terms, distance = worker_memory(recorder, nbytes)
            flags, flags_distance = worker_memory(recorder, pixels * FLAG_BYTES)
            return {
                "splits": 1,
                "terms": terms,
                "terms_distance": distance,
                "terms_matrix": 0,
                "plane": plane,
                "flags": flags,
                "flags_distance": flags_distance,
                "flags_matrix": 0,
            }
        pixels = self.pixels.number
        plane = self._plane(pixels)
        matrix, flags_matrix = self.steps * self.left * plane, pixels * FLAG_BYTES
        byte = np.dtype(np.uint8)
        terms = recorder.temporary(byte, (self.batches, matrix)).address
        flags = recorder.temporary(byte, (self.batches, flags_matrix)).address
        nbytes = self.contraction.window_bytes + matrix
        parts = chunks_for(self.batches * nbytes / _BYTES, recorder.target.workers)
        parts = min(pixels, -(-parts // self.batches))
        call(
            recorder,
            Kernel(SplitTerms(self.left)),
            {
                "a": a.address,
                "a_batch0": a.strides[0] * 4,
                "a_batch1": a.strides[1] * 4,
                "pixels": pixels,
                "pixel": self.pixels.apart * 4,
                "depth": self.depth,
                "batches1": self.out.shape[1],
                "parts": parts,
                "terms": terms,
                "terms_matrix": matrix,
                "plane": plane,
                "flags": flags,
                "flags_matrix": flags_matrix,
            },
            chunks=self.batches * parts,
            label=f"{self.label}: split A",
            nbytes=self.batches * nbytes,
        )
        return {
            "splits": 0,
            "terms": terms,
            "terms_distance": 0,
            "terms_matrix": matrix,
            "plane": plane,
            "flags": flags,
            "flags_distance": 0,
            "flags_matrix": flags_matrix,
        }

    def _packed(self, matrix: int) -> Address:
        """B's terms, made once; before them the verdicts of those who make them."""
        b = once(self.b)
        matrices = b.shape[0] * b.shape[1]
        wanted = chunks_for(b.nbytes / _BYTES, self.recorder.target.workers)
        parts = min(self.panels, -(-wanted // matrices))
        verdicts = 8 * matrices * parts
        # with room for as many as there may be: threads do not change the layout
        head = -(-8 * matrices * self.panels // 64) * 64

        def accepts(content: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
            return not content[:verdicts].any()

        packed = self.recorder.packed(
            b,
            _layout(self.recorder, self.contraction, self.terms),
            head + matrices * matrix,
            functools.partial(self._record_pack, head=head, matrix=matrix, parts=parts),
            accepts,
        )
        return packed._replace(offset=packed.offset + head)

    def _record_pack(
        self,
        recorder: Recorder,
        b: View,
        target: Address,
        *,
        head: int,
        matrix: int,
        parts: int,
    ) -> None:
        """Record what makes the terms, *matrix* bytes each, behind a *head*."""
        if not self.narrow:
            b = widened(recorder, b)
        matrices = b.shape[0] * b.shape[1]
        shape = (*b.shape[:2], *self.contraction.taps, self.depth, self.columns)
        whole = b.reshape(shape) if len(b.shape) != len(shape) else b
        if whole is None:
            whole = recorder.temporary(b.dtype, b.shape)
            record_copy(recorder, b, whole)
            whole = whole.reshape(shape)
            assert whole is not None
        b = whole
        element, size = ("f16" if self.narrow else "f32"), b.dtype.itemsize
        way = panel_way(element, b.strides[-2], b.strides[-1], self.columns)
        call(
            recorder,
            Kernel(PackNarrow() if self.narrow else PackTerms(self.right)),
            {
                "source": b.address,
                "batch0": b.strides[0] * size,
                "batch1": b.strides[1] * size,
                "row": b.strides[-2] * size,
                "column": b.strides[-1] * size,
                "target": target._replace(offset=target.offset + head),
                "target_batch": matrix,
                "rows": self.depth,
                "columns": self.columns,
                "taps": self.taps,
                "offsets": Words(tap_offsets(b, range(2, len(b.shape) - 2))),
                "batches1": b.shape[1],
                "parts": parts,
                "pack": Code(Kernel(PackPanel(element, way))),
                "verdicts": target,
            },
            chunks=matrices * parts,
            label=f"{self.label}: pack B",
            nbytes=b.nbytes + matrices * matrix,
        )


def most_rows(isa: Isa) -> int:
    """The most rows of a tile, in registers of the kind that there is."""
    if isa.tiles:
        return ROWS
    return SQUARES_ROWS if isa.has("bf16") else PAIRS_ROWS


def _layout(recorder: Recorder, contraction: Contraction, terms: Terms) -> str:
    b, taps = once(contraction.b), contraction.taps
    way = "f16" if stays_narrow(recorder, b, terms) else f"bf16x{terms.right}"
    return f"{way}({b.offset},{b.shape},{b.strides},{b.dtype_name},{taps})"
