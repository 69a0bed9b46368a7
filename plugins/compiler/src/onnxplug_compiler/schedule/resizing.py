"""Resizing, of elements that the target resamples and of all others.

Of the others, along each axis in turn the elements that are read are gathered, once for
each tap, and summed as float64, as the array kernels do; so what lies between two
integers is rounded to the same one.  Nearest elements of one or two bytes are resampled
as float32, which has all their values.
"""

from __future__ import annotations

import itertools
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

if TYPE_CHECKING:
    from onnxplug_kernels.resize import ResizedAxis

_TOGETHER: Final = 4
"""Taps that one chain sums."""

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
            picked = recorder.temporary(x.dtype, target.shape)
            _gather(recorder, x, places, picked, axis.axis, label)
            pixels.append(picked)
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
