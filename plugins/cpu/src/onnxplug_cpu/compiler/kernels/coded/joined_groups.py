"""Products of several matrices side by side as one, whose constant factor is zero where
rows and columns are of different ones.

What groups of few channels are convolved to has fewer columns than a tile, and takes as
long as a whole one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.factors import BATCHES, LEAD
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug_cpu.compiler.machine.isa import Isa

_GROUP: Final = 1
"""The axis of matrices that lie side by side."""


class Joined(NamedTuple):
    """A product of quads, with lines, whose matrices are several each.

    Attributes:
        joins: how many are one.
        a: [batch0, batch1, lines, rows, *taps, depth].
        b: of the shape of such a factor; its elements are not these.
        out: [batch0, batch1, lines, rows, columns].
        epilogue: of that shape.
    """

    joins: int
    a: View
    b: View
    out: View
    epilogue: Epilogue | None


def joined(
    isa: Isa, a: View, b: View, out: View, epilogue: Epilogue | None
) -> Joined | None:
    """The product with as many matrices in one as tiles have columns for; ``None`` if
    it has none that lie so.

    Args:
        a, out, epilogue: as :class:`Joined` has them.
        b: [batch0, batch1, *sums, columns], without repetitions.
    """
    groups, columns = out.shape[_GROUP], out.shape[-1]
    count = most_joined(isa, groups, columns)
    if count < 2 or b.shape[_GROUP] != groups:
        return None
    views = [*epilogue.operands, *epilogue.outputs] if epilogue else [out]
    found = [_side_by_side(each, count, LEAD) for each in views]
    left = _side_by_side(a, count, len(a.shape) - 1)
    whole = [view for view in found if view is not None]
    if left is None or len(whole) < len(views):
        return None
    shape = (*out.shape[:_GROUP], groups // count, *out.shape[BATCHES:-1])
    target = View(
        out.buffer, out.offset, out.dtype, (*shape, count * columns), _NOWHERE
    )
    after = None
    if epilogue:
        inputs = len(epilogue.operands)
        after = Epilogue(epilogue.chain, tuple(whole[:inputs]), tuple(whole[inputs:]))
    else:
        (target,) = whole
        if target.strides[-1] != 1:
            return None
    sums = (*b.shape[BATCHES:-2], count * b.shape[-2])
    sizes = (*left.shape[:BATCHES], *sums, count * columns)
    right = View(b.buffer, b.offset, b.dtype, sizes, (0,) * len(sizes))
    return Joined(count, left, right, target, after)


def most_joined(isa: Isa, groups: int, columns: int) -> int:
    """How many matrices of so many columns are one, at most: as many as there are
    columns in a tile, or, where each is multiplied by itself, in a vector."""
    room = (2 if isa.multiplies_byte_tiles else 1) * LANES // columns
    return max((n for n in range(1, room + 1) if not groups % n), default=1)


_NOWHERE: Final = (0,) * (LEAD + 1)
"""Strides of what is not written, as an epilogue takes it."""


def _side_by_side(view: View, count: int, axis: int) -> View | None:
    """The view with *count* groups along an axis, if they lie so."""
    shape, strides = list(view.shape), list(view.strides)
    size, step, apart = shape[axis], strides[axis], strides[_GROUP]
    if size == 1:
        step = apart
    if apart != size * step:
        return None
    shape[_GROUP], shape[axis] = shape[_GROUP] // count, count * size
    strides[_GROUP], strides[axis] = count * apart, step
    return View(view.buffer, view.offset, view.dtype, tuple(shape), tuple(strides))


def groups_of(shape: Sequence[int], count: int) -> list[tuple[list[int], list[int]]]:
    """Where the matrices begin that are the first of each, the second and so on, and
    how many there are of each axis of *shape*."""
    starts = ([0, n, *[0] * (len(shape) - BATCHES)] for n in range(count))
    sizes = [shape[0], shape[_GROUP] // count, *shape[BATCHES:]]
    return [(start, sizes) for start in starts]
