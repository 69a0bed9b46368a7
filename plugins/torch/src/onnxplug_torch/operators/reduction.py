"""Reductions over axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_torch.dtypes import BOOL, FLOATS, NUMBERS, POSITIONS
from onnxplug_torch.operators.arithmetic import unsigned_quotient
from onnxplug_torch.operators.computing import (
    in_float32,
    in_order,
    in_signed,
    out_of_order,
)
from onnxplug_torch.operators.movement import numbers
from onnxplug_torch.operators.registry import operator

_Reduce = Callable[[Any, Any, tuple[int, ...], bool], Any]
"""Of torch, a tensor, axes, and whether these are kept."""


def _declare(
    op_type: str, reduce: _Reduce, types: Any, by_input: int = 18, last: Any = None
) -> None:
    """Declare a reduction in its two forms: axes by attribute, and by input."""

    def over(torch: Any, x: Any, axes: Any, keepdims: int, noop: int) -> Any:
        places = [] if axes is None else numbers(axes)
        if not places:
            if noop:
                return last(torch, x) if last else x
            places = list(range(x.ndim))
        for axis in places:
            if not -x.ndim <= axis < x.ndim:
                raise ValueError(f"there is no axis {axis}; the rank is {x.ndim}")
        return reduce(torch, x, tuple(axis % x.ndim for axis in places), bool(keepdims))

    def by_attribute(
        torch: Any, x: Any, *, axes: Sequence[int] | None = None, keepdims: int = 1
    ) -> Any:
        return over(torch, x, axes, keepdims, 0)

    def by_argument(
        torch: Any,
        x: Any,
        axes: Any | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        return over(torch, x, axes, keepdims, noop_with_empty_axes)

    operator(op_type, since=1, until=by_input - 1, types=types)(by_attribute)
    operator(op_type, since=by_input, types=types, host=(1,))(by_argument)


def _sum(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x
    dtype = x.dtype if x.dtype.is_floating_point else None
    return torch.sum(x, axes, keep, dtype=dtype).to(x.dtype)


def _mean(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if not axes:
        return x
    if x.dtype.is_floating_point:
        return torch.mean(x, axes, keep)
    count = math.prod(x.shape[axis] for axis in axes)
    total = torch.sum(x.to(torch.int64), axes, keep)
    if x.dtype == torch.uint64:
        return unsigned_quotient(torch, total, torch.full_like(total, count))
    return torch.div(total, max(count, 1), rounding_mode="trunc").to(x.dtype)


def _product(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    def multiply(x: Any) -> Any:
        dtype = x.dtype
        for axis in sorted(axes, reverse=True):
            x = torch.prod(x, axis, keep, dtype=dtype)
        return x

    return in_signed(torch, multiply, x)


def _extreme(name: str) -> _Reduce:
    def reduce(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if not axes:
            return x
        if all(x.shape[axis] for axis in axes):
            found = getattr(torch, name)(in_order(torch, x), axes, keep)
            return out_of_order(torch, found, x.dtype)
        shape = [
            1 if n in axes else size
            for n, size in enumerate(x.shape)
            if keep or n not in axes
        ]
        least: float
        if x.dtype == torch.bool:
            least = name == "amin"
        elif x.dtype.is_floating_point:
            least = math.inf if name == "amin" else -math.inf
        else:
            kind = torch.iinfo(x.dtype)
            least = kind.max if name == "amin" else kind.min
        return torch.full(shape, least, dtype=x.dtype, device=x.device)

    return reduce


def _of_floats(formula: Callable[..., Any]) -> _Reduce:
    """A reduction of several steps, of which ONNX has integers, too."""

    def reduce(torch: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if x.dtype.is_floating_point:
            return in_float32(torch, lambda x: formula(torch, x, axes, keep), x)
        return formula(torch, x.to(torch.float64), axes, keep).to(x.dtype)

    return reduce


_declare("ReduceSum", _sum, NUMBERS, 13)
_declare("ReduceMean", _mean, NUMBERS)
_declare("ReduceProd", _product, NUMBERS)
_declare("ReduceMax", _extreme("amax"), NUMBERS | BOOL)
_declare("ReduceMin", _extreme("amin"), NUMBERS | BOOL)
_declare(
    "ReduceL1",
    lambda torch, x, axes, keep: _sum(torch, _absolute(torch, x), axes, keep),
    NUMBERS,
    last=lambda torch, x: _absolute(torch, x),
)
_declare(
    "ReduceL2",
    _of_floats(lambda torch, x, axes, keep: torch.sqrt(_sum(torch, x * x, axes, keep))),
    NUMBERS,
    last=lambda torch, x: _absolute(torch, x),
)
_declare(
    "ReduceSumSquare",
    lambda torch, x, axes, keep: _sum(torch, _square(torch, x), axes, keep),
    NUMBERS,
    last=lambda torch, x: _square(torch, x),
)
_declare(
    "ReduceLogSum",
    _of_floats(lambda torch, x, axes, keep: torch.log(_sum(torch, x, axes, keep))),
    NUMBERS,
    last=lambda torch, x: torch.log(x),
)
_declare(
    "ReduceLogSumExp",
    _of_floats(
        lambda torch, x, axes, keep: torch.logsumexp(x, axes, keep) if axes else x
    ),
    NUMBERS,
)


def _absolute(torch: Any, x: Any) -> Any:
    return torch.abs(x) if x.dtype.is_signed else x


def _square(torch: Any, x: Any) -> Any:
    return in_signed(torch, lambda x: x * x, x)


def _arg(op_type: str, name: str) -> None:
    def function(
        torch: Any,
        x: Any,
        *,
        axis: int = 0,
        keepdims: int = 1,
        select_last_index: int = 0,
    ) -> Any:
        find = getattr(torch, name)
        ordered = in_order(torch, x)
        if not select_last_index:
            return find(ordered, axis, keepdim=bool(keepdims))
        turned = torch.flip(ordered, (axis % x.ndim,))
        return x.shape[axis] - 1 - find(turned, axis, keepdim=bool(keepdims))

    operator(op_type, types=NUMBERS)(function)


_arg("ArgMax", "argmax")
_arg("ArgMin", "argmin")


def _running(op_type: str, name: str, since: int, start: int) -> None:
    def function(
        torch: Any, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0
    ) -> Any:
        (place,) = numbers(axis)
        if not -x.ndim <= place < x.ndim:
            raise ValueError(f"there is no axis {place}; the rank is {x.ndim}")
        place %= x.ndim

        def run(x: Any) -> Any:
            if reverse:
                x = torch.flip(x, (place,))
            if exclusive and x.shape[place]:
                first = torch.full_like(x.narrow(place, 0, 1), start)
                x = torch.cat((first, x.narrow(place, 0, x.shape[place] - 1)), place)
            found = getattr(torch, name)(x, place, dtype=x.dtype)
            return torch.flip(found, (place,)) if reverse else found

        return in_signed(torch, run, x)

    operator(op_type, since=since, types=NUMBERS, other={1: POSITIONS}, host=(1,))(
        function
    )


_running("CumSum", "cumsum", 11, 0)
_running("CumProd", "cumprod", 26, 1)


def _norm(torch: Any, x: Any, axis: int, p: int) -> Any:
    kind = torch.abs(x) if p == 1 else x * x
    total = kind.sum(axis, keepdim=True)
    return total if p == 1 else torch.sqrt(total)


@operator("LpNormalization", types=FLOATS)
def lp_normalize(torch: Any, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    if p not in (1, 2):
        raise ValueError(f"p is {p}; expected 1 or 2")

    def formula(x: Any) -> Any:
        norm = _norm(torch, x, axis, p)
        return torch.where(norm == 0, 0, x / norm)

    return in_float32(torch, formula, x)
