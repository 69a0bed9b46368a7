"""Products of integers of 8 bits, computed as pairs of 16 bits.

What is multiplied are differences from zero points, which take nine bits: no product
needs a correction, and no sum of two saturates.  The first factor is widened before a
product; a constant second one when it is packed.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_cpu.compiler.kernels.contraction import long_sums
from onnxplug_cpu.compiler.kernels.contraction.commands import (
    MOST_TAP_AXES,
    fewest_sums,
    sizes_of,
)
from onnxplug_cpu.compiler.kernels.contraction.fma import FmaProduct
from onnxplug_cpu.compiler.kernels.contraction.left_factor import left_factor
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.kernels.contraction.tile import PAIRS
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_compiler.ir.buffers import Address
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction

MOST_ROW_AXES: Final = 2
MOST_SUM_AXES: Final = MOST_TAP_AXES + 1

_BATCHES, _LEAD = 2, 4  # axes of batches, and of those before the sums of A
_I16, _I32 = np.dtype(np.int16), np.dtype(np.int32)


def record_integers(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product; all is as ``CodedProducts.record_coded`` takes it."""
    if len(out.shape) < _BATCHES + MOST_ROW_AXES + 1:
        a, out = _changed(a, _with_line), _with_line(out)
        epilogue = epilogue.with_line() if epilogue else None
    same = _repeated(a, b)
    parts = fewest_sums(a.codes.view, out)
    if not same and parts == 1:
        _record(recorder, a, b, out, epilogue, label)
        return

    def record(a: View, b: View, out: View) -> None:
        factors = Factor(Codes(a)), Factor(Codes(b))
        record_integers(recorder, *factors, out, None, label)

    given = (_widened(recorder, a), _widened(recorder, b), out, epilogue, label)
    if same:
        long_sums.record_repeated_sum(recorder, record, same, *given)
    else:
        long_sums.record_long_sum(recorder, record, parts, *given)


def _record(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    label = f"{label} {sizes_of(a.codes.view, out)}"
    left = _pairs_of_a(recorder, a)
    if _is_constant(b):
        contraction = fold(left, b.codes.view, out, epilogue)
        PairProduct(recorder, contraction, label, _once(b)).record()
        return
    right = _pairs_of_b(recorder, _once(b), left.shape[_LEAD:])
    right = right.broadcast_to((*out.shape[:_BATCHES], *right.shape[_BATCHES:]))
    PairProduct(recorder, fold(left, right, out, epilogue), label).record()


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

    def layout(self, b: View) -> str:
        """Of the packed B."""
        assert self.constant is not None
        return f"pairs of {_described(self.constant)} {super().layout(b)}"

    def record_pack(
        self, recorder: Recorder, b: View, target: Address, *, matrix: int
    ) -> None:
        """Record what packs B; a constant one is widened before."""
        if self.constant is not None:
            factor = self.constant._replace(codes=Codes(b))
            b = _pairs_of_b(recorder, factor, (self.inner,))
        super().record_pack(recorder, b, target, matrix=matrix)


# factors


def _changed(factor: Factor, change: Callable[[View], View]) -> Factor:
    """The factor with another form of its arrays."""
    zero = None if factor.zero is None else Codes(change(factor.zero.view))
    return factor._replace(codes=Codes(change(factor.codes.view)), zero=zero)


def _with_line(view: View) -> View:
    """A view without an axis of lines with one."""
    shape, strides = list(view.shape), list(view.strides)
    shape.insert(_BATCHES, 1)
    strides.insert(_BATCHES, 0)
    return View(view.buffer, view.offset, view.dtype, tuple(shape), tuple(strides))


def _is_stretched(factor: Factor, axis: int) -> bool:
    return all(not view.strides[axis] for view in factor.views)


def _repeated(a: Factor, b: Factor) -> tuple[int, ...]:
    """The axes of sums, numbered as those of *a*, along which both are stretched."""
    sizes = a.codes.shape
    return tuple(
        axis
        for axis in range(_LEAD, len(sizes))
        if sizes[axis] > 1
        and _is_stretched(a, axis)
        and _is_stretched(b, axis - _LEAD + _BATCHES)
    )


def _once(factor: Factor) -> Factor:
    """The factor without repetitions over the axes of batches."""
    shape = tuple(
        1 if axis < _BATCHES and _is_stretched(factor, axis) else size
        for axis, size in enumerate(factor.codes.shape)
    )
    return _changed(factor, lambda view: _cut(view, shape))


def _cut(view: View, shape: tuple[int, ...]) -> View:
    return view.slice([0] * len(shape), shape)


def _is_constant(b: Factor) -> bool:
    """Whether B is the same in all runs, and what is needed to pack it is at hand."""
    zero = None if b.zero is None else b.zero.view.buffer
    at_hand = zero is None or (isinstance(zero, Constant) and zero.key is None)
    return isinstance(b.codes.view.buffer, Constant) and at_hand


def _described(b: Factor) -> str:
    """All but the codes of a constant factor, and their type."""
    zero, text = b.zero, f"{b.codes.view.dtype_name} from {b.offset}"
    if zero is None:
        return text
    assert isinstance(zero.view.buffer, Constant)
    content = hashlib.sha256(zero.view.buffer.array.tobytes()).hexdigest()
    view = zero.view
    return f"{text}, {view.dtype_name} {view.offset} {view.strides} {content}"


def _widened(recorder: Recorder, factor: Factor, target: View | None = None) -> View:
    """The differences of codes from zero points, in int16.

    Args:
        target: where to write them; by default where no axis along which the factor is
            stretched takes memory.
    """
    whole = factor.codes.shape
    if target is None:
        shape = tuple(
            1 if _is_stretched(factor, axis) else size
            for axis, size in enumerate(whole)
        )
        target = recorder.temporary(_I16, shape)
    chain, once = Formula("i16"), _changed(factor, lambda v: _cut(v, target.shape))
    value = chain.read_wide(once.codes.view)
    if once.zero is not None:
        value = chain.step("Sub", value, chain.read_wide(once.zero.view))
    if once.offset:
        value = chain.step("Sub", value, chain.number(once.offset))
    chain.record(recorder, value, target, "Widen codes")
    return target.broadcast_to(whole)


# pairs


def _pairs_of_a(recorder: Recorder, a: Factor) -> View:
    """The first factor as int32 of two differences each that are next to each other
    along the sums, which are one axis if it is copied."""
    in_place = _in_place(a)
    if in_place is not None:
        return in_place
    shape = tuple(
        1 if _is_stretched(a, axis) else size
        for axis, size in enumerate(a.codes.shape[:_LEAD])
    )
    sums = a.codes.shape[_LEAD:]
    inner = math.prod(sums)
    pairs = left_factor(recorder, _I32, (*shape, -(-inner // 2)))
    strides = [2 * stride for stride in pairs.strides[:_LEAD]]
    halves = View(pairs.buffer, 0, _I16, (*shape, *sums), (*strides, *c_strides(sums)))
    if halves.size:
        _widened(recorder, _changed(a, lambda v: _cut(v, halves.shape)), halves)
    if inner % 2:
        last = View(pairs.buffer, 2 * inner, _I16, shape, tuple(strides))
        _record_zeros(recorder, last)
    return pairs.broadcast_to((*a.codes.shape[:_LEAD], pairs.shape[-1]))


def _in_place(a: Factor) -> View | None:
    """The factor as pairs where it is, if it has them."""
    view = a.codes.view
    *shape, depth = view.shape
    *strides, step = view.strides
    if view.dtype != _I16 or a.zero is not None or a.offset or step != 1 or depth % 2:
        return None
    if any(stride % 2 for stride in strides):
        return None
    halved = [stride // 2 for stride in strides]
    return View(view.buffer, view.offset, _I32, (*shape, depth // 2), (*halved, 1))


def _pairs_of_b(recorder: Recorder, b: Factor, sums: tuple[int, ...]) -> View:
    """The second factor, [batch0, batch1, *sums, columns] of int32.

    Args:
        sums: the axes of A's pairs.
    """
    *batches, columns = *b.codes.shape[:_BATCHES], b.codes.shape[-1]
    inner = math.prod(b.codes.shape[_BATCHES:-1])
    each = recorder.temporary(_I16, b.codes.shape)
    if each.size:
        _widened(recorder, b, each)
    rows = each.reshape((*batches, inner, columns))
    pairs = recorder.temporary(_I32, (*batches, *sums, columns))
    whole = inner // 2
    matrix = 2 * math.prod(sums) * columns
    halves = View(
        pairs.buffer,
        0,
        _I16,
        (*batches, whole, 2, columns),
        (matrix * batches[1], matrix, 2 * columns, 1, 2),
    )
    assert rows is not None
    first = rows.slice((0, 0, 0, 0), (*batches, 2 * whole, columns))
    together = first.reshape(halves.shape)
    if together is None:  # of an odd number of rows
        strides = (*rows.strides[:2], 2 * columns, columns, 1)
        together = View(rows.buffer, rows.offset, _I16, halves.shape, strides)
    record_copy(recorder, together, halves, label="Pairs")
    if inner % 2:
        shape, strides = (*batches, columns), (matrix * batches[1], matrix, 2)
        place = 4 * whole * columns
        last = View(pairs.buffer, place, _I16, shape, strides)
        behind = View(pairs.buffer, place + 2, _I16, shape, strides)
        row = rows.slice((0, 0, inner - 1, 0), (*batches, 1, columns))
        flat = row.reshape(shape)
        assert flat is not None
        record_copy(recorder, flat, last, label="Pairs")
        _record_zeros(recorder, behind)
    return pairs


def _record_zeros(recorder: Recorder, target: View) -> None:
    if target.size:
        chain = Formula("i16")
        chain.record(recorder, chain.number(0), target, "Zeros")
