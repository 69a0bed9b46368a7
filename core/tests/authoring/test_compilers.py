"""What compiled partitions depend on, and how it is compared."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from onnxplug.authoring.compilers import SameCompiler
from onnxplug.ep import Compatibility, DeviceType, EpDevice, EpFactory, HardwareDevice


def device(**changes: object) -> EpDevice:
    facts = {
        "type": DeviceType.GPU,
        "vendor": "Acme",
        "vendor_id": 0xACE,
        "device_id": 7,
        "metadata": {"Description": "Acme 7000", "pci_bus_id": "0000:01:00.0"},
    }
    return EpDevice(ep_name="AcmeEP", device=HardwareDevice(**(facts | changes)))


class Factory(EpFactory):
    spi_version = (0, 4)
    name = "AcmeEP"
    version = "1.2"
    engine: ClassVar[dict[str, str]] = {"acme": "5.1", "driver": "540"}

    def supported_devices(self, devices):
        return ()

    def create(self, devices, options, session):
        raise AssertionError

    def engine_versions(self, device):
        return self.engine


COMPILER = SameCompiler(Factory())


def test_what_was_compiled_by_the_same_is_optimal() -> None:
    info = COMPILER.compatibility_info(device())
    assert COMPILER.check(device(), info) == (Compatibility.OPTIMAL, "")


def test_another_device_of_the_same_model_is_the_same() -> None:
    info = COMPILER.compatibility_info(device())
    moved = device(metadata={"Description": "Acme 7000", "pci_bus_id": "0000:41:00.0"})
    assert COMPILER.check(moved, info)[0] is Compatibility.OPTIMAL


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("version", "1.3", "with version '1.2', and here it is '1.3'"),
        ("engine", {"acme": "5.2", "driver": "540"}, "with engine acme '5.1', and"),
        ("engine", {"acme": "5.1"}, "with engine driver '540', and here it is none"),
    ],
)
def test_another_version_is_unsupported(
    attribute: str, value: object, reason: str
) -> None:
    info = COMPILER.compatibility_info(device())
    changed = type("Changed", (Factory,), {attribute: value})()
    found, why = SameCompiler(changed).check(device(), info)
    assert found is Compatibility.UNSUPPORTED
    assert reason in why


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device_id": 8}, "device device_id 7, and here it is 8"),
        ({"metadata": {"Description": "Acme 8000"}}, "'Acme 7000', and here it is"),
        ({"type": DeviceType.NPU}, "device type 'gpu', and here it is 'npu'"),
    ],
)
def test_another_device_is_unsupported(changes: dict[str, object], reason: str) -> None:
    info = COMPILER.compatibility_info(device())
    found, why = COMPILER.check(device(**changes), info)
    assert found is Compatibility.UNSUPPORTED
    assert reason in why


def test_what_another_ep_compiled_is_not_applicable() -> None:
    other = type("Other", (Factory,), {"name": "OtherEP"})()
    found, why = COMPILER.check(
        device(), SameCompiler(other).compatibility_info(device())
    )
    assert found is Compatibility.NOT_APPLICABLE
    assert why == "it was compiled by OtherEP, not by AcmeEP"


@pytest.mark.parametrize(
    "info",
    [
        "",
        "nonsense",
        "[]",
        "[" * 100_000,
        "{}",
        "null",
        '{"format": 2, "ep": "AcmeEP"}',
        '{"ov_compat_string": "meta=1.0", "ovep_ver": "1.2"}',
    ],
)
def test_what_cannot_be_read_is_unsupported(info: str) -> None:
    found, why = COMPILER.check(device(), info)
    assert found is Compatibility.UNSUPPORTED
    assert "was not written by this EP" in why


def test_facts_that_are_missing_or_more_are_differences() -> None:
    facts = json.loads(COMPILER.compatibility_info(device()))
    del facts["machine"]
    facts["device"] = None
    facts["colour"] = "red"
    found, why = COMPILER.check(device(), json.dumps(facts))
    assert found is Compatibility.UNSUPPORTED
    for key in ("machine none", "device none", "colour 'red'"):
        assert f"it was compiled with {key}, and here" in why
