"""Operators that models seldom have, by kernels on a processor, against their
definitions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_testing.random_samples import SAMPLES

WIDE = {"AffineGrid", "CenterCropPad", "MeanVarianceNormalization"}
"""What is computed in float64, too."""


@pytest.mark.parametrize("operator", SAMPLES)
def test_operators_are_what_they_are_in_float64(alone: Any, operator: str) -> None:
    dtypes = [np.float32, np.float64 if operator in WIDE else ml_dtypes.bfloat16]
    for seed, dtype in enumerate(dtypes):
        sample = SAMPLES[operator](np.random.default_rng(seed), np.dtype(dtype))
        found = alone(sample.model).run(None, sample.feeds)
        assert sample.error(found) < 16, (dtype, seed)
