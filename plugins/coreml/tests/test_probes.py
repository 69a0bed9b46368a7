"""The probes: that they show something, and what is right passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import DeviceType, EpDevice, HardwareDevice
from onnxplug_coreml.probes import probes
from onnxplug_testing.probe_models import write

PROCESSOR = EpDevice(ep_name="x", device=HardwareDevice(type=DeviceType.CPU))
PROBES = {probe.family: probe for probe in probes(PROCESSOR)}


def test_every_probe_is_a_file_that_the_tool_writes() -> None:
    for family, probe in PROBES.items():
        assert onnx.load_from_string(probe.model) == onnx.load_from_string(
            write(family)
        )


@pytest.mark.parametrize("family", PROBES)
def test_a_probe_passes_where_results_are_right(
    alone: Callable[..., onnxplug.InferenceSession], family: str
) -> None:
    probe = PROBES[family]
    relative, absolute = probe.tolerance
    cpu = onnxplug.InferenceSession(probe.model, providers=["cpu"])
    for found, wanted in zip(
        alone(probe.model).run(None, dict(probe.inputs)),
        cpu.run(None, dict(probe.inputs)),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=relative, atol=absolute)
        assert len(np.unique(found)) > 4  # ones and zeros show nothing


def test_a_probe_is_of_its_family() -> None:
    for family, probe in PROBES.items():
        model = onnx.load_from_string(probe.model)
        names = {name for _, name, _ in probe.operators}
        if family != "attention":  # which is written as other families' operators
            assert names & {node.op_type for node in model.graph.node}, family
