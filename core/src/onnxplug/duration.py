"""Spans of time, in seconds: which there are, and how they are written for people."""

from __future__ import annotations

import math


def is_duration(value: object) -> bool:
    """Whether it is a finite number of seconds, not less than 0."""
    return isinstance(value, int | float) and 0 <= value < math.inf


def duration(seconds: float) -> str:
    """Three digits and a fitting unit."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
