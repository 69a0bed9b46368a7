"""Reductions over axes, put together from commands.

What is only repeated is reduced once: along an axis that is stretched all elements are
one, of which the result follows.  And a reduction that one chunk would be too long for
is that of pieces, and then of their results, whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from onnxplug_compiler.ir.elements import ELEMENTS
from onnxplug_compiler.ir.families import REDUCTIONS
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.kernels.reduction.cumulative import record_cumulative
from onnxplug_cpu.compiler.kernels.reduction.generator import MOMENTS
from onnxplug_cpu.compiler.kernels.reduction.single import Plan, record_single
from onnxplug_cpu.compiler.kernels.rows import element_of

__all__ = ["record_cumulative", "record_moments", "record_reduce"]

_FLOATS_ONLY = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_EXTREMES = ("ReduceMax", "ReduceMin")
_BYTES: Final = MappingProxyType({"i8": (-128, 127), "u8": (0, 255), "i1": (0, 1)})

_OF_PIECES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "ReduceL1": ("ReduceL1", "ReduceSum"),
        "ReduceL2": ("ReduceSumSquare", "ReduceSum"),
        "ReduceLogSum": ("ReduceSum", "ReduceLogSum"),
        "ReduceMean": ("ReduceSum", "ReduceSum"),
        "ReduceSumSquare": ("ReduceSumSquare", "ReduceSum"),
    }
)
"""How pieces are reduced, and then their results, where that is not the same."""


def record_reduce(
    recorder: Recorder, kind: str, x: View, out: View, axes: tuple[int, ...]
) -> None:
    """See ``families.Reductions.record_reduce``.

    Of f32, f64, and integers of 32 and 64 bits; extremes of bytes and bool, too.  What
    integers are not computed in they are converted to, and the result back.
    """
    element = ELEMENTS.get(x.dtype_name, x.dtype_name)
    computed = _computed_in(kind, element)
    if computed is None:
        raise ValueError(f"{kind} of {element} has no kernel")
    if not out.size:
        return
    label = f"{kind} {'×'.join(map(str, x.shape))}"
    out = _keeping(out, x, axes)
    once, shape = _once(x, axes)
    if computed != element:
        once = _converted(recorder, once, computed)
    target = out
    if shape != out.shape or computed != element:
        target = recorder.temporary(once.dtype, shape)
    repeats = math.prod(x.shape[a] // max(once.shape[a], 1) for a in axes)
    if repeats > 1:
        _record_repeated(recorder, kind, once, target, axes, repeats, label)
    else:
        _record(recorder, kind, once, target, axes, label)
    if computed != element:
        target = _converted(recorder, target, element)
    if target is not out:
        from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

        record_copy(recorder, target.broadcast_to(out.shape), out, label=kind)


def _computed_in(kind: str, element: str) -> str | None:
    """The elements to reduce by *kind*, so that nothing overflows that need not."""
    if kind not in REDUCTIONS:
        return None
    if element in _BYTES:
        return "i32" if kind in _EXTREMES else None
    if element in ("i32", "i64", "u32", "u64"):
        if kind in _FLOATS_ONLY:
            return "f64"
        return "i64" if kind == "ReduceMean" and element != "u64" else element
    return element if element in ("f32", "f64") else None


def _converted(recorder: Recorder, x: View, element: str) -> View:
    """A copy of *x* of other elements."""
    (dtype,) = (name for name, found in ELEMENTS.items() if found == element)
    copy = recorder.temporary(np.dtype(dtype), x.shape)
    formula = Formula.of(x)
    value = formula.read(x)
    if element in _BYTES:  # an extreme of nothing is that of their range
        low, high = _BYTES[element]
        limits = formula.number(low), formula.number(high)
        value = formula.step("Clip", value, *limits)
    value = formula.step("Cast", value, element=element)
    formula.record(recorder, value, copy, "Cast")
    return copy


def record_moments(
    recorder: Recorder, x: View, axes: tuple[int, ...], *, label: str = ""
) -> tuple[View, View]:
    """See ``families.Reductions.record_moments``; of f32.

    What is returned is repeated where *x* is.
    """
    if x.dtype_name != "float32" or not axes:
        raise ValueError(f"moments of {x.dtype} over {axes}; expected float32, axes")
    label = label or f"{MOMENTS} {'×'.join(map(str, x.shape))}"
    once, shape = _once(x, axes)
    both = recorder.temporary(x.dtype, (2, *shape))
    mean, variance = both.place(0), both.place(1)
    _record_moments(recorder, once, mean, variance, axes, label)
    kept = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return mean.broadcast_to(kept), variance.broadcast_to(kept)


def _keeping(out: View, x: View, axes: Sequence[int]) -> View:
    """*out* with an axis of size 1 for each that is reduced."""
    if len(out.shape) == len(x.shape):
        return out
    shape, strides = list(out.shape), list(out.strides)
    for axis in sorted(axes):
        shape.insert(axis, 1)
        strides.insert(axis, 0)
    return View(out.buffer, out.offset, out.dtype, tuple(shape), tuple(strides))


# what is repeated


def _once(x: View, axes: Sequence[int]) -> tuple[View, tuple[int, ...]]:
    """*x* with sizes of 1 where it is stretched, and the shape of its reduction.

    Where all that is reduced is stretched, kept axes stay as they are: there is
    nothing to compute along them but the result.
    """
    stretched = {
        axis
        for axis, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True))
        if stride == 0 and size > 1
    }
    if 0 in x.shape:
        stretched = set()
    if all(x.shape[axis] == 1 or axis in stretched for axis in axes):
        stretched &= set(axes)
    once = x
    if stretched:
        sizes = [1 if axis in stretched else n for axis, n in enumerate(x.shape)]
        once = x.slice([0] * len(sizes), sizes)
    return once, tuple(1 if a in axes else size for a, size in enumerate(once.shape))


def _record_repeated(
    recorder: Recorder,
    kind: str,
    x: View,
    out: View,
    axes: tuple[int, ...],
    repeats: int,
    label: str,
) -> None:
    """Reduce *x* as if each element were there *repeats* times."""
    if kind == "ReduceProd":
        product = recorder.temporary(out.dtype, out.shape)
        _record(recorder, kind, x, product, axes, label)
        _record_power(recorder, product, repeats, out)
        return
    folded = "ReduceSum" if kind == "ReduceLogSum" else kind
    _record(recorder, folded, x, out, axes, label)
    if kind in ("ReduceMax", "ReduceMin", "ReduceMean"):
        return
    formula = Formula(element_of(out))
    value = formula.read(out)
    if kind == "ReduceLogSumExp":
        value = formula.step(
            "Add", value, formula.read(_scalar(recorder, out, math.log(repeats)))
        )
    elif kind == "ReduceL2":
        value = formula.step(
            "Mul", value, formula.read(_scalar(recorder, out, math.sqrt(repeats)))
        )
    else:
        value = formula.step(
            "Mul", value, formula.read(_scalar(recorder, out, repeats))
        )
    if kind == "ReduceLogSum":
        value = formula.step("Log", value)
    formula.record(recorder, value, out, kind)


def _record_power(recorder: Recorder, x: View, exponent: int, out: View) -> None:
    """``x ** exponent`` for an exponent of 2 at least, by squares; integers wrap."""
    power = x
    for place in reversed(range(exponent.bit_length() - 1)):
        formula = Formula(element_of(x))
        root = formula.read(power)
        value = formula.step("Mul", root, root)
        if exponent >> place & 1:
            value = formula.step("Mul", value, formula.read(x))
        formula.record(recorder, value, out, "ReduceProd")
        power = out


# what is long


def _record(
    recorder: Recorder,
    kind: str,
    x: View,
    out: View,
    axes: tuple[int, ...],
    label: str,
) -> None:
    """Reduce *x* whatever its size; *out* has all axes."""
    plan = Plan.of(x, out, axes)
    pieces = _pieces(x, axes, plan.seconds(kind))
    if not pieces:
        record_single(recorder, plan, kind, label)
        return
    of_pieces, of_results = _OF_PIECES.get(kind, (kind, kind))
    count = sum(piece.shape[0] for piece in pieces)
    results = recorder.temporary(out.dtype, (count, *out.shape))
    within = tuple(axis + 1 for axis in axes)
    first = 0
    for piece in pieces:
        place = results.rows(first, piece.shape[0])
        _record(recorder, of_pieces, piece, place, within, label)
        first += piece.shape[0]
    _record(recorder, of_results, results, _keeping(out, results, (0,)), (0,), label)
    if kind not in ("ReduceMean", "ReduceL2"):
        return
    formula = Formula(element_of(out))
    value = formula.read(out)
    if kind == "ReduceL2":
        value = formula.step("Sqrt", value)
    else:
        value = formula.step(
            "Div", value, formula.read(_scalar(recorder, out, plan.elements))
        )
    formula.record(recorder, value, out, kind)


def _record_moments(
    recorder: Recorder,
    x: View,
    mean: View,
    variance: View,
    axes: tuple[int, ...],
    label: str,
) -> None:
    """The moments of *x*, whatever its size, to views of which both have all axes."""
    if not mean.size:
        return
    plan = Plan.of(x, mean, axes)
    pieces = _pieces(x, axes, 2 * plan.seconds(MOMENTS))
    if not pieces:
        record_single(recorder, plan, MOMENTS, label, variance.offset - mean.offset)
        return
    count = sum(piece.shape[0] for piece in pieces)
    both = recorder.temporary(x.dtype, (2, count, *mean.shape))
    means, variances = both.place(0), both.place(1)
    within = tuple(axis + 1 for axis in axes)
    weights: list[float] = []
    for piece in pieces:
        places = [v.rows(len(weights), piece.shape[0]) for v in (means, variances)]
        _record_moments(recorder, piece, places[0], places[1], within, label)
        share = math.prod(piece.shape[axis] for axis in within) / plan.elements
        weights += [share] * piece.shape[0]
    weight = recorder.constant(np.array(weights, np.float32))
    by = weight.reshape((count, *(1 for _ in mean.shape)))
    assert by is not None
    # a piece is as an element that varies by itself, too
    weighted = recorder.temporary(x.dtype, means.shape)
    for results, out in ((means, mean), (variances, variance)):
        formula = Formula("f32")
        value = formula.read(results)
        if out is variance:
            apart = formula.step("Sub", formula.read(means), formula.read(mean))
            value = formula.step("Add", value, formula.step("Mul", apart, apart))
        value = formula.step("Mul", value, formula.read(by))
        formula.record(recorder, value, weighted, label)
        whole = _keeping(out, weighted, (0,))
        _record(recorder, "ReduceSum", weighted, whole, (0,), label)


def _pieces(x: View, axes: Sequence[int], seconds: float) -> list[View]:
    """*x* cut along the longest of *axes*; none if all of it takes no long time.

    Args:
        seconds: that it takes one thread to reduce the elements of one result.

    Returns:
        As :meth:`~.views.View.cut`.
    """
    longest = max(axes, key=lambda axis: x.shape[axis], default=0)
    # of two elements at least, so that there are fewer results than elements
    count = min(fewest_chunks(seconds / 2), x.shape[longest] // 2) if axes else 1
    if count < 2:
        return []
    return x.cut(longest, -(-x.shape[longest] // count))


def _scalar(recorder: Recorder, x: View, value: float) -> View:
    """A constant of x's dtype that is no part of code; integers wrap."""
    if x.dtype.kind in "iu":
        least = int(np.iinfo(x.dtype).min)
        value = (int(value) - least) % (1 << 8 * x.dtype.itemsize) + least
    return recorder.constant(np.array(value, x.dtype))
