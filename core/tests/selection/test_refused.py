"""Why an EP refuses devices reaches whoever asks for the EP, or for the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxplug.ep import (
    DeviceType,
    EpDevice,
    Finding,
    HardwareDevice,
    Level,
    RefusedDevice,
)
from onnxplug.errors import EpError, OptionError
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import SessionContext, for_devices, provider
from onnxplug.selection.available import availability, platform_support
from onnxplug.selection.choose import choose
from onnxplug.selection.enumerate import enumerate_devices
from onnxplug_testing import SimulatedFactory

AddEp = Callable[..., SimulatedFactory]

NAME = "GoodExecutionProvider"
CPU, GPU = DeviceType.CPU, DeviceType.GPU
NO_TORCH = ("torch is not installed", "pip install torch")
OLD = ("its driver is 530, and 550 is needed", "install driver 550")
NONE = "GoodExecutionProvider drives none of this machine's devices; "


@pytest.mark.parametrize(
    ("refused", "reason", "remedy"),
    [
        ({GPU: NO_TORCH}, "gpu: torch is not installed", "pip install torch"),
        ({CPU: NO_TORCH, GPU: NO_TORCH}, "cpu, gpu: torch is not installed",
         "pip install torch"),
        ({CPU: NO_TORCH, GPU: OLD}, "cpu: torch is not installed; gpu: its driver is "
         "530, and 550 is needed", "pip install torch; install driver 550"),
        ({GPU: ("it is too small", "")}, "gpu: it is too small", "choose another EP"),
    ],
)  # fmt: skip
def test_an_ep_that_refuses_all_says_why(
    add: AddEp,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    refused: dict[DeviceType, tuple[str, str]],
    reason: str,
    remedy: str,
) -> None:
    add("Good", "gpu", refused=refused)
    for ask in (availability, platform_support):
        assert ask("good", registry, hardware) == (NAME, False, NONE + reason, remedy)
    with pytest.raises(EpError) as caught:
        context = SessionContext(None, 0, {}, registry)
        choose([provider("good")], registry, hardware, context, cpu_fallback=False)
    assert str(caught.value) == f"{NONE}{reason}; {remedy}"
    assert (caught.value.ep, caught.value.stage) == (NAME, "devices")


def test_what_the_ep_says_of_itself_comes_first(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    fault = Finding(level=Level.ERROR, message="no engine", remedy="get one")
    add("Good", "gpu", refused={GPU: OLD}, findings=(fault,))
    answer = availability("good", registry, hardware)
    assert answer.reason == f"{NAME} cannot be used: no engine"
    assert answer.remedy == "get one"


def test_what_is_refused_is_not_offered(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Good", "gpu", refused={CPU: NO_TORCH})
    found = enumerate_devices(registry, hardware)
    assert [pair.device for pair in found.devices] == hardware[1:]
    reason, remedy = NO_TORCH
    refused = RefusedDevice(device=hardware[0], reason=reason, remedy=remedy)
    assert found.refused == [(NAME, refused)]
    assert availability("good", registry, hardware)


def test_a_device_picked_by_hand_that_is_refused_brings_the_reason(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Good", "gpu", refused={CPU: NO_TORCH})
    pair = EpDevice(ep_name=NAME, device=hardware[0])
    with pytest.raises(OptionError) as caught:
        for_devices([pair], registry=registry, hardware=hardware)
    assert str(caught.value) == (
        f"{NAME} on cpu (Intel) cannot be used: torch is not installed; "
        "pip install torch"
    )
