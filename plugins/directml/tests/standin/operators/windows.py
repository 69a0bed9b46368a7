"""Windows that slide over the spatial dimensions of ``{ Batch, Channel, … }``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import Desc, Rejected
from .agreement import Tensors
from .arithmetic import Array


def spatial(desc: Desc, tensors: Tensors, arrays: str) -> None:
    """``DimensionCount`` and the arrays of that many, or `Rejected`.

    Args:
        desc: the operator's description.
        tensors: of which ``InputTensor`` has two dimensions more than there are.
        arrays: those whose elements are at least 1.
    """
    rank = len(tensors["InputTensor"].sizes)
    if desc.DimensionCount != rank - 2:
        raise Rejected(
            f"DimensionCount is {desc.DimensionCount}, InputTensor's dimensions {rank}"
        )
    for name in arrays.split():
        if any(each < 1 for each in getattr(desc, name)):
            raise Rejected(f"{name} is {getattr(desc, name)}, at least 1 is needed")


def extents(window: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Elements from the first to the last of a dilated window."""
    return tuple((w - 1) * d + 1 for w, d in zip(window, dilations, strict=True))


def positions(
    desc: Desc, sizes: Sequence[int], extent: Sequence[int]
) -> tuple[int, ...]:
    """How often a window fits into padded sizes, by ``Strides``.

    Raises:
        Rejected: it does not fit once.
    """
    padded = [
        size + start + end
        for size, start, end in zip(
            sizes, desc.StartPadding, desc.EndPadding, strict=True
        )
    ]
    if any(p < e for p, e in zip(padded, extent, strict=True)):
        raise Rejected(f"a window of {tuple(extent)} is larger than {tuple(padded)}")
    pairs = zip(padded, extent, desc.Strides, strict=True)
    return tuple((p - e) // stride + 1 for p, e, stride in pairs)


def padded(desc: Desc, values: Array, fill: Any) -> Array:
    """Values with ``StartPadding`` and ``EndPadding``."""
    pads = list(zip(desc.StartPadding, desc.EndPadding, strict=True))
    return np.pad(values, [(0, 0), (0, 0), *pads], constant_values=fill)


def sliding(
    desc: Desc, values: Array, window: Sequence[int], dilations: Sequence[int]
) -> Array:
    """A view ``{ Batch, Channel, positions…, window… }`` of padded values."""
    axes = tuple(range(2, values.ndim))
    shape = extents(window, dilations)
    views = np.lib.stride_tricks.sliding_window_view(values, shape, axes)
    at = tuple(slice(None, None, stride) for stride in desc.Strides)
    within = tuple(slice(None, None, each) for each in dilations)
    return views[(slice(None), slice(None), *at, *within)]
