"""What options come to, and which contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.ep import DeviceType, EpDevice, HardwareDevice
from onnxplug.errors import OptionError, OptionWarning
from onnxplug.selection import parse_options
from onnxplug_coreml.options import OPTIONS, Settings, read_settings


def read(*kinds: str, default: str = "MLProgram", **given: Any) -> Settings:
    pairs = [
        EpDevice(ep_name="x", device=HardwareDevice(type=DeviceType(kind)))
        for kind in kinds or ("cpu", "gpu", "npu")
    ]
    values = {name: option.default for name, option in OPTIONS.items()} | given
    return read_settings(pairs, values, default)


@pytest.mark.parametrize(
    ("kinds", "units", "narrow"),
    [
        ("cpu gpu npu", "ALL", False),
        ("cpu", "CPUOnly", False),
        ("gpu", "CPUAndGPU", False),
        ("npu", "CPUAndNeuralEngine", True),
        ("npu cpu", "CPUAndNeuralEngine", True),
        ("gpu npu", "ALL", False),
    ],
)
def test_units_are_those_of_the_devices(kinds: str, units: str, narrow: bool) -> None:
    found = read(*kinds.split())
    assert (found.units, found.narrow) == (units, narrow)


def test_the_user_wins() -> None:
    found = read("npu", MLComputeUnits="CPUOnly")
    assert (found.units, found.narrow) == ("CPUOnly", False)
    assert read("npu", ComputePrecision="Float32").narrow is False
    assert read("cpu", ComputePrecision="Float16").narrow is True
    assert read(ModelFormat="CoreAI").model_format == "CoreAI"
    assert read(default="CoreAI").model_format == "CoreAI"


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (0x01, {"units": "CPUOnly"}),
        (0x02, {"in_bodies": True}),
        (0x04, {"units": "CPUAndNeuralEngine", "narrow": True}),
        (0x08, {"static": True}),
        (0x10, {"model_format": "MLProgram"}),
        (0x20, {"units": "CPUAndGPU"}),
        (0x3A, {"units": "CPUAndGPU", "static": True, "in_bodies": True}),
    ],
)
def test_the_bits_of_old(flags: int, wanted: dict[str, Any]) -> None:
    found = read(coreml_flags=flags)._asdict()
    assert found == {**read()._asdict(), **wanted}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"coreml_flags": 0x05}, "at most one of the bits"),
        ({"coreml_flags": 0x01, "MLComputeUnits": "ALL"}, "says CPUOnly"),
        ({"coreml_flags": 0x10, "ModelFormat": "CoreAI"}, "says MLProgram"),
        ({"ModelFormat": "CoreAI", "ProfileComputePlan": True}, "ProfileComputePlan"),
        (
            {"ModelFormat": "CoreAI", "SpecializationStrategy": "FastPrediction"},
            "goes with ModelFormat MLProgram",
        ),
    ],
)
def test_contradictions(given: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        read(**given)


def test_a_neural_network_is_an_ml_program_with_a_warning() -> None:
    with pytest.warns(OptionWarning, match="'MLProgram' serves instead"):
        values = parse_options("CoreML", OPTIONS, {"ModelFormat": "NeuralNetwork"})
    assert values["ModelFormat"] == "MLProgram"
