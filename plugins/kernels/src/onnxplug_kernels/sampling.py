"""Reading an array at points given by coordinates, with interpolation.

A value is a sum of weighted elements, some of the weights being zero, so an element
that is not finite makes NaN of all points between its neighbours.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final

Tap = tuple[Any, Any]
"""An index along one axis and the weight of what is read there."""


_FAR: Final = 1e6


def within_reach(xp: Any, coordinates: Any, size: int) -> Any:
    """*coordinates* along an axis of *size* elements that an integer can hold.

    Those far outside stay outside; NaN has no place, so it goes there too.
    """
    placed = xp.where(xp.isnan(coordinates), -_FAR, coordinates)
    return xp.clip(placed, -_FAR, size + _FAR)


def split(xp: Any, coordinates: Any) -> tuple[Any, Any]:
    """The element before each coordinate, int64, and how far behind it that is."""
    low = xp.floor(coordinates)
    return xp.astype(low, xp.int64), coordinates - low


def linear_taps(index: Any, fraction: Any) -> list[Tap]:
    """The two neighbours of each coordinate, weighted by nearness.

    Args:
        index, fraction: the coordinates, as :func:`split` gives them.
    """
    return [(index, 1 - fraction), (index + 1, fraction)]


def cubic_taps(xp: Any, index: Any, fraction: Any, a: float) -> list[Tap]:
    """The four neighbours of each coordinate, weighted by cubic convolution.

    R. Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981),
    equation (4) with parameter *a*.

    Args:
        index, fraction: the coordinates, as :func:`split` gives them.
    """
    return [
        (index + step, cubic_weight(xp, fraction - step, a)) for step in range(-1, 3)
    ]


def cubic_weight(xp: Any, distance: Any, a: float) -> Any:
    """Keys's cubic convolution kernel: zero at *distance* 2 and beyond."""
    x = xp.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0))


class Pixels:
    """The elements of an array [images, channels, *spatial], to be read at points."""

    def __init__(self, xp: Any, x: Any) -> None:
        self._xp = xp
        images, channels, *spatial = x.shape
        # a row for each pixel, and one of zeros for what is outside
        zero = "" if xp.kind(x.dtype) == "O" else 0
        rows = xp.reshape(
            xp.moveaxis(x, 1, -1), (images * math.prod(spatial), channels)
        )
        self._spatial = spatial
        self._rows = xp.concat(
            [rows, xp.full((1, channels), zero, dtype=x.dtype)], axis=0
        )

    def gather(self, indices: Sequence[Any], images: Any) -> Any:
        """The pixels [batch, channels, points] at *indices*; points outside read zero.

        Args:
            indices: an integer array [batch, points] for each spatial axis.
            images: which image each of the batch reads, integers [batch].
        """
        inside = functools.reduce(
            operator.and_,
            (
                (index >= 0) & (index < size)
                for index, size in zip(indices, self._spatial, strict=True)
            ),
        )
        position = images[:, None]
        for index, size in zip(indices, self._spatial, strict=True):
            position = position * size + index
        position = self._xp.where(inside, position, self._rows.shape[0] - 1)
        return self._xp.moveaxis(self._xp.take(self._rows, position, axis=0), -1, 1)

    def contributions(
        self, axes: Sequence[Sequence[Tap]], images: Any
    ) -> Iterator[Any]:
        """What each combination of taps, one of each axis, adds to each point.

        Args:
            axes: for each spatial axis its taps, of shape [batch, points].
            images: which image each of the batch reads, integers [batch].

        Yields:
            [batch, channels, points]: pixels times the product of the weights.
        """
        for taps in itertools.product(*axes):
            pixels = self.gather([index for index, _ in taps], images)
            weight = functools.reduce(operator.mul, (weight for _, weight in taps))
            yield pixels * weight[:, None, :]

    def read(self, axes: Sequence[Sequence[Tap]], images: Any) -> Any:
        """The interpolated values: the sum of :meth:`contributions`."""
        return functools.reduce(operator.iadd, self.contributions(axes, images))
