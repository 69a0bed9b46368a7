"""What every family needs to know about arrays: casts, and checks of shapes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from onnxplug.ep import DataType


@functools.cache
def element_dtype(xp: Any, data_type: int) -> Any:
    """The dtype of *xp* for ONNX's element type number *data_type*.

    Raises:
        ValueError: ONNX has no such element type.
        TypeError: *xp* has no such dtype.
    """
    return xp.dtype(DataType.from_onnx(data_type))


def in_computing_dtype(
    function: Callable[..., Any], xp: Any, *arrays: Any, **options: Any
) -> Any:
    """Call *function* on *arrays* widened as needed; narrow the result likewise.

    The result takes the dtype of the first array.
    """
    dtype = arrays[0].dtype
    wide = xp.computing_dtype(dtype)
    if wide is dtype or wide == dtype:
        return function(xp, *arrays, **options)
    result = function(xp, *(xp.astype(array, wide) for array in arrays), **options)
    return xp.astype(result, dtype)


def is_stretched(xp: Any, x: Any) -> bool:
    """Whether *x* has elements and repeats them along an axis, without memory."""
    strides, shape = xp.strides(x), x.shape
    return (
        0 in strides
        and 0 not in shape
        and any(
            stride == 0 and size > 1
            for stride, size in zip(strides, shape, strict=True)
        )
    )


def unstretched(xp: Any, x: Any) -> Any:
    """*x* with a size of 1 along axes that repeat what it has."""
    places = tuple(slice(None if stride else 1) for stride in xp.strides(x))
    return xp.slices(x, places)


def numbers(xp: Any, x: Any, what: str) -> list[Any]:
    """The numbers of the input *what*, which has one axis.

    Exporters also give a single number as a scalar.

    Raises:
        ValueError: it has more axes.
    """
    if x.ndim == 1:
        return xp.tolist(x)  # type: ignore[no-any-return]
    if x.ndim:
        raise ValueError(f"{what} has shape {x.shape}; expected rank 1")
    return [xp.item(x)]


def extremes(xp: Any, x: Any) -> tuple[int, int]:
    """The smallest and the largest of the integers *x* and 0."""
    if not xp.size(x):
        return 0, 0
    return min(int(xp.min(x)), 0), max(int(xp.max(x)), 0)


def require_rank(x: Any, what: str, least: int, most: int | None = None) -> None:
    """Check that *x* has from *least* to *most* axes; without *most*, any more.

    Raises:
        ValueError: it has not.
    """
    if x.ndim < least or (most is not None and x.ndim > most):
        expected = least if least == most else f"{least} or more"
        raise ValueError(f"{what} has shape {x.shape}; expected rank {expected}")


def require_extent(shape: tuple[int, ...], *parameters: Any, what: str) -> None:
    """Check that *parameters* broadcast to *shape*, rather than make it larger.

    Raises:
        ValueError: one does not.
    """
    for parameter in parameters:
        found = parameter.shape
        fits = len(found) <= len(shape) and all(
            size in (1, whole)
            for size, whole in zip(reversed(found), reversed(shape), strict=False)
        )
        if not fits:
            raise ValueError(
                f"{what} has shape {found}, which does not broadcast to {shape}"
            )


def mean_of(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """The mean over *axes*, which stay; of nothing it is NaN."""
    if xp.size(x):
        return xp.mean(x, axis=axes, keepdims=True)
    # which numpy would warn of
    return xp.full_like(xp.sum(x, axis=axes, keepdims=True), math.nan)
