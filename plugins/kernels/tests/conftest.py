"""Array libraries, and numbers drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels.namespaces import namespace_of

from .libraries import LIBRARIES, library_named


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return library_named(request.param)


@pytest.fixture
def xp(library: Any) -> Any:
    return namespace_of(library)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
