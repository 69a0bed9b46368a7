"""The probes: that they show something, and what is right passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import DataType, DeviceType, EpDevice, HardwareDevice
from onnxplug_directml.lowering.call import RULES
from onnxplug_directml.probes import probes
from onnxplug_testing.probe_models import write

ADAPTER = EpDevice(ep_name="x", device=HardwareDevice(type=DeviceType.GPU))
PROBES = {probe.family: probe for probe in probes(ADAPTER)}


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
        assert len(np.unique(found)) > 1


def test_each_operator_is_of_a_family_in_each_type() -> None:
    """Those that all have codes in them by their codes only."""
    covered = {key for probe in PROBES.values() for key in probe.operators}
    for (domain, operator), rule in RULES.items():
        assert (domain, operator, DataType.FLOAT16) in covered
        assert (domain, operator, DataType.UINT8) in covered
        if not rule.__module__.endswith(".quantization"):
            assert (domain, operator, DataType.FLOAT32) in covered, operator
