"""Shares the time of an examination among its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LEAST: Final = 0.5
"""Of its share of the processor's time each check has so much, however late it is."""

_BESIDE: Final = 0.12
"""Seconds that a check is thought to take besides what it has, before any did."""

_DOUBT: Final = 5
"""By so many checks that would have taken that the first that did are outweighed."""


class Allotment:
    """What each check has of the time, one after the other in any order.

    That is its share of the processor's time, so that as much is tried on a machine
    that does much else; or less, of a slow machine: no more than its share of what the
    clock leaves when that is taken off which checks take besides, as those before did:
    a process, imports, a first case that is longer than the time.  Yet no check has
    less than :data:`LEAST`, so that there is none that tries nothing.

    Args:
        shares: of the checks.
        seconds: of the processor, which all have together.
        end: when the last is to end, on the clock that :meth:`next` is told of.
    """

    def __init__(self, shares: Sequence[float], seconds: float, end: float) -> None:
        self._all = sum(shares)
        self._rest = self._all
        self._count = len(shares)
        self._seconds = seconds
        self._left = seconds
        self._end = end
        self._beside = _DOUBT * _BESIDE
        self._known = _DOUBT
        self._given = 0.0

    def next(self, share: float, now: float) -> float:
        """The processor time of a check with *share*, which begins *now*, in s."""
        each = self._beside / self._known
        by_clock = self._end - now - each * self._count
        least = LEAST * self._seconds * share / self._all
        left = min(self._left, by_clock) * share / self._rest
        self._given = max(left, least)
        return self._given

    def until(self, now: float) -> float:
        """When that check, which begins *now*, is to end by the clock."""
        return max(self._end, now + self._given)

    def spent(self, share: float, used: float, took: float) -> None:
        """Say that the check, which had *share*, has ended.

        Args:
            used: time of the processor, in s.
            took: time by the clock, in s.
        """
        counted = min(used, self._given)
        self._left -= counted
        self._beside += max(took - counted, 0.0)
        self._known += 1
        self._rest -= share
        self._count -= 1
