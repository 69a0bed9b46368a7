"""What the tests of the EP need: an adapter, and sessions on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest

import onnxplug

EP = "WebGpuExecutionProvider"


@pytest.fixture(scope="session")
def adapter() -> Any:
    """An adapter; without one tests are skipped, or fail if ONNXPLUG_REQUIRE names
    webgpu."""
    from onnxplug_webgpu.adapters import find_adapters, import_wgpu

    try:
        found = find_adapters(import_wgpu())
        message = "" if found else "wgpu finds no adapter"
    except RuntimeError as error:
        found, message = [], str(error)
    if not found:
        message += "; make test-webgpu brings one of software"
        if "webgpu" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return found[0]


@pytest.fixture
def device(adapter: Any) -> Iterator[Any]:
    """The device of the sessions, which is made anew for the next test."""
    from onnxplug.ep import MemoryLocation
    from onnxplug.plugins import registry

    held = registry.contexts.at(MemoryLocation("webgpu", 0))
    found = held.context.device
    kept = found.adapter
    yield found
    found.adapter = kept
    found.lose()
    found.ensure()


@pytest.fixture(scope="session")
def parse() -> Callable[..., onnx.ModelProto]:
    """A model from the text of its nodes."""

    def parse_text(
        body: str, inputs: str = "float[2, 3] x", outputs: str = "float[2, 3] y",
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
def alone(adapter: Any) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings.add_session_config_entry("session.check_results", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make


@pytest.fixture
def beside(adapter: Any) -> Callable[..., onnxplug.InferenceSession]:
    """A session with the CPU EP after this one."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        eps = [(EP, options), "CPUExecutionProvider"]
        return onnxplug.InferenceSession(model, providers=eps)

    return make
