"""Wheels of vendors, which ``make test-native`` installs, on the hardware they ask for.

OpenVINO's library drives the processors of Intel only, though OpenVINO runs on all, and
says nothing of others: the tests tell it that the processor is one of Intel's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.reference
import pytest

import onnxplug
import onnxplug.hardware.discover  # the package's attribute is a function
from onnxplug import ep
from onnxplug.plugins import libraries
from onnxplug_native.interface.handles import live

OPENVINO = "OpenVINOExecutionProvider"
NXRT = "cpu_ep"

_INTEL = ep.HardwareDevice(type=ep.DeviceType.CPU, vendor="Intel", vendor_id=0x8086)

discovery = sys.modules["onnxplug.hardware.discover"]


@pytest.fixture(autouse=True, scope="session")
def intel() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(discovery, "_find", lambda: (_INTEL,))
    discovery.discover.cache_clear()
    yield
    patch.undo()
    discovery.discover.cache_clear()


@pytest.fixture(params=[OPENVINO, NXRT])
def vendor(request: pytest.FixtureRequest) -> Iterator[str]:
    """The EP of each library; that which is in no ``onnxruntime-ep-`` wheel is
    registered by hand."""
    if request.param == NXRT:
        import nxrt_ep_cpu

        onnxplug.register_ep_library("nxrt", nxrt_ep_cpu.get_library_path())
    yield request.param
    if "nxrt" in [record.name for record in libraries()]:
        onnxplug.unregister_ep_library("nxrt")


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
