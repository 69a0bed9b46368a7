"""Distinct elements, inverses of matrices."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_microsoft.kernels import KERNELS


@KERNELS.operator("Unique", since=1, data_dependent=True)
def unique(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """Distinct elements in the order in which they first occur; each NaN is one.

    Returns:
        (the elements, which of them each element of *x* is, how often each occurs).
    """
    if x.ndim != 1:
        raise ValueError(f"Unique takes a vector, and not shape {x.shape}")
    first, inverse, counts = xp.unique(x, None, equal_nan=False)
    order = xp.argsort(first)
    return x[first[order]], xp.argsort(order)[inverse], counts[order]


@KERNELS.operator("Inverse", since=1)
def inverse(xp: Any, x: Any) -> Any:
    """The inverse of each matrix of a batch.

    Raises:
        numpy.linalg.LinAlgError: one has none.
    """
    return in_computing_dtype(lambda xp, x: xp.library.linalg.inv(x), xp, x)
