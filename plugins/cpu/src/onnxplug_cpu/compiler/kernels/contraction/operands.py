"""What a contraction multiplies, its axes folded as far as strides allow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.words import Word


class Contraction(NamedTuple):
    """A sum over taps of products of matrices, for each line of each matrix of a batch.

    Attributes:
        a: [batch0, batch1, lines, rows, depth], the first tap.
        taps: the sizes of the axes of taps.
        offsets: bytes from the first tap to each.
        b: [batch0, batch1, K, columns], or with axes of taps that could not be folded
            before the depth; K is the depth of all taps.
        out: [batch0, batch1, lines, rows, columns]; its strides do not matter if there
            is an epilogue.
        epilogue: of the same axes, or ``None``.
    """

    a: View
    taps: tuple[int, ...]
    offsets: tuple[int, ...]
    b: View
    out: View
    epilogue: Epilogue | None

    @property
    def gathers(self) -> bool:
        """Whether A has to be copied with all its taps, as their elements are apart."""
        a = self.a
        apart = a.shape[4] > 1 and a.strides[4] != 1
        return apart and (len(self.offsets) > 1 or a.shape[2] > 1)

    @property
    def window_bytes(self) -> int:
        """Bytes of a matrix of A, about; those that several taps have counted once."""
        a, taps = self.a, len(self.offsets)
        across = sum(
            (size - 1) * abs(stride)
            for size, stride in zip(a.shape[2:], a.strides[2:], strict=True)
        )
        apart = max(self.offsets) - min(self.offsets)
        once = (across + 1) * a.dtype.itemsize + apart
        most = taps * math.prod(a.shape[2:]) * a.dtype.itemsize
        return smaller(larger(once, 0), most)

    @property
    def nbytes(self) -> int:
        """Bytes that are read and written at least."""
        a = self.a
        repeated = zip(a.shape[:2], a.strides[:2], strict=True)
        matrices = math.prod(size for size, stride in repeated if stride)
        return matrices * self.window_bytes + _distinct(self.b) + self.out.nbytes

    def epilogue_words(self) -> dict[str, Word]:
        """Those of a kernel that calls the epilogue; 0 if there is none."""
        code, words = epilogue_call(self.epilogue) if self.epilogue else (0, 0)
        return {"epilogue": code, "epilogue_words": words}


def fold(
    a: View,
    b: View,
    out: View,
    epilogue: Epilogue | None,
    *,
    lengthens: bool = True,
) -> Contraction:
    """The contraction with the fewest axes.

    Args:
        a: [batch0, batch1, lines, rows, *taps, depth], as broadcast as *out*.
        b: [batch0, batch1, *taps, depth, columns], likewise.
        out: [batch0, batch1, lines, rows, columns].
        epilogue: of the shape of *out*, or ``None``.
        lengthens: whether taps that lie next to each other become one longer tap.
    """
    columns = out.shape[4]
    for lead in _leads(out.shape, repeats=b.strides[0] == 0):
        folded = _with_lead(lead, a, b, out, epilogue)
        if folded is not None:
            a, b, out, epilogue = folded
            break
    if len(a.shape) == _PLAIN and 0 not in a.shape:
        return Contraction(a, (), (0,), b, out, epilogue)
    if lengthens:
        a = _fold_depth(a)
    taps, depth = a.shape[4:-1], a.shape[-1]
    offsets = tap_offsets(a, range(4, len(a.shape) - 1))
    inner = math.prod(b.shape[2:-1])
    if inner == 0:  # which sums to 0, however many taps
        taps, offsets, depth = (), (0,), 0
    strides = (*a.strides[:4], a.strides[-1])
    a = View(a.buffer, a.offset, a.dtype, (*a.shape[:4], depth), strides)
    flat = b.reshape((*b.shape[:2], inner, columns)) if len(b.shape) > 4 else b
    return Contraction(a, taps, offsets, b if flat is None else flat, out, epilogue)


def _leads(shape: tuple[int, ...], *, repeats: bool) -> list[tuple[int, ...]]:
    """The axes before those of K and columns, folded in all ways, the best first.

    Args:
        shape: of the result.
        repeats: whether B is the same for all indices of the first axis.
    """
    batch0, batch1, lines, rows = shape[:4]
    leads: list[tuple[int, ...]] = []
    if batch1 == 1 and repeats and batch0 > 1:
        leads.append((1, 1, 1, batch0 * lines * rows))
    if lines > 1:
        leads.append((batch0, batch1, 1, lines * rows))
        if batch1 == 1 and repeats and batch0 > 1:
            leads.append((1, 1, batch0 * lines, rows))
    return leads


def _with_lead(
    lead: tuple[int, ...], a: View, b: View, out: View, epilogue: Epilogue | None
) -> tuple[View, View, View, Epilogue | None] | None:
    """The four with other axes before those of K and columns, if strides allow it."""
    shape = (*lead, out.shape[4])
    left = a.reshape((*lead, *a.shape[4:]))
    after = epilogue.reshape(shape) if epilogue else None
    # nothing is written where an epilogue takes the result
    target = out.reshape(shape)
    if epilogue:
        target = View(out.buffer, out.offset, out.dtype, shape, (0,) * len(shape))
    if left is None or target is None or (epilogue and after is None):
        return None
    right = View(b.buffer, b.offset, b.dtype, (*lead[:2], *b.shape[2:]), b.strides)
    return left, right, target, after


def _fold_depth(a: View) -> View:
    """A with as many of the last taps in its depth as lie next to each other there."""
    while len(a.shape) > _PLAIN:
        (taps, depth), (apart, step) = a.shape[-2:], a.strides[-2:]
        if taps > 1 and apart != (depth * step if depth > 1 else 1):
            break
        shape = (*a.shape[:-2], taps * depth)
        strides = (*a.strides[:-2], step if depth > 1 else apart)
        a = View(a.buffer, a.offset, a.dtype, shape, strides)
    return a


_PLAIN = 5  # axes without taps


def tap_offsets(view: View, axes: Iterable[int]) -> tuple[int, ...]:
    """Bytes from element 0 to each element along *axes*, in C order."""
    each = [
        [index * view.strides[axis] for index in range(view.shape[axis])]
        for axis in axes
    ]
    return tuple(sum(steps) * view.dtype.itemsize for steps in itertools.product(*each))


def once(view: View) -> View:
    """The view without repetitions over the batch axes."""
    shape = tuple(
        1 if stride == 0 else size
        for size, stride in zip(view.shape[:2], view.strides[:2], strict=True)
    )
    return View(
        view.buffer, view.offset, view.dtype, shape + view.shape[2:], view.strides
    )


def _distinct(view: View) -> int:
    """Bytes of the elements, each counted once."""
    return view.dtype.itemsize * math.prod(
        size for size, stride in zip(view.shape, view.strides, strict=True) if stride
    )
