"""Wheels of vendors, which ``make test-native`` installs, on the hardware they ask for.

OpenVINO's library drives the processors of Intel only, though OpenVINO runs on all, and
says nothing of others: the tests tell it that the processor is one of Intel's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.reference
import pytest

import onnxplug
from onnxplug_native.interface.handles import live
from onnxplug_testing.hardware import INTEL_CPU, presented

OPENVINO = "OpenVINOExecutionProvider"
NXRT = "cpu_ep"
GGML = "ggml"


@pytest.fixture(autouse=True, scope="session")
def intel() -> Iterator[None]:
    with presented(INTEL_CPU):
        yield


@pytest.fixture(params=[OPENVINO, NXRT, GGML])
def vendor(request: pytest.FixtureRequest) -> str:
    """The EP of each library that computes on processors."""
    return str(request.param)


@pytest.fixture(autouse=True)
def handles() -> Iterator[None]:
    """Looks for handles that are left of sessions."""
    before = {id(handle) for handle in live()}
    yield
    lasting = {"MemoryInfo", "MemoryDevice", "DataType", "Hardware", "Device"}
    lasting |= {"KeyValuePairs", "Logger"}  # of factories that stay
    left = {type(h).__name__ for h in live() if id(h) not in before}
    assert left <= lasting


def close_to_reference(
    model: onnx.ModelProto,
    session: onnxplug.InferenceSession,
    feeds: dict[str, np.ndarray],
    tolerance: float = 1e-4,
) -> None:
    """What the session computes is near what ONNX's own evaluator does."""
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    found = session.run(None, feeds)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
