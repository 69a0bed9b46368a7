"""Reductions over axes, and the positions of extremes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug_kernels.arrays import (
    in_computing_dtype,
    is_stretched,
    numbers,
    unstretched,
)
from onnxplug_kernels.registry import operator

# ``reduction(xp, x, axis, keepdims, repeats)``, where axis is as in numpy, ``None`` for
# all, and each element stands for as many equal ones as *repeats* says
Reduction: TypeAlias = Callable[..., Any]


def _sum(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    total = xp.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return total if repeats == 1 else total * _number(xp, repeats, x.dtype)


def _product(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    product = xp.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    power = product
    for bit in f"{repeats:b}"[1:]:
        power = power * power * product if bit == "1" else power * power
    return power


def _number(xp: Any, number: int, dtype: Any) -> Any:
    """An integer as an array of *dtype*, in which integers wrap."""
    if xp.kind(dtype) in "iu":
        least, most = map(int, xp.limits(dtype))
        number = (number - least) % (most - least + 1) + least
    return xp.asarray(number, dtype=dtype)


def _mean(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    total = xp.sum(x, axis=axis, keepdims=keepdims)
    # ONNX leaves the mean of nothing open; ONNX Runtime makes it zero, and PyTorch's
    # exporter counts on that for empty embedding bags
    count = max(xp.size(x) // max(xp.size(total), 1), 1)
    if xp.kind(x.dtype) not in "iu":
        return total / count
    # exact, and rounded toward zero as a conversion from the real mean is
    return xp.sign(total) * (xp.abs(total) // count)


def _l1_norm(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    return _sum(xp, xp.abs(x), axis, keepdims, repeats)


def _l2_norm(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    return xp.sqrt(_sum_of_squares(xp, _as_floats(xp, x), axis, keepdims, repeats))


def _sum_of_squares(
    xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1
) -> Any:
    return _sum(xp, x * x, axis, keepdims, repeats)


def _log_sum(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    return xp.log(_sum(xp, _as_floats(xp, x), axis, keepdims, repeats))


def _log_sum_exp(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    x = _as_floats(xp, x)
    largest = _maximum(xp, x, axis, True)
    # an infinite one must not be subtracted from itself
    shift = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    total = _sum(xp, xp.exp(x - shift), axis, keepdims, repeats)
    return xp.log(total) + xp.reshape(shift, total.shape)


def _maximum(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    if xp.size(x):
        return xp.max(x, axis=axis, keepdims=keepdims)
    return _constant(xp, x, axis, keepdims, _bounds(xp, x.dtype)[0])


def _minimum(xp: Any, x: Any, axis: Any, keepdims: bool, repeats: int = 1) -> Any:
    if xp.size(x):
        return xp.min(x, axis=axis, keepdims=keepdims)
    return _constant(xp, x, axis, keepdims, _bounds(xp, x.dtype)[1])


def _constant(xp: Any, x: Any, axis: Any, keepdims: bool, value: Any) -> Any:
    # the sum of nothing exists and has the shape that is asked for
    shape = xp.sum(xp.astype(x, xp.int64), axis=axis, keepdims=keepdims).shape
    return xp.full(shape, value, dtype=x.dtype)


def _bounds(xp: Any, dtype: Any) -> tuple[Any, Any]:
    """What every element of *dtype* lies between."""
    return xp.limits(dtype) if xp.kind(dtype) in "biu" else (-math.inf, math.inf)


def _as_floats(xp: Any, x: Any) -> Any:
    return xp.astype(x, xp.float64) if xp.kind(x.dtype) in "iu" else x


_REDUCTIONS: Final[Mapping[str, Reduction]] = MappingProxyType(
    {
        "ReduceL1": _l1_norm,
        "ReduceL2": _l2_norm,
        "ReduceLogSum": _log_sum,
        "ReduceLogSumExp": _log_sum_exp,
        "ReduceMax": _maximum,
        "ReduceMean": _mean,
        "ReduceMin": _minimum,
        "ReduceProd": _product,
        "ReduceSum": _sum,
        "ReduceSumSquare": _sum_of_squares,
    }
)


def _with_axes_input(reduction: Reduction) -> Callable[..., Any]:
    def kernel(
        xp: Any,
        x: Any,
        axes: Any = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        given = () if axes is None else numbers(xp, axes, "axes")
        axis = given if given or noop_with_empty_axes else None
        return _reduce(xp, reduction, x, axis, keepdims)

    return kernel


def _with_axes_attribute(reduction: Reduction) -> Callable[..., Any]:
    def kernel(xp: Any, x: Any, *, axes: Sequence[int] = (), keepdims: int = 1) -> Any:
        return _reduce(xp, reduction, x, axes or None, keepdims)

    return kernel


def _reduce(
    xp: Any, reduction: Reduction, x: Any, axes: Sequence[int] | None, keepdims: int
) -> Any:
    axis = None if axes is None else tuple(axes)
    if not x.ndim:
        # a scalar has no axes, yet models name its axis 0
        vector = _reduce(xp, reduction, xp.reshape(x, (1,)), axes, keepdims)
        return xp.reshape(vector, ())
    try:
        if is_stretched(xp, x):
            return _reduce_once(xp, reduction, x, axis, bool(keepdims))
        result = in_computing_dtype(
            reduction, xp, x, axis=axis, keepdims=bool(keepdims)
        )
    except (ValueError, OverflowError):
        normal_axes(axis or (), x.ndim)
        raise
    return xp.asarray(result, dtype=x.dtype)


def _reduce_once(
    xp: Any, reduction: Reduction, x: Any, axis: tuple[int, ...] | None, keepdims: bool
) -> Any:
    """The same of a stretched array, what is repeated being looked at once."""
    axes = range(x.ndim) if axis is None else normal_axes(axis, x.ndim)
    once = unstretched(xp, x)
    repeats = math.prod(x.shape[a] // once.shape[a] for a in axes)
    # with axes, as integers of none do not wrap in silence
    result = in_computing_dtype(
        reduction, xp, once, axis=tuple(axes), keepdims=True, repeats=repeats
    )
    kept = tuple(1 if a in axes else size for a, size in enumerate(x.shape))
    whole = xp.broadcast_to(xp.asarray(result, dtype=x.dtype), kept)
    return whole if keepdims else xp.squeeze(whole, axis=tuple(axes))


for _name, _reduction in _REDUCTIONS.items():
    _since = 13 if _name == "ReduceSum" else 18
    operator(_name, since=_since)(_with_axes_input(_reduction))
    operator(_name, since=1, until=_since - 1)(_with_axes_attribute(_reduction))


@operator("ArgMax", since=12)
def arg_max(
    xp: Any, x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Any:
    return _arg_extreme(xp, xp.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMax", since=1, until=11)
def arg_max_1(xp: Any, x: Any, *, axis: int = 0, keepdims: int = 1) -> Any:
    return _arg_extreme(xp, xp.argmax, x, axis, keepdims, 0)


@operator("ArgMin", since=12)
def arg_min(
    xp: Any, x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Any:
    return _arg_extreme(xp, xp.argmin, x, axis, keepdims, select_last_index)


@operator("ArgMin", since=1, until=11)
def arg_min_1(xp: Any, x: Any, *, axis: int = 0, keepdims: int = 1) -> Any:
    return _arg_extreme(xp, xp.argmin, x, axis, keepdims, 0)


def _arg_extreme(
    xp: Any,
    function: Callable[..., Any],
    x: Any,
    axis: int,
    keepdims: int,
    select_last_index: int,
) -> Any:
    # of a scalar, which has no axes, models take the first of axis 0
    axis = normal_axis(axis, max(x.ndim, 1))
    if is_stretched(xp, x):
        once = unstretched(xp, x)
        found = _arg_extreme(xp, function, once, axis, 1, select_last_index)
        if once.shape[axis] != x.shape[axis] and select_last_index:
            found = found + (x.shape[axis] - 1)
        kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        found = xp.broadcast_to(found, kept)
        return found if keepdims else xp.squeeze(found, axis=axis)
    x = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    if select_last_index and x.ndim:
        backward = function(xp.flip(x, axis=axis), axis=axis, keepdims=bool(keepdims))
        positions = x.shape[axis] - 1 - backward
    else:
        positions = function(x, axis=axis, keepdims=bool(keepdims))
    return xp.asarray(positions, dtype=xp.int64)
