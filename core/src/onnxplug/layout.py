"""Operators on images with their channels last.

In ONNX channels are the second axis (NCHW).  The domain that ONNX Runtime calls
``com.ms.internal.nhwc`` has operators of the same names, attributes and inputs, whose
first input and first output have the channels last (NHWC): weights, scales and grids
are as in ONNX's.  Where an input has a number for each axis, as those of ``Resize``,
the order is that of the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

NHWC_DOMAIN: Final = "com.ms.internal.nhwc"

NHWC_OPERATORS: Final = frozenset(
    """
    AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool
    GlobalLpPool GlobalMaxPool GridSample InstanceNormalization LRN LpPool MaxPool
    QLinearConv Resize SpaceToDepth
    """.split()
)
"""The domain's operators."""

OLDEST: Final = {"BatchNormalization": 9, "Resize": 11}
"""The opsets of ONNX from which on operators have a form with channels last."""

PER_AXIS: Final = {"Resize": (2, 3)}
"""The inputs that have a number for each axis."""

_T = TypeVar("_T")


def channels_last(rank: int) -> tuple[int, ...]:
    """What transposes NCHW to NHWC."""
    return 0, *range(2, rank), 1


def channels_first(rank: int) -> tuple[int, ...]:
    """What transposes NHWC to NCHW."""
    return 0, rank - 1, *range(1, rank - 1)


def permuted(axes: Sequence[_T], perm: Sequence[int]) -> tuple[_T, ...]:
    """*axes*, or what there is for each of them, transposed by *perm*."""
    return tuple(axes[axis] for axis in perm)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """What undoes *perm*."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def composed(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """What transposes by *first*, and then by *second*."""
    return permuted(first, second)
