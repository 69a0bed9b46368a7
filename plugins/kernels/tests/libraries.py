"""The array libraries that kernels are compared on."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

import numpy as np
import pytest

LIBRARIES: Final = ("numpy", "array_api_strict", "torch")


def library_named(name: str) -> Any:
    """The library; where it is missing the test is skipped, or fails if it must not."""
    # the environment of most tests has no torch: one of its own runs them with it
    if name in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        return importlib.import_module(name)
    return pytest.importorskip(name)


def assert_close(found: Any, expected: Any, rtol: float, atol: float) -> None:
    """Of integers and truths that they are equal, of all that types and shapes are."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    if found.dtype.name == "bfloat16":
        # the suite's own numbers are off by as much
        rtol, atol = max(rtol, 2**-7), max(atol, 2**-8)
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol, atol)
