"""Products of quads by vectors, or by squares, and their constant factor in panels."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_cpu.compiler.codegen.integer_products import (
    multiplies_squares,
    saturates,
)
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import call
from onnxplug_cpu.compiler.kernels.coded.factors import (
    BATCHES,
    I16,
    I32,
    changed,
    described,
    record_zeros,
    widened,
)
from onnxplug_cpu.compiler.kernels.coded.joined_groups import groups_of
from onnxplug_cpu.compiler.kernels.coded.pack_quads import PackQuads
from onnxplug_cpu.compiler.kernels.contraction.division import (
    Blocks,
    Division,
    divide_depth,
)
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.right_factor import Right
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    QuadRemainders,
    TileShape,
    integer_tile_shape,
    narrow_tile,
)
from onnxplug_cpu.compiler.kernels.contraction.tile_kernel import SQUARES
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.recording import Recorder
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction

_REMAINING: Final = 4
"""One of how many quads of a panel may have a remainder, each of which takes as long as
a quad: with more, pairs are faster, or nearly so."""


def layout_of(isa: Isa, b: Factor, depth: int, joined: int = 1) -> str:
    """The name of the layout of a constant, once.

    Args:
        depth: quads of a tap.
        joined: see :class:`QuadProduct`.
    """
    view = b.codes.view
    form = view.offset, view.shape, view.strides, integer_tile_shape(isa).vectors
    steps = f", steps of {depth}" if isa.multiplies_byte_tiles else ""
    side_by_side = f", {joined} joined" if joined > 1 else ""
    return f"quads({described(b)},{','.join(map(str, form))}{steps}{side_by_side})"


def depths_of(sums: Sequence[int]) -> Iterator[int]:
    """What the quads of a tap may be, however many of the last axes of *sums* codes
    lie next to each other in the first factor."""
    for axis in range(len(sums)):
        yield -(-math.prod(sums[axis:]) // 4)


class QuadProduct(FmaProduct):
    """A contraction of quads while it is recorded: A has them as int32.

    Args:
        constant: B, which stands in the contraction as well.
        element: of the quads of A.
        joined: matrices of it that are one of the contraction's; see
            :mod:`~.joined_groups`.
    """

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
        constant: Factor,
        element: str,
        joined: int = 1,
    ) -> None:
        super().__init__(recorder, contraction, label)
        isa = self.processor
        # however many rows there are: panels, which others share, are those of one tile
        self.tile = narrow_tile(isa, self.columns * self.itemsize) or self.usual
        self.tile_element = element
        self.constant, self.joined = constant, joined
        self.octets = multiplies_squares(isa)
        self.way = SQUARES if self.octets else ""
        self.saturates = saturates(isa) and not isa.multiplies_byte_tiles

    @property
    def processor(self) -> Isa:
        """As products of bytes may use it."""
        return self.recorder.target.isa_of_bytes

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return integer_tile_shape(isa)

    @property
    def quads(self) -> int:
        """Of a column of a panel."""
        return self.inner + self.inner % (2 if self.octets else 1)

    def blocks(self, division: Division, right: Right) -> Blocks:
        """One, as sums are exact however long they are."""
        return divide_depth(self.taps, self.depth, most=max(1, self.inner))

    def right(self) -> Right:
        """B in panels, with their remainders behind them."""
        source = self.constant.codes.view
        matrices = source.shape[0] * source.shape[1] // self.joined
        row = self.tile.vectors * VECTOR_BYTES
        panels = -(-self.columns // (row // self.itemsize))
        capacity = 4 + self.inner // _REMAINING if self.saturates else 0
        entries = QuadRemainders.HEAD + -(-I32.itemsize * capacity // 64) * 64
        panel = self.quads * row + entries + (capacity + 1) * row
        head = -(-8 * matrices * panels // 64) * 64

        def accepts(content: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
            return not content[: 8 * matrices * panels].any()

        sizes = {
            "panels": panels,
            "panel_columns": row // self.itemsize,
            "panel_bytes": panel,
            "capacity": capacity,
            "remainders": entries,
        }
        packed = self.recorder.packed(
            source,
            layout_of(self.processor, self.constant, self.depth, self.joined),
            head + matrices * panels * panel,
            functools.partial(self._record_quads, head=head, sizes=sizes),
            accepts,
        )
        address = packed._replace(offset=packed.offset + head)
        groups = source.shape[1] // self.joined
        return self.panels(address)._replace(
            panel=panel,
            batch0=0 if source.shape[0] == 1 else panels * panel * groups,
            batch1=0 if groups == 1 else panels * panel,
        )

    def rows_of_b(self, recorder: Recorder, b: Factor, width: int) -> View:
        """The rows that are packed; see :func:`rows_of_b`."""
        return rows_of_b(recorder, b, 4 * self.quads, width, self.joined)

    def _record_quads(
        self,
        recorder: Recorder,
        source: View,
        target: Address,
        *,
        head: int,
        sizes: dict[str, int],
    ) -> None:
        width = sizes["panels"] * sizes["panel_columns"]
        factor = self.constant._replace(codes=Codes(source))
        rows = self.rows_of_b(recorder, factor, width)
        matrices = rows.shape[0] * rows.shape[1]
        call(
            recorder,
            Kernel(PackQuads(self.saturates, self.octets)),
            {
                "source": rows.address,
                "source_row": width * I16.itemsize,
                "source_matrix": 4 * self.quads * width * I16.itemsize,
                "quads": self.quads,
                "columns": self.columns,
                **sizes,
                "target": target._replace(offset=target.offset + head),
                "verdicts": target,
            },
            chunks=matrices * sizes["panels"],
            label=f"{self.label}: pack B",
            nbytes=2 * source.nbytes,
        )


def rows_of_b(
    recorder: Recorder, b: Factor, inner: int, width: int, joined: int = 1
) -> View:
    """The second factor's differences as [batch0, batch1, *inner*, *width*], with zeros
    behind its rows and columns, and beside those of each of *joined* matrices."""
    batch0, groups, *sums, columns = b.codes.shape
    *taps, depth = sums
    rows = recorder.temporary(I16, (batch0, groups // joined, inner, width))
    count, across = joined * math.prod(sums), joined * columns
    inside = tuple(width * stride for stride in c_strides((*taps, joined * depth)))
    strides = (*rows.strides[:BATCHES], *inside, 1)
    lead = rows.shape[:BATCHES]
    if joined > 1:
        record_zeros(recorder, rows)
    for number, (first, shape) in enumerate(groups_of(b.codes.shape, joined)):
        part = changed(b, functools.partial(_every, first, shape, joined))
        place = number * (depth * width + columns) * I16.itemsize
        widened(recorder, part, View(rows.buffer, place, I16, tuple(shape), strides))
    for start, size in (
        ((0, 0, 0, across), (*lead, count, width - across)),
        ((0, 0, count, 0), (*lead, inner - count, width)),
    ):
        if 0 not in size and joined == 1:
            record_zeros(recorder, rows.slice(start, size))
    return rows


def _every(first: list[int], shape: list[int], step: int, view: View) -> View:
    """Matrices of a view, so many apart."""
    return view.slice(first, shape, [1, step, *[1] * (len(shape) - BATCHES)])
