"""Which devices are offered, and what is said where something is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug_webgpu import adapters as module
from onnxplug_webgpu import diagnosis, factory
from onnxplug_webgpu.adapters import Adapter, choose, software_drivers
from onnxplug_webgpu.factory import WebGpuFactory
from onnxplug_webgpu.options import OPTIONS

CPU = HardwareDevice(type=DeviceType.CPU, vendor="Intel", vendor_id=0x8086)
AMD = HardwareDevice(
    type=DeviceType.GPU, vendor="AMD", vendor_id=0x1002, device_id=0x73BF
)
NPU = HardwareDevice(type=DeviceType.NPU, vendor="Intel", vendor_id=0x8086)


def adapter(name: str, kind: str, vendor: int, device: int, number: int = 0) -> Adapter:
    return Adapter(None, name, name, "", "Vulkan", kind, vendor, device, number)


RADEON = adapter("Radeon", "DiscreteGPU", 0x1002, 0x73BF)
IRIS = adapter("Iris", "IntegratedGPU", 0x8086, 0x9A49)
LAVAPIPE = adapter("llvmpipe", "CPU", 0x10005, 0)


def with_wgpu(monkeypatch: pytest.MonkeyPatch, version: str) -> WebGpuFactory:
    def find(name: str) -> str:
        if not version:
            raise module.importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(module.importlib.metadata, "version", find)
    return WebGpuFactory()


@pytest.mark.parametrize(
    ("version", "reason"),
    [("", "wgpu is not installed"), ("0.31.2", "wgpu 0.31.2 is older than 0.32")],
)
def test_without_its_engine_devices_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, version: str, reason: str
) -> None:
    found = list(with_wgpu(monkeypatch, version).supported_devices([CPU, AMD, NPU]))
    assert len(found) == 2
    for each in found:
        assert isinstance(each, ep.RefusedDevice)
        assert each.reason == reason
        assert "pip install" in each.remedy
    (finding,) = WebGpuFactory().diagnose()
    assert (finding.level, finding.message) == (ep.Level.ERROR, reason)


def test_policies_are_offered_gpus_and_never_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs: list[Any] = list(
        with_wgpu(monkeypatch, "0.32.0").supported_devices([CPU, AMD, NPU])
    )
    assert [(pair.device, pair.by_name_only) for pair in pairs] == [
        (CPU, True),
        (AMD, False),
    ]
    assert pairs[1].metadata == {"version": "0.1.0", "engine_version": "0.32.0"}


def test_a_driver_of_software_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = [tmp_path / "lvp_icd.x86_64.json", tmp_path / "radeon_icd.x86_64.json"]
    for path in named:
        path.write_text("{}")
    gone = tmp_path / "lvp_icd.gone.json"
    monkeypatch.setenv("VK_DRIVER_FILES", ":".join(map(str, [*named, gone])))
    assert list(software_drivers()) == named[:1]
    (pair,) = with_wgpu(monkeypatch, "0.32.0").supported_devices([CPU])
    assert isinstance(pair, ep.EpDevice)
    assert pair.metadata["adapter"] == "software, by lvp_icd.x86_64.json"


def test_a_gpu_gets_its_own_adapter() -> None:
    assert choose([IRIS, RADEON, LAVAPIPE], [AMD]) is RADEON
    # of several of one maker the one of that model
    other = adapter("Radeon Pro", "DiscreteGPU", 0x1002, 0x1111)
    assert choose([other, RADEON], [AMD]) is RADEON


def test_a_gpu_without_an_adapter_is_not_replaced_by_software() -> None:
    with pytest.raises(LookupError, match=r"no adapter is AMD; found 0: llvmpipe"):
        choose([LAVAPIPE], [AMD])


def test_who_names_the_ep_gets_the_best_adapter() -> None:
    assert choose([RADEON, IRIS, LAVAPIPE], [CPU]) is RADEON
    assert choose([RADEON, IRIS, LAVAPIPE], [CPU], power="low-power") is IRIS
    assert choose([LAVAPIPE], [CPU], power="low-power") is LAVAPIPE
    assert choose([RADEON, IRIS, LAVAPIPE], [AMD], number=2) is LAVAPIPE
    with pytest.raises(LookupError, match="there is no adapter 3"):
        choose([RADEON, IRIS, LAVAPIPE], [CPU], number=3)


LIMITS = {
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 1 << 27,
}


class Wgpu:
    """A module that lists adapters."""

    def __init__(self, *adapters: Adapter, **limits: int) -> None:
        self.gpu = self
        self._adapters = adapters
        self._limits = LIMITS | {key.replace("_", "-"): n for key, n in limits.items()}

    def enumerate_adapters_sync(self) -> list[Any]:
        return [
            SimpleNamespace(info=_info(a), limits=self._limits) for a in self._adapters
        ]


def _info(found: Adapter) -> dict[str, Any]:
    return {
        "device": found.name, "vendor": found.vendor, "description": "Mesa 1",
        "backend_type": found.backend, "adapter_type": found.kind,
        "vendor_id": found.vendor_id, "device_id": found.device_id,
    }  # fmt: skip


def diagnosed(monkeypatch: pytest.MonkeyPatch, wgpu: Wgpu) -> list[ep.Finding]:
    monkeypatch.setattr(factory, "import_wgpu", lambda: wgpu)
    return list(with_wgpu(monkeypatch, "0.32.0").diagnose())


def test_software_is_said_to_be_that(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware, software = diagnosed(monkeypatch, Wgpu(LAVAPIPE, RADEON))[:2]
    assert hardware.level is ep.Level.OK and "Radeon (Vulkan)" in hardware.message
    assert "at most 128 MiB" in hardware.message
    assert software.level is ep.Level.WARNING
    assert "computes on the processor" in software.message and software.remedy


def test_without_an_adapter_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(diagnosis.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "gone.json"))
    found = diagnosed(monkeypatch, Wgpu())
    assert all(each.level is ep.Level.ERROR and each.remedy for each in found[:3])
    said = [each.message for each in found]
    assert "no adapter" in said[0]
    assert "libvulkan.so.1" in said[1]
    assert "gone.json" in said[2]
    monkeypatch.delenv("VK_DRIVER_FILES")
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    monkeypatch.setattr(diagnosis, "described_drivers", list)
    found = diagnosed(monkeypatch, Wgpu())
    assert found[2].message == "no driver for Vulkan is installed"


def test_what_an_adapter_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    opengl = RADEON._replace(backend="OpenGL")
    reasons = [each.message for each in diagnosed(monkeypatch, Wgpu(opengl, LAVAPIPE))]
    assert "Radeon (OpenGL) is not used: OpenGL has not all of WebGPU" in reasons
    # what is used by another way lacks nothing
    assert len(diagnosed(monkeypatch, Wgpu(opengl, RADEON))) == 1
    old = Wgpu(RADEON, max_compute_invocations_per_workgroup=128)
    found = diagnosed(monkeypatch, old)
    assert "is 128, and not 256" in found[0].message
    assert found[0].remedy == "update its driver"


def test_gpus_that_the_user_may_not_use_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "renderD128").touch()
    monkeypatch.setattr(diagnosis.os, "access", lambda path, mode: False)
    (found,) = diagnosis._closed_devices(tmp_path)
    assert "renderD128" in found.message and "usermod" in found.remedy


def test_options_are_those_of_onnx_runtime_and_two_more() -> None:
    assert {
        "deviceId", "powerPreference", "forceCpuNodeNames", "preferredLayout",
        "enableGraphCapture", "enableInt64", "validationMode", "storageBufferCacheMode",
        "uniformBufferCacheMode", "queryResolveBufferCacheMode",
        "defaultBufferCacheMode", "keepCompiled", "autotune",
    } == set(OPTIONS)  # fmt: skip
    assert all(option.doc for option in OPTIONS.values())
