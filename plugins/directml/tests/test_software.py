"""Without hardware, tests may have the adapter that computes on the processor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import EpError
from onnxplug_directml.factory import SOFTWARE as VARIABLE
from onnxplug_directml.factory import DmlFactory

from .conftest import CPU
from .standin import GPU, SOFTWARE, Windows

NAME = "DmlExecutionProvider"

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    doubled (float[2] x) => (float[2] y) { y = Add (x, x) }
    """
)


@pytest.fixture
def without_hardware(
    windows: Windows, register: Callable[[Windows], DmlFactory]
) -> DmlFactory:
    windows.adapters = (SOFTWARE,)
    return register(windows)


def test_it_is_for_who_asks_for_it_twice(
    without_hardware: DmlFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EpError, match="no adapter of hardware"):
        onnxplug.InferenceSession(MODEL, providers=[NAME])
    monkeypatch.setenv(VARIABLE, "1")
    (pair,) = without_hardware.supported_devices([CPU])
    assert pair.by_name_only
    assert pair.metadata["adapter"] == SOFTWARE.name
    session = onnxplug.InferenceSession(MODEL, providers=[NAME])
    (y,) = session.run(None, {"x": np.array([1, -2], np.float32)})
    np.testing.assert_array_equal(y, [2, -4])
    assert {part.ep for part in session.explain().partitions} == {NAME}


def test_nobody_gets_it_by_a_policy(
    without_hardware: DmlFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    session = onnxplug.InferenceSession(MODEL, policy="prefer_gpu")
    assert NAME not in session.get_providers()


def test_beside_a_gpu_it_is_the_one_of_software(
    windows: Windows,
    register: Callable[[Windows], DmlFactory],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows.adapters = (GPU, SOFTWARE)
    monkeypatch.setenv(VARIABLE, "1")
    (pair,) = register(windows).supported_devices([CPU])
    assert dict(pair.default_options) == {"device_id": "1"}
