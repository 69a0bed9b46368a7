"""What every family needs to know about arrays: computing dtypes and their casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxplug.ep import DataType

# numpy computes these natively; everything else of a floating kind is an
# ml_dtypes type that has few ufuncs, no matmul and rounds after each step.
_NATIVE_FLOATS: Final = frozenset({"float32", "float64", "complex64", "complex128"})


@functools.cache
def computing_dtype(dtype: Any) -> Any:
    """The dtype to compute in for arrays of *dtype*: float32 for narrower floats.

    Integers, bool and wide floats are computed in their own dtype.
    """
    name = np.dtype(dtype).name
    if name in _NATIVE_FLOATS or np.dtype(dtype).kind in "iubO":
        return dtype
    if name.startswith(("int", "uint")):
        return np.dtype(np.int32)
    return np.dtype(np.float32)


def numpy_dtype(data_type: int) -> Any:
    """The numpy dtype of ONNX's element type number *data_type*."""
    return DataType.from_onnx(data_type).numpy


def in_computing_dtype(
    function: Callable[..., Any], xp: Any, *arrays: Any, **options: Any
) -> Any:
    """Call *function* on *arrays* widened as needed; narrow the result likewise.

    The result takes the dtype of the first array.
    """
    dtype = arrays[0].dtype
    wide = computing_dtype(dtype)
    if wide == dtype:
        return function(xp, *arrays, **options)
    result = function(xp, *(array.astype(wide) for array in arrays), **options)
    return result.astype(dtype)


def numbers(x: Any, what: str) -> list[Any]:
    """The numbers of the input *what*, which has one axis.

    Exporters also give a single number as a scalar.

    Raises:
        ValueError: it has more axes.
    """
    if x.ndim == 1:
        return x.tolist()  # type: ignore[no-any-return]
    if x.ndim:
        raise ValueError(f"{what} has shape {x.shape}; expected rank 1")
    return [x.item()]


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
    if x.size:
        return xp.mean(x, axis=axes, keepdims=True)
    # which numpy would warn of
    return xp.full_like(xp.sum(x, axis=axes, keepdims=True), xp.nan)
