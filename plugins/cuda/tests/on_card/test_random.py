"""Random graphs and samples of operators on a card.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_testing.random_samples import SAMPLES

from ....compiler.tests.gpu.random_graphs import OnGpu
from .conftest import EP

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)
CUDA = OnGpu(
    ep=EP,
    space="cuda",
    exact={"use_tf32": "0"},
    captures={"enable_cuda_graph": "1"},
)
FIRST, LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:100").split(":"))


@pytest.mark.parametrize("operator", SAMPLES)
def test_operators_are_what_they_are_in_float64(alone: Any, operator: str) -> None:
    for seed in range(6):
        dtype = np.dtype(DTYPES[seed % 3])
        sample = SAMPLES[operator](np.random.default_rng(seed), dtype)
        session = alone(sample.model, use_tf32=0)
        assert sample.error(session.run(None, sample.feeds)) < 16, (dtype, seed)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_random_graph(seed: int) -> None:
    CUDA.check(seed)
