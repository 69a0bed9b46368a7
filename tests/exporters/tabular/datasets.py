"""Small random tables of features, and what is to be predicted from them.

All features are float32 numbers, so that no conversion moves one over a threshold.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

TRAINING: Final = 120
"""Rows to fit; those after them are predicted."""

_RANDOM: Final = np.random.default_rng(11)
_ROWS: Final = TRAINING + 40

FEATURES: Final[Array] = _RANDOM.normal(size=(_ROWS, 5)).astype(np.float32)
"""Normally distributed, of shape [rows, 5]."""

_SIGNAL: Final = FEATURES @ [1.5, -2.0, 1.0, 0.5, 0.0] + np.sin(2 * FEATURES[:, 4])
_NOISE: Final = _RANDOM.normal(scale=0.3, size=_ROWS)

TARGET: Final[Array] = _SIGNAL + _NOISE
"""A number to predict, of shape [rows]."""

TARGETS: Final[Array] = np.stack([TARGET, FEATURES[:, 0] ** 2 + _NOISE], axis=1)
"""Two of them, of shape [rows, 2]."""

BINARY: Final[Array] = (TARGET > 0).astype(np.int64)
"""Classes 0 and 1."""

ORDINALS: Final[Array] = np.digitize(TARGET, [-1.2, 1.2])
"""Classes 0, 1 and 2."""

CLASSES: Final[Array] = ORDINALS * 3 - 2
"""Classes -2, 1 and 4."""

NAMES: Final[Array] = np.array(["low", "mid", "später"], dtype=object)[ORDINALS]
"""Classes that have names."""

COUNTS: Final[Array] = _RANDOM.poisson(
    np.exp(0.4 * FEATURES[:, :3]), (_ROWS, 3)
).astype(np.float32)
"""Whole numbers from zero, of shape [rows, 3]."""


def with_gaps(features: Array) -> Array:
    """A copy with every seventh number missing."""
    gaps = features.copy()
    gaps.reshape(-1)[::7] = np.nan
    return gaps


CATEGORIES: Final[Array] = _RANDOM.integers(12, size=_ROWS)
"""Numbers of twelve categories, of shape [rows]."""

MIXED: Final[Array] = np.column_stack([CATEGORIES, with_gaps(FEATURES[:, :2])]).astype(
    np.float32
)
"""Categories, and two features with gaps, of shape [rows, 3]."""

MIXED_TARGET: Final[Array] = TARGET + 4 * np.isin(CATEGORIES, (1, 4, 7))
"""A number that depends on the category, of shape [rows]."""
