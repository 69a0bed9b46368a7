"""ONNX's operators on Core AI's runtime, held against the CPU EP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lowering.operator_cases import CASES, OperatorCase

import onnxplug


def expected(case: OperatorCase) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # special values
        session = onnxplug.InferenceSession(case.model(), providers=["cpu"])
        return session.run(None, case.feeds())


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_what_the_cpu_ep_has(
    name: str, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    case = CASES[name]
    wanted = expected(case)
    with alone(case.model()) as session:
        found = session.run(None, case.feeds())
    for array, reference in zip(found, wanted, strict=True):
        assert array.shape == reference.shape
        assert array.dtype == reference.dtype
        np.testing.assert_allclose(array, reference, rtol=1e-5, atol=1e-5)
