"""What options come to, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.ep import DeviceType
from onnxplug.errors import OptionError, OptionWarning
from onnxplug.selection import parse_options
from onnxplug_directml.abi.directml import DML_EXECUTION_FLAGS
from onnxplug_directml.options import OPTIONS, Settings, read_settings

OF_ONNXRUNTIME = (
    "device_id device_filter performance_preference disable_metacommands "
    "enable_graph_capture enable_graph_serialization enable_cpu_sync_spinning "
    "disable_graph_fusion disable_memory_arena"
).split()
"""Its provider options and its config entries, as in onnxruntime-windowsml."""


def parsed(**given: Any) -> dict[str, Any]:
    return dict(parse_options("DmlExecutionProvider", OPTIONS, given))


def read(**given: Any) -> Settings:
    return read_settings(parsed(**given))


def test_onnx_runtimes_options_are_all_known() -> None:
    assert set(OPTIONS) == {*OF_ONNXRUNTIME, "dll_path"}


def test_nothing_said_is_what_onnx_runtime_does() -> None:
    found = read()
    assert found.number == 0
    assert found.kinds == {DeviceType.GPU}
    assert found.preference == "default"
    assert found.flags == DML_EXECUTION_FLAGS.NONE
    assert not (found.captures or found.writes_graphs or found.spins or found.dll_path)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"device_id": "2"}, {"number": 2}),
        ({"device_filter": "npu"}, {"kinds": {DeviceType.NPU}}),
        ({"device_filter": "any"}, {"kinds": {DeviceType.GPU, DeviceType.NPU}}),
        ({"performance_preference": "minimum_power"}, {"preference": "minimum_power"}),
        (
            {"disable_metacommands": "True"},
            {"flags": DML_EXECUTION_FLAGS.DISABLE_META_COMMANDS},
        ),
        ({"enable_graph_capture": "1"}, {"captures": True}),
        ({"enable_graph_serialization": "true"}, {"writes_graphs": True}),
        ({"enable_cpu_sync_spinning": True}, {"spins": True}),
        ({"dll_path": "C:/apps/DirectML.dll"}, {"dll_path": "C:/apps/DirectML.dll"}),
    ],
)
def test_an_option_says_what_it_does_in_onnx_runtime(
    given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = read(**given)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device_filter": "tpu"}, "gpu.*npu.*any"),
        ({"performance_preference": "fast"}, "default.*high.*minimum_power"),
        ({"device_id": "-2"}, "-1"),
        ({"device_id": "first"}, "device_id"),
        ({"disable_metacommands": "perhaps"}, "disable_metacommands"),
        ({"disable_metacommand": "1"}, "disable_metacommands"),
    ],
)
def test_other_values_are_refused_with_those_that_are_allowed(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        parsed(**given)


@pytest.mark.parametrize("name", ["disable_graph_fusion", "disable_memory_arena"])
def test_what_has_no_effect_is_said(name: str) -> None:
    with pytest.warns(OptionWarning, match=name):
        parsed(**{name: "1"})
