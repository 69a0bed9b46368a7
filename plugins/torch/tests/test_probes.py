"""The probes: that they show something, and what is right passes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_torch.probes import probes

TOOL = Path(__file__).parents[1] / "tools" / "write_probes.py"
PROBES = {probe.family: probe for probe in probes()}


def load_tool() -> Any:
    specification = importlib.util.spec_from_file_location("write_probes", TOOL)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_probe_is_a_file_that_the_tool_writes() -> None:
    tool = load_tool()
    assert PROBES.keys() == tool.MODELS.keys()
    for family, probe in PROBES.items():
        assert onnx.load_from_string(probe.model) == onnx.load_from_string(
            tool.write(family)
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
