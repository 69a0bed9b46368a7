"""Devices that an EP refuses are listed with the reason and the remedy."""

from __future__ import annotations

import sys
from typing import Any

import pytest

REFUSING = """
@ep.hookimpl
def onnxplug_probe_hardware(host):
    return [ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="Acme", vendor_id=0x1234,
                              metadata={"Description": "Acme Card"})]

drives = Factory.supported_devices

def supported_devices(self, devices):
    gpus = [device for device in devices if device.type == "gpu"]
    why = {"reason": "its driver is 530, and 550 is needed"}
    todo = {"remedy": "install driver 550"}
    refused = [ep.RefusedDevice(device=gpu, **why, **todo) for gpu in gpus]
    return [*drives(self, devices), *refused]

Factory.spi_version = (0, 4)
Factory.supported_devices = supported_devices
"""
NAME = "XExecutionProvider"
REASON, REMEDY = "its driver is 530, and 550 is needed", "install driver 550"


@pytest.fixture
def refusing(site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EP that drives the processor and refuses a GPU, and no other."""
    site.install(NAME, REFUSING)
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")


pytestmark = pytest.mark.usefixtures("refusing")


def one_line(text: str) -> str:
    return " ".join(text.split())


def is_that(refused: dict[str, Any]) -> bool:
    return (refused["device"]["vendor"], refused["reason"], refused["remedy"]) == (
        "Acme",
        REASON,
        REMEDY,
    )


def test_devices(cli) -> None:
    out = cli("devices").out
    *_, table = out.split("\n\n")
    assert table.splitlines()[0].split() == ["EP", "REFUSED", "REASON"]
    assert one_line(table).endswith(f"x gpu Acme Card {REASON}; {REMEDY}")
    assert max(map(len, out.splitlines())) <= 80
    (refused,) = cli("devices", "--json").json["refused_devices"]
    assert refused.pop("ep") == NAME
    assert is_that(refused)


def test_eps(cli) -> None:
    assert f"refused gpu Acme Card: {REASON}; {REMEDY}" in one_line(cli("eps", "x").out)
    (found,) = cli("eps", "x", "--json").json["eps"]
    assert len(found["devices"]) == 1
    assert is_that(*found["refused_devices"])


@pytest.mark.parametrize("isolate", [[], ["--isolate"]])
def test_doctor(cli, doctor, isolate: list[str]) -> None:
    code, plugin = doctor(NAME, *isolate)
    assert (code, plugin["works"], plugin["findings"]) == (0, True, [])
    assert is_that(*plugin["refused_devices"])
    out = cli("doctor", *isolate).out
    assert f"gpu:0 is refused: {REASON}\n  → {REMEDY}" in out


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other EPs drive GPUs")
def test_what_is_missing_for_a_device_is_what_its_ep_says(cli) -> None:
    (missing,) = cli("doctor", "--json").json["missing"]
    assert missing["ep"] == NAME
    assert missing["remedy"] == f"{NAME} refuses it: {REASON}; {REMEDY}"


def test_an_ep_that_refuses_all_says_so_once(cli, site) -> None:
    site.install(
        "YExecutionProvider",
        REFUSING.replace("[*drives(self, devices), *refused]", "refused"),
        distribution="onnxplug-y",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXPLUG_PLUGINS", "y")
        out = one_line(cli("eps", "y").out)
        doctor = cli("doctor").out
    assert out.count(REASON) == 1
    assert "devices none: YExecutionProvider drives none of this machine's" in out
    assert doctor.count(f"gpu: {REASON}") == 1
