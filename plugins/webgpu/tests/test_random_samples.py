"""Operators that models seldom have, on an adapter, against their definitions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_testing.random_samples import SAMPLES

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("operator", SAMPLES)
def test_operators_are_what_they_are_in_float64(alone: Any, operator: str) -> None:
    for seed in range(6):
        dtype = np.dtype(DTYPES[seed % 3])
        sample = SAMPLES[operator](np.random.default_rng(seed), dtype)
        session = alone(sample.model)
        assert sample.error(session.run(None, sample.feeds)) < 16, (dtype, seed)
