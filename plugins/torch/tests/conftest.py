"""What the tests of the EP need: torch itself, and sessions on it alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnx
import pytest

import onnxplug

EP = "TorchExecutionProvider"


@pytest.fixture(scope="session")
def torch() -> Any:
    """torch; without it tests are skipped, or fail if ONNXPLUG_REQUIRE names it."""
    try:
        import torch
    except ImportError as error:
        message = f"torch cannot be imported: {error}; make test-torch"
        if "torch" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return torch


@pytest.fixture(scope="session")
def parse() -> Callable[..., onnx.ModelProto]:
    """A model from the text of its nodes."""

    def parse_text(
        body: str, inputs: str = "float[2, 2] x", outputs: str = "float[2, 2] y",
        opset: int = 21, weights: str = "",
    ) -> onnx.ModelProto:  # fmt: skip
        held = f"<{weights}>" if weights else ""
        return onnx.parser.parse_model(
            f"""
            < ir_version: 10, opset_import: ["" : {opset}] >
            agraph ({inputs}) => ({outputs}) {held} {{ {body} }}
            """
        )

    return parse_text


@pytest.fixture
def alone(torch: Any) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the torch EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings.add_session_config_entry("session.check_results", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make
