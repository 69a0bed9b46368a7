"""Devices that libraries are shown by hand, and what is said of failures."""

from __future__ import annotations

import pytest

import onnxplug
from onnxplug import ep, errors
from onnxplug_native.causes import cause_and_remedy, explained
from onnxplug_native.presented import VARIABLE, presented

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"


def test_devices_are_read_from_the_environment() -> None:
    text = "gpu vendor='Some One' vendor_id=0x10de device_id=7 Discrete=1; NPU;"
    assert presented({VARIABLE: text}) == [
        ep.HardwareDevice(
            type=ep.DeviceType.GPU,
            vendor="Some One",
            vendor_id=0x10DE,
            device_id=7,
            metadata={"Discrete": "1"},
        ),
        ep.HardwareDevice(type=ep.DeviceType.NPU),
    ]
    assert presented({}) == []


@pytest.mark.parametrize("text", ["tpu", "gpu vendor_id=x", "gpu vendor", "gpu 'a"])
def test_what_is_no_device_is_refused_in_words(text) -> None:
    with pytest.raises(errors.OptionError, match=f"{VARIABLE} has .*expected cpu"):
        presented({VARIABLE: text})


@pytest.fixture
def by_hand(monkeypatch) -> None:
    """A device is presented before libraries that are installed are asked."""
    monkeypatch.setenv(VARIABLE, "cpu vendor_id=0x1234 device_id=5")


def test_a_library_is_shown_a_device_that_is_not_there(by_hand, register) -> None:
    register()
    pairs = [each for each in onnxplug.get_ep_devices() if each.ep_name == EXAMPLE]
    assert 0x1234 in [each.device.vendor_id for each in pairs]


BY_HAND = ep.HardwareDevice(type=ep.DeviceType.CPU, vendor_id=0x4321, device_id=6)


def test_a_library_is_registered_with_devices_that_are_not_there(register) -> None:
    path = register(devices=[BY_HAND])
    pairs = [each for each in onnxplug.get_ep_devices() if each.ep_name == EXAMPLE]
    assert BY_HAND in [each.device for each in pairs]
    model, given = product(2, 3), feeds(2, 3)
    settings = onnxplug.SessionOptions()
    (chosen,) = [each for each in pairs if each.device == BY_HAND]
    settings.add_provider_for_devices([chosen], {})
    with onnxplug.InferenceSession(model, settings) as session:
        session.run(None, given)
    onnxplug.register_ep_library("example", path, devices=[BY_HAND])
    with pytest.raises(errors.PluginConflict, match="shown 1 devices by hand"):
        onnxplug.register_ep_library("example", path)


def test_devices_are_shown_to_native_libraries_only(tmp_path) -> None:
    file = tmp_path / "some_ep.py"
    file.write_text("raise SystemExit('this is not run')")
    told = "find theirs themselves"
    for target in ("cpu", "some_ep:Factory", object()):
        with pytest.raises(errors.OptionError, match=told):
            onnxplug.register_ep_library("other", target, devices=[BY_HAND])
    with pytest.raises(errors.PluginLoadError, match=told):
        onnxplug.register_ep_library("other", file, devices=[BY_HAND])


def test_causes_that_are_known_have_a_remedy() -> None:
    for said, cause, remedy in (
        ("… adapter_result.status …", "no Vulkan driver", "mesa-vulkan-drivers"),
        ("no default backend path", "told on what to compute", "backend_type"),
        ("libcuda.so.1: cannot open …", "NVIDIA's", "the GPU's driver"),
    ):
        found = cause_and_remedy(said)
        assert cause in found[0] and remedy in found[1]
        assert explained(said) == f"{said}; {found[0]}: {found[1]}"
    assert cause_and_remedy("something else") == ("", "")
    assert explained("something else") == "something else"
