"""What every test of the EP needs: OpenVINO itself, and sessions on it alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug_openvino.engine import import_openvino, make_core

EP = "OpenVINOExecutionProvider"


@pytest.fixture(autouse=True, scope="session")
def openvino() -> Any:
    """OpenVINO; without it tests are skipped, or fail if ONNXPLUG_REQUIRE names it."""
    try:
        return import_openvino()
    except ImportError as error:
        message = f"openvino cannot be imported: {error}; pip install openvino"
        if "openvino" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def core(openvino: Any) -> Any:
    """OpenVINO's ``Core``, to ask what this machine has."""
    return make_core()


@pytest.fixture
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
def alone() -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the OpenVINO EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make
