"""Which elements a resampled tensor has."""

from __future__ import annotations

from typing import Any

import numpy as np


def nearest(
    size: int, wanted: int, scale: float, coordinates: str, rounding: str
) -> Any:
    """The positions, int64, of *wanted* elements among *size*.

    Args:
        coordinates, rounding: as of the primitive ``resize``.
    """
    there = np.arange(wanted, dtype=np.float64)
    match coordinates:
        case "half_pixel":
            here = (there + 0.5) / scale - 0.5
        case "align_corners":
            here = there * (size - 1) / (wanted - 1) if wanted > 1 else there * 0
        case _:
            here = there / scale
    match rounding:
        case "floor":
            here = np.floor(here)
        case "ceil":
            here = np.ceil(here)
        case "round_prefer_floor":
            here = np.ceil(here - 0.5)
        case _:
            here = np.floor(here + 0.5)
    return np.clip(here, 0, size - 1).astype(np.int64)
