"""ONNX's operators in both formats, held against the CPU EP.

Core AI's runtime computes its models; those of Core ML the interpreter does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from lowering.operator_cases import CASES, OperatorCase
from mlprogram.simulation import simulated

import onnxplug
from onnxplug.errors import UnassignedNode

LACKS: Final = {
    "Add-int64": "for which MLProgram has int32",
    "Cast-float16-int64": "for which MLProgram has int32",
    "Cast-float32-int64": "for which MLProgram has int32",
    "Unsqueeze": "a tensor of 6 dimensions on the way; MLProgram has 5",
}
"""Cases that Core ML's format has nothing for, with the reason."""


@pytest.fixture(scope="module", params=["CoreAI", "MLProgram"])
def model_format(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "CoreAI":
        yield request.param
        return
    pytest.importorskip("coremltools", reason="make test-coreml installs it")
    with simulated():
        yield request.param


def expected(case: OperatorCase) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # special values
        session = onnxplug.InferenceSession(case.model(), providers=["cpu"])
        return session.run(None, case.feeds())


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_what_the_cpu_ep_has(
    name: str, alone: Callable[..., onnxplug.InferenceSession], model_format: str
) -> None:
    case = CASES[name]
    wanted = expected(case)
    if model_format == "MLProgram" and name in LACKS:
        with pytest.raises(UnassignedNode, match=LACKS[name]):
            alone(case.model(), ModelFormat=model_format)
        return
    with alone(case.model(), ModelFormat=model_format) as session:
        found = session.run(None, case.feeds())
    for array, reference in zip(found, wanted, strict=True):
        assert array.shape == reference.shape
        assert array.dtype == reference.dtype
        largest = np.abs(reference[np.isfinite(reference)]).max(initial=1)
        margin = 1e-3 if reference.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(array, reference, margin, margin * largest)
