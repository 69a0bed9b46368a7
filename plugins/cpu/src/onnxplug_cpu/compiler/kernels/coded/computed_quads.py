"""Products of two computed factors as quads, where no sum of products saturates.

The second factor gets a sign, and its codes lie next to each other along the sums
before the product packs them, as it packs any factor of int32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.coded import Factor
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.integer_products import (
    instruction_for_bytes,
    saturates,
)
from onnxplug_cpu.compiler.kernels.coded.corrections import (
    Missing,
    completed,
    of_columns,
)
from onnxplug_cpu.compiler.kernels.coded.factors import (
    BATCHES,
    I32,
    LEAD,
    once,
    record_zeros,
)
from onnxplug_cpu.compiler.kernels.coded.quads import (
    Quads,
    missing_of_a,
    quads_of_a,
    sums_of_rows,
)
from onnxplug_cpu.compiler.kernels.contraction.division import (
    Blocks,
    Division,
    divide_depth,
)
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.kernels.contraction.right_factor import Right
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    QUADS,
    TileShape,
    integer_tile_shape,
)
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder
    from onnxplug_cpu.compiler.machine.isa import Isa

_I8, _U8 = np.dtype(np.int8), np.dtype(np.uint8)

_FEWEST: Final = 32
"""Terms, columns and rows, below which what is done for each of them beside the product
takes longer than pairs."""


def takes_computed_quads(recorder: Recorder, a: Factor, b: Factor) -> bool:
    """Whether a product of factors with lines is one of such quads."""
    isa, codes = recorder.target.isa, a.codes.view
    if isa.name != "avx512" or saturates(isa) or len(codes.shape) != LEAD + 1:
        return False
    if codes.dtype.itemsize != 1 or b.codes.view.dtype.itemsize != 1:
        return False
    if a.zero is not None and a.zero.view.strides[LEAD]:
        return False
    if b.zero is not None and b.zero.view.strides[BATCHES]:
        return False
    rows = math.prod(codes.shape[BATCHES:LEAD])
    return min(rows, codes.shape[LEAD], b.codes.shape[-1]) >= _FEWEST


def record_computed_quads(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product of factors with lines; see :func:`~.integers.record_integers`.

    Args:
        label: with the sizes.
    """
    left = Quads(a, quads_of_a(recorder, a, QUADS), QUADS)
    right = _quads_of_b(recorder, once(b))
    batches = out.shape[:BATCHES]
    whole = right.broadcast_to((*batches, *right.shape[BATCHES:]))
    label = f"{label} by {instruction_for_bytes(recorder.target.isa, QUADS)}"
    missing = []
    of_a = missing_of_a(left, out)
    if not of_a.is_nothing:
        sums = _sums_of_columns(recorder, right, label)
        missing.append(of_a._replace(sums=sums))
    lowered = 128 if b.codes.view.dtype == _U8 else 0
    of_b = Missing(
        None if b.zero is None else of_columns(b.zero.view), b.offset - lowered, out
    )
    if not of_b.is_nothing:
        sums = sums_of_rows(recorder, left, b, label)
        missing.append(of_b._replace(sums=sums))
    after = completed(recorder, missing, out, epilogue)
    ComputedQuads(recorder, fold(left.view, whole, out, after), label).record()


class ComputedQuads(FmaProduct):
    """A contraction of quads while it is recorded: both factors have them as int32."""

    tile_element = QUADS

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return integer_tile_shape(isa)

    def blocks(self, division: Division, right: Right) -> Blocks:
        """One, as sums are exact however long they are."""
        return divide_depth(self.taps, self.depth, most=max(1, self.inner))


def _quads_of_b(recorder: Recorder, b: Factor) -> View:
    """[batch0, batch1, quads, columns] of int32, each of four codes, those without a
    sign by 128 smaller, and zeros behind the last one.

    Args:
        b: once.
    """
    view = b.codes.view
    *batches, inner, columns = view.shape
    signed = view
    if view.dtype == _U8:
        signed = recorder.ordered_like(view, view.shape, _I8)
        chain = Formula("i16")
        value = chain.step("Sub", chain.read_wide(view), chain.number(128))
        chain.record(recorder, value, signed, "Codes")
    fourths = [stride // 4 for stride in (*signed.strides[:BATCHES], signed.strides[3])]
    if (
        signed.strides[BATCHES] == 1
        and not inner % 4
        and not any(s % 4 for s in (*signed.strides[:BATCHES], signed.strides[3]))
    ):
        shape = (*batches, inner // 4, columns)
        strides = (*fourths[:BATCHES], 1, fourths[BATCHES])
        return View(signed.buffer, signed.offset, I32, shape, strides)
    quads = recorder.temporary(I32, (*batches, -(-inner // 4), columns))
    row, matrix = 4 * columns, 4 * math.prod(quads.shape[BATCHES:])
    outer = (matrix * batches[1], matrix)
    whole = inner // 4
    shape = (*batches, whole, 4, columns)
    step, *_ = strides = signed.strides[BATCHES:]
    apart = (*signed.strides[:BATCHES], 4 * step, *strides)
    record_copy(
        recorder,
        View(signed.buffer, signed.offset, _I8, shape, apart),
        View(quads.buffer, 0, _I8, shape, (*outer, row, 1, 4)),
        label="Quads",
    )
    for place in range(inner % 4 and 4):
        target = View(
            quads.buffer, whole * row + place, _I8, (*batches, columns), (*outer, 4)
        )
        if place >= inner % 4:
            record_zeros(recorder, target)
            continue
        last = signed.slice((0, 0, 4 * whole + place, 0), (*batches, 1, columns))
        source = last.reshape(target.shape)
        assert source is not None, "an axis of one element goes"
        record_copy(recorder, source, target, label="Quads")
    return quads


def _sums_of_columns(recorder: Recorder, right: View, label: str) -> View:
    """[batch0, batch1, 1, 1, columns] of int32, of B as quads."""
    *batches, quads, columns = right.shape
    row = recorder.constant(np.full(quads, 0x01010101, np.int32))
    ones = row.broadcast_to((*batches, 1, 1, quads))
    sums = recorder.temporary(I32, (*batches, 1, 1, columns))
    contraction = fold(ones, right, sums, None)
    ComputedQuads(recorder, contraction, f"{label}: sums of columns").record()
    return sums
