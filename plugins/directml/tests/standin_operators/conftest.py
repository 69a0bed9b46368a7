"""What the tests of operators need: random numbers that are the same each time."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of the same numbers in every test."""
    return np.random.default_rng(20)
