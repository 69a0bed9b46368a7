"""Where Resize reads, as its text says, with places as exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

HALF = Fraction(1, 2)


class Axis:
    """One resized axis: how long it becomes, and where its points are."""

    def __init__(self, length: int, size: int, scale: Fraction, mode: str) -> None:
        self.length, self.size, self._scale, self._mode = length, size, scale, mode
        self.region = Fraction(0), Fraction(1)

    def point(self, x: int) -> Fraction:
        last = self.length - 1
        match self._mode:
            case "half_pixel":
                return (x + HALF) / self._scale - HALF
            case "half_pixel_symmetric":
                adjustment = self.size / (self._scale * self.length)
                offset = Fraction(self.length, 2) * (1 - adjustment)
                return offset + (x + HALF) / self._scale - HALF
            case "pytorch_half_pixel":
                return (x + HALF) / self._scale - HALF if self.size > 1 else Fraction(0)
            case "align_corners":
                # the text does not say where the only point is
                return (
                    Fraction(x * last, self.size - 1) if self.size > 1 else Fraction(0)
                )
            case "asymmetric":
                return x / self._scale
            case "tf_half_pixel_for_nn":
                return (x + HALF) / self._scale
        start, end = self.region
        if self.size == 1:
            return (start + end) * last / 2
        return start * last + x * (end - start) * last / (self.size - 1)

    @property
    def stretch(self) -> Fraction:
        """How many times as wide the filter is that keeps what shrinks smooth."""
        return max(Fraction(1), 1 / self._scale)


def nearest(point: Fraction, rounding: str) -> int:
    match rounding:
        case "floor":
            return math.floor(point)
        case "ceil":
            return math.ceil(point)
        case "round_prefer_ceil":
            return math.floor(point + HALF)
    return math.ceil(point - HALF)
