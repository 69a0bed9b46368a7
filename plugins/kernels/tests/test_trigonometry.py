"""Trigonometric functions against Python's ``math``."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .node_oracles import run

FUNCTIONS = {
    "Acos": (math.acos, -1, 1),
    "Acosh": (math.acosh, 1, 9),
    "Asin": (math.asin, -1, 1),
    "Asinh": (math.asinh, -9, 9),
    "Atan": (math.atan, -9, 9),
    "Atanh": (math.atanh, -0.9, 0.9),
    "Cos": (math.cos, -9, 9),
    "Cosh": (math.cosh, -5, 5),
    "Sin": (math.sin, -9, 9),
    "Sinh": (math.sinh, -5, 5),
    "Tan": (math.tan, -1.4, 1.4),
    "Tanh": (math.tanh, -5, 5),
}


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
)
@pytest.mark.parametrize("shape", [(5, 20), (), (0,)])
@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_against_math(op_type: str, shape: tuple[int, ...], dtype: Any) -> None:
    function, low, high = FUNCTIONS[op_type]
    x = np.random.default_rng(0).uniform(low, high, shape).astype(dtype)
    expected = [function(v) for v in x.astype(np.float64).reshape(-1).tolist()]
    result = run(op_type, x, version=22)
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (dtype, shape)
    epsilon = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(
        result.astype(np.float64).reshape(-1), expected, rtol=4 * epsilon, atol=epsilon
    )


def test_outside_the_domain() -> None:
    with np.errstate(invalid="ignore"):
        for op_type in ("Acos", "Asin", "Atanh"):
            assert np.isnan(run(op_type, np.array([2.0, math.nan], np.float32))).all()


def test_tanh_of_opset_1() -> None:
    x = np.array([0.5, -2], dtype=np.float32)
    np.testing.assert_allclose(
        run("Tanh", x, version=1, consumed_inputs=(0,)),
        [math.tanh(0.5), math.tanh(-2)],
        rtol=1e-6,
    )
