"""Forms of factors of integers: fewer axes, differences from zero points."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_cpu.compiler.commands.recording import Recorder

BATCHES: Final = 2
"""Axes of batches, before all others."""

LEAD: Final = 4
"""Axes before the sums of the first factor, if it has lines."""

I16, I32 = np.dtype(np.int16), np.dtype(np.int32)


def changed(factor: Factor, change: Callable[[View], View]) -> Factor:
    """The factor with another form of its arrays."""
    zero = None if factor.zero is None else Codes(change(factor.zero.view))
    return factor._replace(codes=Codes(change(factor.codes.view)), zero=zero)


def with_line(view: View) -> View:
    """A view without an axis of lines with one."""
    shape, strides = list(view.shape), list(view.strides)
    shape.insert(BATCHES, 1)
    strides.insert(BATCHES, 0)
    return View(view.buffer, view.offset, view.dtype, tuple(shape), tuple(strides))


def is_stretched(factor: Factor, axis: int) -> bool:
    """Whether all along an axis is one."""
    return all(not view.strides[axis] for view in factor.views)


def once(factor: Factor, axes: int = BATCHES) -> Factor:
    """The factor without repetitions over the first *axes* axes."""
    shape = tuple(
        1 if axis < axes and is_stretched(factor, axis) else size
        for axis, size in enumerate(factor.codes.shape)
    )
    return changed(factor, lambda view: first_of(view, shape))


def first_of(view: View, shape: tuple[int, ...]) -> View:
    """The first elements of a view, of that shape."""
    return view.slice([0] * len(shape), shape)


def is_constant(b: Factor) -> bool:
    """Whether B is the same in all runs, and what is needed to pack it is at hand."""
    zero = None if b.zero is None else b.zero.view
    at_hand = zero is None or (
        isinstance(zero.buffer, Constant)
        and zero.buffer.key is None
        and not any(zero.strides[BATCHES:-1])
    )
    return isinstance(b.codes.view.buffer, Constant) and at_hand


def described(b: Factor) -> str:
    """All but the codes of a constant factor, and their type."""
    zero, text = b.zero, f"{b.codes.view.dtype_name} from {b.offset}"
    if zero is None:
        return text
    assert isinstance(zero.view.buffer, Constant)
    content = hashlib.sha256(zero.view.buffer.array.tobytes()).hexdigest()
    view = zero.view
    return f"{text}, {view.dtype_name} {view.offset} {view.strides} {content}"


def widened(recorder: Recorder, factor: Factor, target: View | None = None) -> View:
    """The differences of codes from zero points, in int16.

    Args:
        target: where to write them; by default where no axis along which the factor is
            stretched takes memory.
    """
    whole = factor.codes.shape
    if target is None:
        shape = once(factor, len(whole)).codes.shape
        target = recorder.temporary(I16, shape)
    one = changed(factor, lambda view: first_of(view, target.shape))
    record_differences(recorder, one, target)
    return target.broadcast_to(whole)


def record_differences(recorder: Recorder, factor: Factor, target: View) -> None:
    """Write the differences of codes from zero points, as elements of *target*."""
    if not target.size:
        return
    chain = Formula.of(target)
    value = chain.read_wide(factor.codes.view)
    if factor.zero is not None:
        value = chain.step("Sub", value, chain.read_wide(factor.zero.view))
    if factor.offset:
        value = chain.step("Sub", value, chain.number(factor.offset))
    chain.record(recorder, value, target, "Widen codes")


def record_zeros(recorder: Recorder, target: View) -> None:
    """Write zeros to all of *target*, from no constant."""
    if target.size:
        chain = Formula.of(target)
        chain.record(recorder, chain.number(0), target, "Zeros")
