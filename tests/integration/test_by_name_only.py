"""Pairs of EP and device that are for those who name the EP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.plugins import PluginRegistry
from onnxplug_cpu.factory import CpuFactory
from onnxplug_testing import ToyFactory

CPU = "CPUExecutionProvider"
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) '
    "{ y = Relu (x) }"
)


class ShyFactory(ToyFactory):
    """As the toy, but no policy is to choose it."""

    name = "ShyExecutionProvider"

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> list[ep.EpDevice]:
        return [
            replace(pair, ep_name=self.name, by_name_only=True)
            for pair in super().supported_devices(devices)
        ]


@pytest.fixture
def registry() -> PluginRegistry:
    registry = PluginRegistry({}, find=lambda group: [])
    registry.add(CpuFactory())
    registry.add(ShyFactory())
    return registry


def test_no_policy_is_offered_the_pair(registry: PluginRegistry) -> None:
    seen: list[ep.EpDevice] = []

    def look(pairs: Sequence[ep.EpDevice], model_info: Any) -> Sequence[ep.EpDevice]:
        seen.extend(pairs)
        return pairs

    for policy in (look, "prefer_cpu", "max_performance"):
        session = onnxplug.InferenceSession(MODEL, policy=policy, registry=registry)
        assert session.get_providers() == [CPU]
    assert {pair.ep_name for pair in seen} == {CPU}


def test_who_names_the_ep_gets_it(registry: PluginRegistry) -> None:
    session = onnxplug.InferenceSession(MODEL, providers=["shy"], registry=registry)
    assert session.get_providers() == [ShyFactory.name, CPU]
    (node,) = session.explain().nodes
    assert node.ep == ShyFactory.name
