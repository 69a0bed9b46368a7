"""What an EP must supply, and what it may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError
from onnxplug.plugins import PluginRegistry
from onnxplug_testing.toy import ToyExecutionProvider, ToyFactory

MANDATORY = {
    "EpFactory": {"create", "name", "spi_version", "supported_devices"},
    "ExecutionProvider": {"compile", "get_capability"},
    "CompiledPartition": {"run"},
}
ABILITIES = {
    "EpFactory": {
        "compatibility": "CompatibilityCheck",
        "memory_spaces": "MemorySpaces",
        "verification": "Verification",
    },
    "ExecutionProvider": {
        "capture": "GraphCapture",
        "cost_model": "CostModel",
        "dynamic_options": "DynamicOptions",
        "serialiser": "Serialiser",
        "specialiser": "Specialiser",
    },
    "CompiledPartition": {
        "prewarmer": "Prewarmer",
        "report": "PartitionReport",
        "restorable": "Restorable",
    },
}


@pytest.mark.parametrize("name", MANDATORY)
def test_what_has_no_value_is_what_an_author_must_write(name: str) -> None:
    kind = getattr(ep, name)
    without = {each for each in kind.__annotations__ if not hasattr(kind, each)}
    assert without | set(kind.__abstractmethods__) == MANDATORY[name]


@pytest.mark.parametrize("name", ABILITIES)
def test_an_ability_is_an_object_or_none(name: str) -> None:
    kind = getattr(ep, name)
    stated = {
        each: annotation.removesuffix(" | None")
        for each, annotation in kind.__annotations__.items()
        if annotation.endswith(" | None") and getattr(kind, each) is None
    }
    classes = {each: found for each, found in stated.items() if found in ep.__all__}
    assert classes == ABILITIES[name]
    assert all(isinstance(getattr(ep, found), type) for found in classes.values())


def test_the_host_never_asks_what_a_class_overrides() -> None:
    root = Path(onnxplug.__file__).parent
    of_a_base = re.compile(
        r"\bis (not )?(ep\.)?(EpFactory|ExecutionProvider|CompiledPartition)\.\w"
    )
    assert not [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if of_a_base.search(line)
    ]


WRONG: dict[str, Any] = {
    "serialiser": True,
    "specialiser": 8,
    "capture": True,
    "cost_model": lambda graph, nodes: 1.0,
}


@pytest.mark.parametrize("name", WRONG)
def test_an_ability_of_another_class_is_a_failure_of_the_ep(name: str) -> None:
    class Factory(ToyFactory):
        def create(self, *arguments: Any) -> ep.ExecutionProvider:
            provider = ToyExecutionProvider()
            setattr(provider, name, WRONG[name])
            return provider

    registry = PluginRegistry({}, find=lambda group: [])
    registry.add(Factory())
    model = (
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[2] x) => (float[2] y) { y = Add (x, x) }"
    )
    with pytest.raises(EpError, match=rf"{name} .* expected None, or an onnxplug\.ep"):
        onnxplug.InferenceSession(
            onnx.parser.parse_model(model),
            providers=["ToyExecutionProvider"],
            registry=registry,
        )
