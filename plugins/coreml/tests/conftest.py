"""What the tests of the EP need: its engines, and machines that this one is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug_coreml import factory, formats
from onnxplug_coreml.machine import Machine

EP = "CoreMLExecutionProvider"

BOTH = {"coremltools": "9.0", "coreai-core": "1.0.0b3"}


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., factory.CoreMLFactory]:
    """A factory on another machine, where these distributions are installed."""

    def on(machine: Machine, installed: dict[str, str] = BOTH) -> Any:
        monkeypatch.setattr(factory, "this_machine", lambda: machine)
        monkeypatch.setattr(
            formats, "distribution_version", lambda name: installed.get(name, "")
        )
        return factory.CoreMLFactory()

    return on


@pytest.fixture(scope="session")
def coreai() -> Any:
    """Core AI; without it tests are skipped, or fail if ONNXPLUG_REQUIRE names it."""
    try:
        import coreai.runtime
    except ImportError as error:
        message = f"coreai cannot be imported: {error}; make test-coreml"
        if "coreai" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return coreai.runtime


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
def alone(coreai: Any) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the CoreML EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings.add_session_config_entry("session.check_results", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make
