"""Pairs of EP and device are found, one broken plugin notwithstanding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from onnxplug.ep import DeviceType, EpDevice, HardwareDevice, Host, hookimpl
from onnxplug.errors import EpError, OptionError, PluginNotFound
from onnxplug.plugins import PluginRegistry
from onnxplug.selection import ep_devices, for_devices
from onnxplug.selection.devices import hardware_for, judged_devices, merge_hardware
from onnxplug.selection.enumerate import enumerate_devices, find_hardware
from onnxplug.selection.request import Origin
from onnxplug_testing import Knobs, SimulatedFactory, SimulatedPlugin, Stage

AddEp = Callable[..., SimulatedFactory]


def test_one_factory_on_two_devices_is_two_pairs(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Cuda", "gpu")
    pairs = ep_devices(registry, hardware)
    assert [pair.device for pair in pairs] == hardware[1:]
    assert {pair.ep_name for pair in pairs} == {"CudaExecutionProvider"}


def test_pairs_come_by_name_and_then_by_hardware(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    for ep in ("Zeta", "Alpha"):
        add(ep, "gpu")
    pairs = ep_devices(registry, hardware)
    assert [(pair.ep_name[0], pair.device) for pair in pairs] == [
        ("A", hardware[1]),
        ("A", hardware[2]),
        ("Z", hardware[1]),
        ("Z", hardware[2]),
    ]
    assert ep_devices(registry, hardware) == pairs


def test_broken_plugins_are_skipped_and_the_reason_kept(
    add: AddEp,
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    caplog: pytest.LogCaptureFixture,
) -> None:
    add("Good", "cpu", vendor_id=0x8086)
    add("Broken", "cpu", fail_at=Stage.DEVICES)
    found = enumerate_devices(registry, hardware)
    assert [pair.ep_name for pair in found.devices] == ["GoodExecutionProvider"]
    assert found.vendor_ids["GoodExecutionProvider"] == 0x8086
    (skipped,) = found.skipped
    assert skipped.name == "BrokenExecutionProvider"
    assert "told to fail at devices" in skipped.reason
    assert "told to fail at devices" in caplog.text


def test_an_ep_may_not_offer_the_pairs_of_another() -> None:
    class Liar(SimulatedFactory):
        def supported_devices(self, devices: Any) -> Iterable[EpDevice]:
            return [EpDevice(ep_name="Other", device=devices[0])]

    with pytest.raises(EpError, match="no EpDevice of its own") as caught:
        judged_devices(Liar(), [HardwareDevice(type=DeviceType.CPU)])
    assert caught.value.stage == "devices"


# what plugins find beside


class ProbingPlugin(SimulatedPlugin):
    """A plugin that finds an NPU which the host does not."""

    npu = HardwareDevice(type=DeviceType.NPU, vendor="Somebody")

    @hookimpl
    def onnxplug_probe_hardware(self, host: Host) -> Iterable[HardwareDevice]:
        return [self.npu]


def test_what_plugins_find_is_offered_to_all_eps(
    add: AddEp, registry: PluginRegistry
) -> None:
    add("Other", "npu")
    registry.register_ep_library("finder", ProbingPlugin(Knobs(virtual=False)))
    assert find_hardware(registry)[-1] is ProbingPlugin.npu
    assert [pair.ep_name for pair in ep_devices(registry)] == [
        "OtherExecutionProvider",
        "SimulatedExecutionProvider",
    ]


def test_a_named_ep_is_offered_what_its_own_plugin_finds(
    registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    registry.register_ep_library("finder", ProbingPlugin())
    found = hardware_for(registry, "simulated", hardware)
    assert found == [*hardware, ProbingPlugin.npu]


def test_a_probe_that_fails_costs_what_it_would_have_found(
    registry: PluginRegistry,
    hardware: list[HardwareDevice],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(SimulatedPlugin):
        @hookimpl
        def onnxplug_probe_hardware(self, host: Host) -> Iterable[HardwareDevice]:
            raise OSError("no bus")

    registry.register_ep_library("finder", Broken())
    assert hardware_for(registry, "simulated", hardware) == hardware
    assert "OSError: no bus" in caplog.text


def test_a_device_found_twice_is_one_device() -> None:
    def gpu(place: str, **more: str) -> HardwareDevice:
        metadata = {"pci_bus_id": place, **more}
        return HardwareDevice(type=DeviceType.GPU, metadata=metadata)

    unplaced = HardwareDevice(type=DeviceType.NPU)
    found = [gpu("0000:01:00.0")]
    probed = [gpu("0000:01:00.0", memory="8 GB"), gpu("0000:02:00.0"), unplaced]
    assert merge_hardware(found, [*probed, unplaced]) == [*found, *probed[1:]]


# requests for pairs picked by hand


def test_pairs_of_one_ep_make_one_request(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Cuda", "gpu")
    first, second = ep_devices(registry, hardware)
    request = for_devices(
        [second, first, second], {"level": 2}, registry=registry, hardware=hardware
    )
    assert request.name == "CudaExecutionProvider"
    assert request.devices == (second, first)
    assert request.options == {"level": 2}
    assert request.error_on_failure
    assert request.origin is Origin.LIST
    assert for_devices(first, registry=registry, hardware=hardware).devices == (first,)


def test_pairs_are_those_of_this_machine_when_none_is_given(
    add: AddEp, registry: PluginRegistry
) -> None:
    add("Own", "npu", virtual=True, device_count=1)
    (pair,) = ep_devices(registry)
    assert for_devices([pair], registry=registry).devices == (pair,)


def test_what_is_no_request_for_pairs(
    add: AddEp, registry: PluginRegistry, hardware: list[HardwareDevice]
) -> None:
    add("Cuda", "gpu")
    add("Dml", "gpu")
    pairs = ep_devices(registry, hardware)
    elsewhere = EpDevice(
        ep_name="CudaExecutionProvider",
        device=HardwareDevice(type=DeviceType.GPU, vendor="AMD"),
    )
    gone = EpDevice(ep_name="GoneExecutionProvider", device=hardware[1])

    def refuse(error: type[Exception], match: str, *arguments: Any) -> None:
        with pytest.raises(error, match=match):
            for_devices(*arguments, registry=registry, hardware=hardware)

    refuse(OptionError, "Must provide one or more OrtEpDevice instances", [])
    refuse(
        OptionError,
        "All OrtEpDevice values in ep_devices must have the same execution provider",
        pairs,
    )
    refuse(OptionError, "holds 'cuda'; expected what get_ep_devices", ["cuda"])
    refuse(OptionError, r"on gpu \(AMD\) is no device of this machine", [elsewhere])
    refuse(PluginNotFound, "GoneExecutionProvider", [gone])
    refuse(OptionError, "did you mean 'level'", pairs[:1], {"levle": 1})
    refuse(OptionError, "are 3; expected a mapping", pairs[:1], 3)
