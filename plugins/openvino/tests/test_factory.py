"""Devices, diagnosis, and that listing imports nothing heavy."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnxplug
from onnxplug.ep import (
    DeviceType,
    EpDevice,
    Finding,
    HardwareDevice,
    Level,
    RefusedDevice,
)
from onnxplug_openvino import factory as factory_module
from onnxplug_openvino.factory import OpenVINOFactory

INTEL = 0x8086


def hardware(kind: DeviceType, vendor_id: int = INTEL) -> HardwareDevice:
    return HardwareDevice(type=kind, vendor_id=vendor_id)


def test_it_drives_processors_and_intels_accelerators() -> None:
    devices = [
        hardware(DeviceType.CPU, 0x1022),
        hardware(DeviceType.GPU),
        hardware(DeviceType.GPU, 0x10DE),
        hardware(DeviceType.NPU),
        hardware(DeviceType.NPU, 0x106B),
    ]
    answers = list(OpenVINOFactory().supported_devices(devices))
    pairs = [each for each in answers if isinstance(each, EpDevice)]
    assert [pair.device for pair in pairs] == [devices[0], devices[1], devices[3]]
    assert all(pair.metadata["engine_version"] for pair in pairs)
    refused = [each for each in answers if isinstance(each, RefusedDevice)]
    assert [each.device for each in refused] == [devices[2], devices[4]]
    assert {each.reason for each in refused} == {
        "of GPUs and NPUs OpenVINO drives Intel's"
    }


def test_what_it_refuses_says_whose_it_is() -> None:
    gpu = HardwareDevice(type=DeviceType.GPU, vendor="NVIDIA", vendor_id=0x10DE)
    (refused,) = OpenVINOFactory().supported_devices([gpu])
    assert isinstance(refused, RefusedDevice)
    assert refused.reason == (
        "of GPUs and NPUs OpenVINO drives Intel's; this is of NVIDIA"
    )


def test_npus_compute_in_16_bits_unless_told_otherwise() -> None:
    (pair,) = OpenVINOFactory().supported_devices([hardware(DeviceType.NPU)])
    assert isinstance(pair, EpDevice)
    assert pair.default_options == {"precision": "FP16"}


def test_listing_devices_does_not_import_openvino() -> None:
    program = """
import sys, onnxplug
names = [pair.ep_name for pair in onnxplug.get_ep_devices()]
assert "OpenVINOExecutionProvider" in names, names
heavy = {"openvino", "numpy", "onnx"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_it_is_found_by_its_short_name() -> None:
    assert onnxplug.is_available("openvino")


def test_the_diagnosis_names_each_device() -> None:
    findings = list(OpenVINOFactory().diagnose())
    assert any(
        finding.level is Level.OK and "drives CPU" in finding.message
        for finding in findings
    )
    assert all(finding.remedy for finding in findings if finding.level is not Level.OK)


def findings(monkeypatch: pytest.MonkeyPatch, **names: object) -> list[Finding]:
    for name, value in names.items():
        monkeypatch.setattr(factory_module, name, value)
    return list(OpenVINOFactory().diagnose())


def test_the_diagnosis_tells_how_to_install_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ImportError("libtbb.so.12: cannot open shared object file")

    (finding,) = findings(monkeypatch, import_openvino=fail)
    assert finding.level is Level.ERROR and "libtbb.so.12" in finding.message
    assert finding.remedy is not None and "pip install" in finding.remedy


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are looked for on Linux")
def test_the_diagnosis_tells_of_a_library_and_drivers_that_are_missing(
    monkeypatch: pytest.MonkeyPatch, core: Any
) -> None:
    if core.available_devices != ["CPU"]:
        pytest.skip("this machine has an accelerator")
    nodes = {"/dev/dri": ["renderD128"], "/dev/accel": ["accel0"]}

    def listed(self: Path, pattern: str) -> list[Path]:
        return [self / name for name in nodes.get(str(self), [])]

    monkeypatch.setattr(Path, "glob", listed)
    told = findings(monkeypatch, _loads=lambda library: True)
    warnings = [f"{f.message}: {f.remedy}" for f in told if f.level is Level.WARNING]
    gpu, npu = warnings
    assert "there is a GPU" in gpu and "intel-opencl-icd" in gpu
    assert "there is an accelerator" in npu and "linux-npu-driver" in npu

    nodes.clear()
    told = findings(monkeypatch, _loads=lambda library: False)
    (missing,) = [f for f in told if f.level is Level.WARNING]
    assert "libOpenCL.so.1 is not found" in missing.message
    assert missing.remedy is not None and "ocl-icd-libopencl1" in missing.remedy


def test_without_its_engine_it_drives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (refused,) = OpenVINOFactory().supported_devices([hardware(DeviceType.CPU)])
    assert isinstance(refused, RefusedDevice)
    assert refused.reason == "openvino is not installed"
    assert refused.remedy.startswith("pip install")
    answer = onnxplug.is_available("openvino")
    assert answer.reason == (
        "OpenVINOExecutionProvider cannot be used: openvino is not installed"
    )
    assert answer.remedy.startswith("pip install")


def test_the_telemetry_package_is_not_imported() -> None:
    program = """
import sys, numpy as np, onnx, onnxplug
model = onnx.parser.parse_model('''
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[2] x) => (float[2] y) { y = Relu (x) }
''')
session = onnxplug.InferenceSession(model, providers=["openvino"])
session.run(None, {"x": np.ones(2, np.float32)})
assert "openvino" in sys.modules
heavy = [name for name in sys.modules if name.startswith("openvino_telemetry")]
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
