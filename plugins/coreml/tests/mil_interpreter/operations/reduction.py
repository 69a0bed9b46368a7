"""Reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


def _log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    greatest = x.max(axis=axis, keepdims=True)
    sums = np.exp(x - greatest).sum(axis=axis, keepdims=True)
    result = np.log(sums) + greatest
    return result if keepdims else result.squeeze(axis)


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "reduce_l1_norm": lambda x, **how: np.abs(x).sum(**how),
    "reduce_l2_norm": lambda x, **how: np.sqrt(np.square(x).sum(**how)),
    "reduce_log_sum": lambda x, **how: np.log(x.sum(**how)),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_max": np.max,
    "reduce_mean": np.mean,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_sum": np.sum,
    "reduce_sum_square": lambda x, **how: np.square(x).sum(**how),
}


def _register() -> None:
    def reduce(
        x: Array, axes: Array | None = None, keep_dims: Any = False, *, how: Any
    ) -> Array:
        over = range(x.ndim) if axes is None else np.atleast_1d(axes)
        axis = tuple(int(each) % x.ndim for each in over)
        result = how(x, axis=axis, keepdims=bool(keep_dims))
        if x.dtype.kind == "i" and result.dtype.kind != "i":
            raise NotImplementedError("how integers are rounded is not documented")
        return np.asarray(result, x.dtype)

    for name, how in _REDUCTIONS.items():
        operation(name)(
            lambda x, axes=None, keep_dims=False, how=how: reduce(
                x, axes, keep_dims, how=how
            )
        )


_register()

_INDICES = {"int32": np.int32, "uint16": np.uint16}


@operation("reduce_argmax")
def reduce_argmax(
    x: Array, axis: Any = -1, keep_dims: Any = False, output_dtype: str = "int32"
) -> Array:
    """The first of equal elements; MIL leaves open which."""
    found = np.argmax(x, int(axis), keepdims=bool(keep_dims))
    return np.asarray(found, _INDICES[output_dtype])


@operation("reduce_argmin")
def reduce_argmin(
    x: Array, axis: Any = -1, keep_dims: Any = False, output_dtype: str = "int32"
) -> Array:
    """The first of equal elements; MIL leaves open which."""
    found = np.argmin(x, int(axis), keepdims=bool(keep_dims))
    return np.asarray(found, _INDICES[output_dtype])


@operation("cumsum")
def cumsum(
    x: Array, axis: Any = 0, exclusive: Any = False, reverse: Any = False
) -> Array:
    axis = int(axis)
    ordered = np.flip(x, axis) if reverse else x
    sums = np.cumsum(ordered, axis, dtype=x.dtype)
    if exclusive:
        sums = sums - ordered
    return np.flip(sums, axis) if reverse else sums
