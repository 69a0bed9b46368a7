"""Products of differences of codes, as pairs of 16 bits.

The differences take nine bits: no product needs a correction, and no sum of two
saturates.  The first factor is widened before a product; a constant second one when it
is packed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_cpu.compiler.kernels.coded.factors import (
    BATCHES,
    I16,
    I32,
    LEAD,
    changed,
    described,
    first_of,
    is_constant,
    once,
    record_zeros,
    widened,
)
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.left_factor import left_factor
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    PAIRS,
    TileShape,
    integer_tile_shape,
)
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

if TYPE_CHECKING:
    from onnxplug_compiler.ir.buffers import Address
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction
    from onnxplug_cpu.compiler.machine.isa import Isa


def record_pairs(
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
    left, right = _pairs_of_a(recorder, a), once(b)
    if is_constant(b):
        contraction = fold(left, b.codes.view, out, epilogue)
        PairProduct(recorder, contraction, label, right).record()
        return
    pairs = _pairs_of_b(recorder, right, left.shape[LEAD:])
    pairs = pairs.broadcast_to((*out.shape[:BATCHES], *pairs.shape[BATCHES:]))
    PairProduct(recorder, fold(left, pairs, out, epilogue), label).record()


class PairProduct(FmaProduct):
    """A contraction of pairs while it is recorded: A has them as int32.

    Args:
        constant: B if it is to be packed once; it stands in the contraction as well.
            Otherwise B has pairs, too.
    """

    tile_element = PAIRS

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
        constant: Factor | None = None,
    ) -> None:
        super().__init__(recorder, contraction, label)
        self.constant = constant

    def shape_of_tiles(self, isa: Isa) -> TileShape:
        """Of the largest ones."""
        return integer_tile_shape(isa)

    def layout(self, b: View) -> str:
        """Of the packed B."""
        assert self.constant is not None
        return f"pairs of {described(self.constant)} {super().layout(b)}"

    def record_pack(
        self, recorder: Recorder, b: View, target: Address, *, matrix: int
    ) -> None:
        """Record what packs B; a constant one is widened before."""
        if self.constant is not None:
            zero = self.constant.zero
            if zero is not None:
                zero = Codes(_along_columns(zero.view, b.shape))
            factor = self.constant._replace(codes=Codes(b), zero=zero)
            b = _pairs_of_b(recorder, factor, (self.inner,))
        super().record_pack(recorder, b, target, matrix=matrix)


def _along_columns(zero: View, shape: tuple[int, ...]) -> View:
    """Zero points, which are the same along the sums, for codes of *shape*, of which
    axes of sums may have become one."""
    strides = (*zero.strides[:BATCHES], *[0] * (len(shape) - BATCHES - 1))
    return View(
        zero.buffer, zero.offset, zero.dtype, shape, (*strides, zero.strides[-1])
    )


def _pairs_of_a(recorder: Recorder, a: Factor) -> View:
    """The first factor as int32 of two differences each that are next to each other
    along the sums, which are one axis if it is copied."""
    in_place = _in_place(a)
    if in_place is not None:
        return in_place
    shape = once(a, LEAD).codes.shape[:LEAD]
    sums = a.codes.shape[LEAD:]
    inner = math.prod(sums)
    pairs = left_factor(recorder, I32, (*shape, -(-inner // 2)))
    strides = tuple(2 * stride for stride in pairs.strides[:LEAD])
    whole = (*shape, *sums)
    halves = View(pairs.buffer, 0, I16, whole, (*strides, *c_strides(sums)))
    if halves.size:
        widened(recorder, changed(a, lambda view: first_of(view, whole)), halves)
    if inner % 2:
        record_zeros(recorder, View(pairs.buffer, 2 * inner, I16, shape, strides))
    return pairs.broadcast_to((*a.codes.shape[:LEAD], pairs.shape[-1]))


def _in_place(a: Factor) -> View | None:
    """The factor as pairs where it is, if it has them."""
    view = a.codes.view
    *shape, depth = view.shape
    *strides, step = view.strides
    if view.dtype != I16 or a.zero is not None or a.offset or step != 1 or depth % 2:
        return None
    if any(stride % 2 for stride in strides):
        return None
    halved = [stride // 2 for stride in strides]
    return View(view.buffer, view.offset, I32, (*shape, depth // 2), (*halved, 1))


def _pairs_of_b(recorder: Recorder, b: Factor, sums: tuple[int, ...]) -> View:
    """The second factor, [batch0, batch1, *sums, columns] of int32.

    Args:
        sums: the axes of A's pairs.
    """
    *batches, columns = *b.codes.shape[:BATCHES], b.codes.shape[-1]
    inner = math.prod(b.codes.shape[BATCHES:-1])
    each = recorder.temporary(I16, (*batches, inner, columns))
    if each.size:
        of_sums = each.reshape(b.codes.shape)
        assert of_sums is not None
        widened(recorder, b, of_sums)
    pairs = recorder.temporary(I32, (*batches, *sums, columns))
    whole, row, matrix = inner // 2, 2 * columns, 2 * math.prod(sums) * columns
    shape, outer = (*batches, whole, 2, columns), (inner * columns * batches[1],)
    record_copy(
        recorder,
        View(each.buffer, 0, I16, shape, (*outer, inner * columns, row, columns, 1)),
        View(pairs.buffer, 0, I16, shape, (matrix * batches[1], matrix, row, 1, 2)),
        label="Pairs",
    )
    if inner % 2:
        shape, strides = (*batches, columns), (matrix * batches[1], matrix, 2)
        place = 2 * whole * row
        last = each.slice((0, 0, inner - 1, 0), (*batches, 1, columns)).reshape(shape)
        assert last is not None
        target = View(pairs.buffer, place, I16, shape, strides)
        record_copy(recorder, last, target, label="Pairs")
        record_zeros(recorder, View(pairs.buffer, place + 2, I16, shape, strides))
    return pairs
