"""Which policy chooses the EP, on which device, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.ep import DeviceType, EpDevice, HardwareDevice
from onnxplug.errors import EpWarning
from onnxplug_openvino.factory import OpenVINOFactory

EP = "OpenVINOExecutionProvider"
CPU = "CPUExecutionProvider"
INTEL = 0x8086
X = np.array([[1, -1], [-2, 2]], np.float32)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[DeviceType], None]:
    """Lets the EP find an accelerator of Intel's that OpenVINO does not."""

    def add(kind: DeviceType) -> None:
        device = HardwareDevice(type=kind, vendor="Intel", vendor_id=INTEL)
        found = OpenVINOFactory.supported_devices
        monkeypatch.setattr(
            OpenVINOFactory,
            "supported_devices",
            lambda self, devices: found(self, [*devices, device]),
        )

    return add


def check(session: onnxplug.InferenceSession, ep: str) -> None:
    assert session.explain().nodes[0].ep == ep
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


@pytest.mark.parametrize(
    "policy",
    [
        "default", "prefer_cpu", "prefer_npu", "prefer_gpu", "max_efficiency",
        "min_overall_power",
    ],
)  # fmt: skip
def test_without_accelerators_every_policy_picks_it_before_the_cpu_ep(
    parse: Callable[..., Any], policy: str, core: Any
) -> None:
    if core.available_devices != ["CPU"]:
        pytest.skip("this machine has an accelerator")
    session = onnxplug.InferenceSession(parse("y = Relu (x)"), policy=policy)
    assert session.get_providers() == [EP, CPU]
    check(session, EP)


def test_max_performance_leaves_small_work_to_the_cpu_ep(
    parse: Callable[..., Any], core: Any
) -> None:
    if core.available_devices != ["CPU"]:
        pytest.skip("this machine has an accelerator")
    session = onnxplug.InferenceSession(parse("y = Relu (x)"), policy="max_performance")
    check(session, CPU)
    assert "faster elsewhere" in str(session.explain())


@pytest.mark.parametrize(
    ("policy", "kind"),
    [("prefer_npu", DeviceType.NPU), ("prefer_gpu", DeviceType.GPU)],
)
def test_an_accelerator_that_fails_leaves_the_session_to_the_cpu_ep(
    parse: Callable[..., Any],
    pretend: Callable[[DeviceType], None],
    core: Any,
    policy: str,
    kind: DeviceType,
) -> None:
    if kind.upper() in core.available_devices:
        pytest.skip(f"this machine has a {kind.upper()}")
    pretend(kind)
    with pytest.warns(EpWarning, match=f"OpenVINO finds no {kind.upper()} here"):
        session = onnxplug.InferenceSession(parse("y = Relu (x)"), policy=policy)
    check(session, CPU)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [("prefer_npu", DeviceType.GPU), ("prefer_gpu", DeviceType.NPU)],
)
def test_an_accelerator_of_another_kind_is_not_looked_at(
    parse: Callable[..., Any],
    pretend: Callable[[DeviceType], None],
    policy: str,
    kind: DeviceType,
) -> None:
    pretend(kind)
    session = onnxplug.InferenceSession(parse("y = Relu (x)"), policy=policy)
    check(session, EP)


def test_the_delegate_sees_both_pairs(parse: Callable[..., Any]) -> None:
    seen: list[EpDevice] = []

    def delegate(pairs: Sequence[EpDevice], *rest: Any) -> list[EpDevice]:
        seen.extend(pairs)
        return [pair for pair in pairs if pair.ep_name == EP][:1]

    options = onnxplug.SessionOptions()
    options.set_provider_selection_policy_delegate(delegate)
    session = onnxplug.InferenceSession(parse("y = Relu (x)"), options)
    names = [pair.ep_name for pair in seen if pair.device.type is DeviceType.CPU]
    assert names.index(EP) < names.index(CPU)
    check(session, EP)
