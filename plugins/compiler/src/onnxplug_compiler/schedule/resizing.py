"""Resizing, of elements that the target resamples and of all others.

Elements that are only repeated, or left out evenly, are copied.

Of the others, along each axis in turn the elements that are read are gathered, once for
each tap, and summed as float64, as the array kernels do; so what lies between two
integers is rounded to the same one.  Nearest elements of one or two bytes are resampled
as float32, which has all their values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.elements import INTEGERS, element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.images import ResampledAxis
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy

if TYPE_CHECKING:
    from onnxplug_kernels.resize import ResizedAxis

_TOGETHER: Final = 4
"""Taps that one chain sums."""

_MOST_IN_TURN: Final = 4
"""Neighbours along the last axis of which one is taken, or that one becomes, up to
which elements are copied."""

_LONG_ROW: Final = 32
"""Bytes of what is repeated as a whole from which it is copied."""

_WIDE: Final = np.dtype(np.float64)
_SINGLE: Final = np.dtype(np.float32)
_EXACT: Final = frozenset({"i8", "u8", "i16", "u16", "i1"})
"""What float32 has all values of."""


def record_resampled(
    recorder: Recorder[Target],
    x: View,
    out: View,
    axes: Sequence[ResizedAxis],
    *,
    label: str = "Resize",
) -> None:
    """Write *x* to *out*, resized along *axes* by the target."""
    if _record_copied(recorder, x, out, axes, label):
        return
    tables = []
    wide = x.dtype if x.dtype == _WIDE else _SINGLE
    for axis in axes:
        weights = [weight for _, weight in axis.taps if weight is not None]
        tables.append(
            ResampledAxis(
                axis.axis,
                np.stack([index for index, _ in axis.taps]),
                np.stack(weights).astype(wide) if weights else None,
            )
        )
    recorder.target.resampling.record_resample(recorder, x, out, tables, label=label)


def record_resized(
    recorder: Recorder[Target],
    x: View,
    out: View,
    axes: Sequence[ResizedAxis],
    *,
    label: str = "Resize",
) -> None:
    """Write *x* to *out*, of the same dtype, resized along *axes*, one at least."""
    if _record_copied(recorder, x, out, axes, label):
        return
    is_nearest = axes[0].taps[0][1] is None
    chooses = any(axis.axis == len(x.shape) - 1 for axis in axes)
    if is_nearest and chooses and _is_resampled(recorder.target, _element(x), label):
        _record_nearest(recorder, x, out, axes, label)
        return
    for axis in axes:
        shape = list(x.shape)
        shape[axis.axis] = out.shape[axis.axis]
        is_last = axis is axes[-1]
        if is_nearest:
            target = out if is_last else recorder.temporary(x.dtype, shape)
            _gather(recorder, x, axis.taps[0][0], target, axis.axis, label)
        else:
            target = out if is_last else recorder.temporary(_WIDE, shape)
            _sum(recorder, x, target, axis, label)
        x = target


def _is_resampled(target: Target, element: str, label: str) -> bool:
    """Whether nearest elements are resampled as float32."""
    return (
        element in _EXACT
        and "f32" in target.elements(label)
        and target.supports_step("Cast", (element,), "f32", {})
        and target.supports_step("Cast", ("f32",), element, {})
    )


def _record_copied(
    recorder: Recorder[Target],
    x: View,
    out: View,
    axes: Sequence[ResizedAxis],
    label: str,
) -> bool:
    """Write *x* to *out* as a copy of views, if they are nearest elements that are
    repeated or left out evenly, and that takes less than to resample; whether it is."""
    if any(weight is not None for axis in axes for _, weight in axis.taps):
        return False
    found = {axis.axis: _evenly(axis.taps[0][0]) for axis in axes}
    last = max(found)
    row = math.prod(x.shape[last + 1 :]) * x.dtype.itemsize
    source, wide, narrow = x, list[int](), list[int]()
    for axis, size in enumerate(out.shape):
        if axis not in found:
            wide.append(size)
            narrow.append(size)
            continue
        even = found[axis]
        if even is None:
            return False
        first, step, repeats = even
        is_short = axis == last and row < _LONG_ROW
        if is_short and (row > x.dtype.itemsize or max(step, repeats) > _MOST_IN_TURN):
            return False
        source = _every(source, axis, first, size // repeats, step)
        wide += (size // repeats, repeats)
        narrow += (size // repeats, 1)
    apart, target = source.reshape(narrow), out.reshape(wide)
    if apart is None or target is None:
        return False
    record_copy(recorder, apart.broadcast_to(wide), target, label=label)
    return True


def _evenly(places: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """The first of *places*, the step to the next, and how often each is repeated, if
    these tell all."""
    if not places.size:
        return None
    changes = np.flatnonzero(np.diff(places))
    repeats = int(changes[0]) + 1 if changes.size else places.size
    first = int(places[0])
    step = int(places[repeats]) - first if changes.size else 1
    count = places.size // repeats
    wanted = first + step * np.arange(count).repeat(repeats)
    if step < 1 or wanted.size != places.size or (wanted != places).any():
        return None
    return first, step, repeats


def _every(x: View, axis: int, first: int, count: int, step: int) -> View:
    """Of an axis *count* places from *first* on, *step* apart."""
    starts, sizes, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], sizes[axis], steps[axis] = first, count, step
    return x.slice(starts, sizes, steps)


def _record_nearest(
    recorder: Recorder[Target],
    x: View,
    out: View,
    axes: Sequence[ResizedAxis],
    label: str,
) -> None:
    """The nearest elements as float32; whole rows that are left out are so before."""
    last = len(x.shape) - 1
    rest = [a for a in axes if a.axis == last or out.shape[a.axis] >= x.shape[a.axis]]
    for axis in axes:
        if any(axis is other for other in rest):
            continue
        shape = list(x.shape)
        shape[axis.axis] = out.shape[axis.axis]
        target = recorder.temporary(x.dtype, shape)
        _gather(recorder, x, axis.taps[0][0], target, axis.axis, label)
        x = target
    single = recorder.temporary(_SINGLE, x.shape)
    resized = recorder.temporary(_SINGLE, out.shape)
    _convert(recorder, x, single, label)
    record_resampled(recorder, single, resized, rest, label=label)
    _convert(recorder, resized, out, label)


def _convert(recorder: Recorder[Target], x: View, out: View, label: str) -> None:
    formula = Formula.of(x)
    value = formula.step("Cast", formula.read(x), element=_element(out))
    formula.record(recorder, value, out, label)


def _gather(
    recorder: Recorder[Target],
    x: View,
    places: np.ndarray[Any, Any],
    target: View,
    axis: int,
    label: str,
) -> None:
    indices = recorder.constant(places.astype(np.int64))
    indexing = recorder.target.indexing
    indexing.record_gather(recorder, x, indices, target, axis, label=label)


def _picked(
    recorder: Recorder[Target],
    x: View,
    places: np.ndarray[Any, Any],
    axis: int,
    label: str,
) -> View:
    """*x* at *places* along an axis."""
    first, step, repeats = _evenly(places) or (0, 0, 0)
    if repeats == 1 and step <= _MOST_IN_TURN:
        return _every(x, axis, first, places.size, step)
    sizes = list(x.shape)
    sizes[axis] = places.size
    picked = recorder.temporary(x.dtype, sizes)
    _gather(recorder, x, places, picked, axis, label)
    return picked


def _sum(
    recorder: Recorder[Target], x: View, target: View, axis: ResizedAxis, label: str
) -> None:
    """Sum the taps of an axis, some at a time; the last ones give the target."""
    total: View | None = None
    column = (-1, *(1,) * (len(target.shape) - 1 - axis.axis))
    for start in range(0, len(axis.taps), _TOGETHER):
        taps = axis.taps[start : start + _TOGETHER]
        is_last = start + _TOGETHER >= len(axis.taps)
        pixels, weights = [], []
        for places, weight in taps:
            assert weight is not None
            pixels.append(_picked(recorder, x, places, axis.axis, label))
            by = np.asarray(weight, _WIDE).reshape(column)
            weights.append(recorder.constant(by))
        element = _element(target) if is_last else "f64"
        result = target if is_last else recorder.temporary(_WIDE, target.shape)
        _record_sum(recorder, total, pixels, weights, element, result, label)
        total = result


def _record_sum(
    recorder: Recorder[Target],
    total: View | None,
    pixels: Sequence[View],
    weights: Sequence[View],
    element: str,
    result: View,
    label: str,
) -> None:
    """*total*, if it is there, and the weighted *pixels*, as *element*."""
    builder = ChainBuilder()
    value = None if total is None else builder.input("f64")
    for pixel in pixels:
        x = builder.step("Cast", [builder.input(_element(pixel))], "f64")
        product = builder.step("Mul", [x, builder.input("f64")], "f64")
        if value is None:
            value = product
        else:
            value = builder.step("Add", [value, product], "f64")
    assert value is not None
    if element in INTEGERS:
        limits = np.iinfo(result.dtype)
        ends = [builder.constant("f64", float(n)) for n in (limits.min, limits.max)]
        value = builder.step("Round", [value], "f64")
        value = builder.step("Clip", [value, *ends], "f64")
    value = builder.step("Cast", [value], element)
    views = [*([] if total is None else [total])]
    views += itertools.chain.from_iterable(zip(pixels, weights, strict=True))
    elementwise = recorder.target.elementwise
    chain = builder.build([value])
    elementwise.record_chain(recorder, chain, views, [result], label=label)


def _element(view: View) -> str:
    element = element_of(view.dtype)
    assert element is not None
    return element
