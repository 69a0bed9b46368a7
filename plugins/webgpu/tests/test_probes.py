"""The probes: that they show something, and what is right passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug_compiler.gpu.probes import probes
from onnxplug_testing.probe_models import write
from onnxplug_webgpu import factory
from onnxplug_webgpu.factory import WebGpuFactory

PROBES = {probe.family: probe for probe in probes()}


def test_every_probe_is_a_file_that_the_tool_writes() -> None:
    for family, probe in PROBES.items():
        written = onnx.load_from_string(write(family))
        assert onnx.load_from_string(probe.model) == written


def test_a_probe_is_of_its_family() -> None:
    for family, probe in PROBES.items():
        model = onnx.load_from_string(probe.model)
        names = {name for _, name, _ in probe.operators}
        assert names & {node.op_type for node in model.graph.node}, family


@pytest.mark.parametrize("family", PROBES)
def test_a_probe_passes_where_results_are_right(family: str, alone: Any) -> None:
    probe = PROBES[family]
    relative, absolute = probe.tolerance
    session = alone(probe.model)
    found = session.run(None, dict(probe.inputs))
    cpu = onnxplug.InferenceSession(probe.model, providers=["cpu"])
    for ours, wanted in zip(found, cpu.run(None, dict(probe.inputs)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=relative, atol=absolute)
    # ones and zeros show nothing, but where there is nothing else
    kinds = max(len(np.unique(each)) for each in found)
    assert kinds > (4 if family != "bytes" else 1)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_drivers_of_software_are_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = ep.HardwareDevice(type=ep.DeviceType.CPU, vendor="v", vendor_id=1)
    gpu = ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="v", vendor_id=1)
    for device, drivers, count in (
        (processor, ["lvp"], 0),
        (processor, [], len(PROBES)),
        (gpu, ["lvp"], len(PROBES)),
    ):
        monkeypatch.setattr(factory, "software_drivers", lambda found=drivers: found)
        pair = ep.EpDevice(ep_name=WebGpuFactory.name, device=device)
        assert len([*WebGpuFactory.verification.probes(pair)]) == count
