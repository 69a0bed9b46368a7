"""The on-device check, on the stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug_compiler.gpu.probes import WIDE, probes
from onnxplug_cuda.factory import CudaFactory
from onnxplug_testing.probe_models import write

PROBES = {probe.family: probe for probe in probes(wide=True)}


@pytest.mark.parametrize("family", PROBES)
def test_a_probe_passes_where_results_are_right(family: str, alone: Any) -> None:
    probe = PROBES[family]
    relative, absolute = probe.tolerance
    session = alone(probe.model)
    found = session.run(None, dict(probe.inputs))
    cpu = onnxplug.InferenceSession(probe.model, providers=["cpu"])
    for ours, wanted in zip(found, cpu.run(None, dict(probe.inputs)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=relative, atol=absolute)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


@pytest.mark.parametrize("family", WIDE)
def test_a_probe_is_a_file_that_the_tool_writes(family: str) -> None:
    model = onnx.load_from_string(PROBES[family].model)
    assert model == onnx.load_from_string(write(family))


def test_gpus_are_checked_before_they_are_used() -> None:
    gpu = ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="NVIDIA", vendor_id=0x10DE)
    pair = ep.EpDevice(ep_name=CudaFactory.name, device=gpu)
    assert CudaFactory.verification is not None
    assert {each.family for each in CudaFactory.verification.probes(pair)} == {*PROBES}
