"""Where the elements of a resized axis lie in the axis that they are read from.

Lengths are integers and every float is a fraction, so each place is one, too.  Whether
it lies on an element, half way between two or beyond the last is decided on integers:
in floats, a quotient of quotients may come out on either side of what it is.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, Final

from onnxplug.authoring.record import Record

_HALF: Final = Fraction(1, 2)

_FAR: Final = 1 << 20
"""Elements before and behind an axis that are told apart."""


class Places(Record):
    """*size* places along an axis, in units of its elements, evenly spaced.

    Place *n* is exactly ``(start + n * step) / divisor``.

    Attributes:
        divisor: larger than 0.
    """

    start: int
    step: int
    divisor: int
    size: int

    @staticmethod
    def of(start: Fraction, step: Fraction, size: int) -> Places:
        """The places *start*, *start* + *step* and so on."""
        divisor = math.lcm(start.denominator, step.denominator)
        return Places(int(start * divisor), int(step * divisor), divisor, size)

    def split(self, xp: Any, length: int) -> tuple[Any, Any]:
        """The element at or before each place, and how far behind it the place is.

        Args:
            length: of the axis; a place far beyond it is moved nearer.

        Returns:
            int64 and float64 [size], the latter at least 0 and at most 1.
        """
        start, step, divisor, size = self
        if not self._fits_int64:
            parts = [(start + n * step) % divisor / divisor for n in range(size)]
            return self.floor(xp, length), xp.asarray(parts, dtype=xp.float64)
        at = xp.arange(size, dtype=xp.int64) * step + start
        index = at // divisor
        fraction = xp.astype(at - index * divisor, xp.float64) / divisor
        return self._near(xp, index, length), fraction

    def floor(self, xp: Any, length: int) -> Any:
        """The element at or before each place, int64 [size], as of :meth:`split`."""
        start, step, divisor, size = self
        if self._fits_int64:
            at = xp.arange(size, dtype=xp.int64) * step + start
            return self._near(xp, at // divisor, length)
        low, high = -_FAR, length + _FAR
        within = [
            min(max((start + n * step) // divisor, low), high) for n in range(size)
        ]
        return xp.asarray(within, dtype=xp.int64)

    @property
    def _fits_int64(self) -> bool:
        """Whether no number on the way to an element is beyond int64."""
        furthest = max(abs(self.start), abs(self.step) * self.size)
        return max(furthest, self.divisor) < 1 << 62

    def _near(self, xp: Any, index: Any, length: int) -> Any:
        start, step, divisor, size = self
        ends = start // divisor, (start + step * size) // divisor
        if min(ends) >= -_FAR and max(ends) <= length + _FAR:
            return index
        return xp.clip(index, -_FAR, length + _FAR)

    def ceil(self, xp: Any, length: int) -> Any:
        """The element at or behind each place, likewise."""
        start, step, divisor, size = self
        # one less than what is behind or at a place is strictly before it
        return Places(start - 1, step, divisor, size).floor(xp, length) + 1

    def nearest(self, xp: Any, length: int, rounding: str) -> Any:
        """The element nearest to each place, likewise, as Resize's *nearest_mode* says.

        Raises:
            ValueError: there is no such *rounding*.
        """
        match rounding:
            case "round_prefer_floor":
                return self._moved(-1).ceil(xp, length)
            case "round_prefer_ceil":
                return self._moved(1).floor(xp, length)
            case "floor":
                return self.floor(xp, length)
            case "ceil":
                return self.ceil(xp, length)
        raise ValueError(
            f"nearest_mode is {rounding!r}, expected 'round_prefer_floor', "
            f"'round_prefer_ceil', 'floor' or 'ceil'"
        )

    def _moved(self, halves: int) -> Places:
        """These places, moved by so many halves of an element."""
        start, step, divisor, size = self
        if divisor % 2:
            start, step, divisor = 2 * start, 2 * step, 2 * divisor
        return Places(start + halves * (divisor // 2), step, divisor, size)

    def beyond(self, xp: Any, length: int) -> Any:
        """Which places lie before the first or behind the last element: bool."""
        before = self.floor(xp, length) < 0
        return before | (self.ceil(xp, length) >= length)


@functools.lru_cache(256)  # the same are asked for in each run
def places(
    mode: str,
    length: int,
    size: int,
    scale: Fraction,
    region: tuple[Fraction, Fraction],
) -> Places:
    """Where in an axis of *length* each of *size* elements of the output lies.

    Args:
        mode: Resize's *coordinate_transformation_mode*.
        scale: *size* to *length*; where a scale was given, that scale.
        region: where the region of interest starts and ends, in parts of the axis.

    Raises:
        ValueError: there is no such *mode*.
    """
    if not size:
        return Places(0, 0, 1, 0)
    # an output length that scales give is taken before it is rounded down
    exact = scale * length
    start, end = region
    origin, step = Fraction(0), 1 / scale
    match mode:
        case "half_pixel":
            origin = _HALF / scale - _HALF
        case "half_pixel_symmetric":
            origin = Fraction(length, 2) * (1 - size / exact) + _HALF / scale - _HALF
        case "pytorch_half_pixel":
            if size > 1:
                origin = _HALF / scale - _HALF
        case "align_corners":
            if size > 1:
                step = (length - 1) / (exact - 1)
        case "asymmetric":
            pass
        case "tf_half_pixel_for_nn":
            origin = _HALF / scale
        case "tf_crop_and_resize" if size == 1:
            origin = (start + end) * (length - 1) / 2
        case "tf_crop_and_resize":
            # here the text goes by the length of the output as it is
            origin = start * (length - 1)
            step = (end - start) * (length - 1) / (size - 1)
        case _:
            raise ValueError(
                f"coordinate_transformation_mode is {mode!r}, expected 'half_pixel', "
                f"'half_pixel_symmetric', 'pytorch_half_pixel', 'align_corners', "
                f"'asymmetric', 'tf_half_pixel_for_nn' or 'tf_crop_and_resize'"
            )
    return Places.of(origin, step, size)
