"""How far outputs are from others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Error(NamedTuple):
    """Differences of an output, relative to its largest magnitude.

    Attributes:
        largest: the largest one.
        rms: the root of their mean square.
    """

    largest: float
    rms: float


def error(found: Path, expected: Path) -> Error:
    """The error of the worst output; both are ``.npz`` files of outputs in order.

    It is infinite if shapes differ, or if NaN is found.
    """
    worst = Error(0.0, 0.0)
    with np.load(found) as ours, np.load(expected) as theirs:
        for name in theirs.files:
            a, b = ours[name], theirs[name]
            if "U" in (a.dtype.kind, b.dtype.kind):  # texts are equal, or not
                a = np.asarray(a.astype(str) != b.astype(str))
                b = np.zeros_like(a)
            a, b = a.astype(np.float64), b.astype(np.float64)
            if a.shape != b.shape:
                return Error(math.inf, math.inf)
            difference = np.abs(a - b) / (float(np.abs(b).max(initial=0)) or 1.0)
            if np.isnan(difference).any():
                return Error(math.inf, math.inf)
            rms = math.sqrt(np.square(difference).mean()) if difference.size else 0.0
            worst = Error(
                max(worst.largest, float(difference.max(initial=0))),
                max(worst.rms, rms),
            )
    return worst
