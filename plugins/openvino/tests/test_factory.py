"""Devices, diagnosis, and that listing imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import onnxplug
from onnxplug.ep import DeviceType, HardwareDevice, Level
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
    pairs = list(OpenVINOFactory().supported_devices(devices))
    assert [pair.device for pair in pairs] == [devices[0], devices[1], devices[3]]
    assert all(pair.metadata["engine_version"] for pair in pairs)


def test_npus_compute_in_16_bits_unless_told_otherwise() -> None:
    (pair,) = OpenVINOFactory().supported_devices([hardware(DeviceType.NPU)])
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
