"""Running sums and products."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.registry import operator

# what stands before the first element of an exclusive scan, by the array function
_NEUTRAL: Final = {"cumulative_sum": 0, "cumulative_prod": 1}


@operator("CumSum", since=11)
def cum_sum(xp: Any, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return in_computing_dtype(
        _scan,
        xp,
        x,
        scan="cumulative_sum",
        axis=axis,
        exclusive=exclusive,
        reverse=reverse,
    )


@operator("CumProd", since=26)
def cum_prod(
    xp: Any, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0
) -> Any:
    return in_computing_dtype(
        _scan,
        xp,
        x,
        scan="cumulative_prod",
        axis=axis,
        exclusive=exclusive,
        reverse=reverse,
    )


def _scan(
    xp: Any, x: Any, *, scan: str, axis: Any, exclusive: int, reverse: int
) -> Any:
    function = getattr(xp, scan)
    axis = normal_axis(int(xp.item(axis)), x.ndim)
    if reverse:
        x = xp.flip(x, axis=axis)
    if exclusive:
        result = xp.full_like(x, _NEUTRAL[scan])
        former, latter = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        former[axis], latter[axis] = slice(None, -1), slice(1, None)
        result[tuple(latter)] = function(x[tuple(former)], axis=axis, dtype=x.dtype)
    else:
        result = function(x, axis=axis, dtype=x.dtype)
    return xp.flip(result, axis=axis) if reverse else result
