"""What tests on a card need: a GPU of NVIDIA's, and sessions on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import onnxplug
from onnxplug.plugins import registry
from onnxplug_cuda.factory import CudaFactory

EP = "CUDAExecutionProvider"


@pytest.fixture(autouse=True)
def uninstalled() -> None:
    """Overrides that of the tests beside the stand-in: the EP is what is tested."""


@pytest.fixture(scope="session", autouse=True)
def card() -> Iterator[Any]:
    """CuPy, where it finds a GPU; without one tests are skipped, or fail if
    ONNXPLUG_REQUIRE names card."""
    try:
        import cupy

        message = "" if cupy.cuda.runtime.getDeviceCount() else "CuPy finds no GPU"
    except Exception as error:  # noqa: BLE001 (CuPy's, of its parts, or of loading)
        message = f"{type(error).__name__}: {error}"
    if message:
        message += "; make test-cuda is for machines with a GPU of NVIDIA's"
        if "card" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    is_installed = EP in [record.name for record in registry.records()]
    if not is_installed:
        onnxplug.register_ep_library("cuda", CudaFactory())
    yield cupy
    if not is_installed:
        onnxplug.unregister_ep_library("cuda")


@pytest.fixture
def alone() -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the EP, and whose results are looked at."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        settings.add_session_config_entry("session.check_results", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make
