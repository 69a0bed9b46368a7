"""Arrays to give nodes."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..single_node import Array

RANDOM: Final = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    """Numbers from -2 to 2."""
    return RANDOM.uniform(-2, 2, shape).astype(np.float32)


def halves(*shape: int) -> Array:
    """Such numbers as float16."""
    return floats(*shape).astype(np.float16)


def ints(*numbers: int) -> Array:
    """Numbers as int64."""
    return np.array(numbers, np.int64)


def indices(size: int, *shape: int) -> Array:
    """Indices along an axis, of both signs."""
    return RANDOM.integers(-size, size, shape)


X: Final = floats(2, 3, 4, 6)
