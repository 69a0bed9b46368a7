"""Which devices are offered where, and what is said where something is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import onnxplug
from onnxplug import ep
from onnxplug.ep import DeviceType, HardwareDevice, ModelInfo
from onnxplug.errors import OptionError
from onnxplug.selection.policy import prefer_npu
from onnxplug_coreml import machine as machine_module
from onnxplug_coreml.machine import Machine, this_machine

BOTH = {"coremltools": "9.0", "coreai-core": "1.0.0b3"}
TAHOE = Machine("Darwin", 26, "arm64", (3, 13), "26.1")
SEQUOIA = TAHOE._replace(macos=15, release="15.5")
NEXT = TAHOE._replace(macos=27, release="27.0")
INTEL_MAC = TAHOE._replace(processor="x86_64")
LINUX = Machine("Linux", 0, "x86_64", (3, 11), "6.18")
WINDOWS = Machine("Windows", 0, "x86_64", (3, 13), "11")

CPU, GPU, NPU = (
    HardwareDevice(
        type=kind,
        vendor="Apple",
        vendor_id=0x106B,
        metadata={"Description": description},
    )
    for kind, description in (
        (DeviceType.CPU, "Apple M4"),
        (DeviceType.GPU, "Apple M4 GPU"),
        (DeviceType.NPU, "Apple Neural Engine"),
    )
)
MAC = [CPU, GPU, NPU]


def offered(factory: Any, devices: list[HardwareDevice] = MAC) -> dict[str, str]:
    """By kind of device the format, or why it is refused."""
    return {
        str(each.device.type): each.default_options["ModelFormat"]
        if isinstance(each, ep.EpDevice)
        else each.reason
        for each in factory.supported_devices(devices)
    }


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (SEQUOIA, ["MLProgram"] * 3),
        (TAHOE, ["MLProgram"] * 3),
        (NEXT, ["CoreAI"] * 3),
        (INTEL_MAC, ["MLProgram"] * 3),
        (LINUX, ["CoreAI", "computes on processors, not on GPUs", "not on NPUs"]),
        (WINDOWS, ["this is Windows on x86_64"] * 3),
        (TAHOE._replace(macos=14, release="14.7"), ["this is 14.7"] * 3),
    ],
)
def test_what_is_offered(
    pretend: Callable[..., Any], where: Machine, wanted: list[str]
) -> None:
    found = offered(pretend(where))
    assert list(found) == ["cpu", "gpu", "npu"]
    for text, part in zip(found.values(), wanted, strict=True):
        assert part in text


def test_what_is_installed_decides_the_format(pretend: Callable[..., Any]) -> None:
    without_coreai = {"coremltools": "9.0"}
    assert offered(pretend(NEXT, without_coreai))["npu"] == "MLProgram"
    without_coremltools = {"coreai-core": "1.0.0b3"}
    found = offered(pretend(TAHOE, without_coremltools))
    # the runtime that the distribution brings computes on processors
    assert found["cpu"] == "CoreAI"
    assert found["gpu"] == found["npu"] == "coremltools is not installed"
    assert offered(pretend(LINUX, without_coreai))["cpu"] == (
        "coreai-core is not installed"
    )


@pytest.mark.parametrize(
    ("where", "installed", "reason", "remedy"),
    [
        (TAHOE, {}, "coremltools is not installed", "pip install"),
        (TAHOE, {"coremltools": "0.8"}, "coremltools 0.8 is installed", "pip install"),
        (
            SEQUOIA._replace(python=(3, 14)),
            {},
            "coremltools has no wheel for Python 3.14",
            "use Python 3.11 to 3.13",
        ),
        (
            LINUX._replace(python=(3, 15)),
            {},
            "coreai-core has no wheel for Python 3.15",
            "use Python 3.11 to 3.14",
        ),
        (LINUX, {}, "coreai-core is not installed", 'pip install "coreai-core'),
        (LINUX._replace(processor="aarch64"), BOTH, "this is Linux on aarch64", ""),
    ],
)
def test_what_is_missing_is_said_with_the_remedy(
    pretend: Callable[..., Any],
    where: Machine,
    installed: dict[str, str],
    reason: str,
    remedy: str,
) -> None:
    factory = pretend(where, installed)
    (refused,) = factory.supported_devices([CPU])
    assert isinstance(refused, ep.RefusedDevice)
    assert reason in refused.reason
    assert remedy in refused.remedy
    errors = [each for each in factory.diagnose() if each.level is ep.Level.ERROR]
    assert [each.message for each in errors] == [refused.reason]


def test_the_diagnosis_of_a_mac(pretend: Callable[..., Any]) -> None:
    factory = pretend(TAHOE)
    list(factory.supported_devices(MAC))
    assert [(each.level, each.message) for each in factory.diagnose()] == [
        ("ok", "macOS 26.1 on Apple M4"),
        ("ok", "Core ML (ModelFormat MLProgram) is used by coremltools 9.0"),
        ("ok", "Core AI (ModelFormat CoreAI) is used by coreai-core 1.0.0b3"),
    ]
    factory = pretend(NEXT._replace(python=(3, 14)), {"coreai-core": "1.0.0"})
    *_, last = factory.diagnose()
    assert last.level is ep.Level.WARNING
    assert last.message == (
        "Core ML (ModelFormat MLProgram) cannot be used: "
        "coremltools has no wheel for Python 3.14"
    )


@pytest.mark.parametrize(
    ("kernel", "version"),
    [("19.6.0", 10), ("20.1.0", 11), ("24.6.0", 15), ("25.0.0", 26), ("26.1.0", 27)],
)
def test_macos_is_known_by_its_kernel(
    monkeypatch: pytest.MonkeyPatch, kernel: str, version: int
) -> None:
    fake = machine_module.platform
    monkeypatch.setattr(fake, "system", lambda: "Darwin")
    monkeypatch.setattr(fake, "release", lambda: kernel)
    monkeypatch.setattr(fake, "mac_ver", lambda: ("16.0", ("", "", ""), "arm64"))
    monkeypatch.setattr(fake, "machine", lambda: "arm64")
    found = this_machine()
    assert (found.macos, found.processor, found.is_mac) == (version, "arm64", True)


def test_prefer_npu_picks_the_neural_engine(
    pretend: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = pretend(TAHOE)
    pairs = list(factory.supported_devices(MAC))
    assert not any(pair.by_name_only for pair in pairs)
    first, *_ = prefer_npu(pairs, ModelInfo())
    assert first.device is NPU


def test_elsewhere_it_is_for_those_who_name_it(pretend: Callable[..., Any]) -> None:
    (pair,) = pretend(LINUX).supported_devices([CPU])
    assert isinstance(pair, ep.EpDevice)
    assert pair.by_name_only
    assert pair.metadata["engine"] == "coreai-core"


def test_a_format_that_cannot_be_used_here_is_an_error(coreai: Any) -> None:
    with pytest.raises(OptionError, match="Core ML is a part of macOS"):
        onnxplug.InferenceSession(
            "demo/digits.onnx", providers=[("coreml", {"ModelFormat": "MLProgram"})]
        )


def test_what_computes_is_named_with_its_version(pretend: Callable[..., Any]) -> None:
    factory = pretend(TAHOE)
    (pair,) = factory.supported_devices([NPU])
    assert factory.engine_versions(pair) == {**BOTH, "macOS": "26.1"}


def test_listing_devices_imports_no_engine() -> None:
    program = (
        "import sys, onnxplug; onnxplug.get_ep_devices(); "
        "assert not {'coreai', 'coremltools'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
