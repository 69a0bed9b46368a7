"""Resizing of elements that are not interpolated where they lie.

Along each axis in turn the elements that are read are gathered, once for each tap, and
summed as float64, as the array kernels do; so what lies between two integers is rounded
to the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.elements import INTEGERS, element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View

if TYPE_CHECKING:
    from onnxplug_kernels.resize import ResizedAxis

_TOGETHER: Final = 4
"""Taps that one chain sums."""

_WIDE: Final = np.dtype(np.float64)


def record_resized(
    recorder: Recorder[Target],
    x: View,
    out: View,
    axes: Sequence[ResizedAxis],
    *,
    label: str = "Resize",
) -> None:
    """Write *x* to *out*, of the same dtype, resized along *axes*, one at least."""
    for axis in axes:
        shape = list(x.shape)
        shape[axis.axis] = out.shape[axis.axis]
        is_last = axis is axes[-1]
        if axis.taps[0][1] is None:
            target = out if is_last else recorder.temporary(x.dtype, shape)
            _gather(recorder, x, axis.taps[0][0], target, axis.axis, label)
        else:
            target = out if is_last else recorder.temporary(_WIDE, shape)
            _sum(recorder, x, target, axis, label)
        x = target


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
