"""``onnxruntime.backend`` by onnxplug's, which there accepts any keyword."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from onnxplug.backend import OnnxplugBackend, OnnxplugBackendRep
from onnxplug_onnxruntime.session import InferenceSession, RunOptions, SessionOptions


class OnnxRuntimeBackendRep(OnnxplugBackendRep):
    """A prepared model; see :class:`onnxplug.backend.OnnxplugBackendRep`."""

    options = RunOptions
    ignores_unknown = True


class OnnxRuntimeBackend(OnnxplugBackend):
    """Prepares models; see :class:`onnxplug.backend.OnnxplugBackend`."""

    prepared = OnnxRuntimeBackendRep
    session = InferenceSession
    options = SessionOptions
    arguments: ClassVar[Collection[str]] = ()
    ignores_unknown = True


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
run_model = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device

__all__ = [
    "OnnxRuntimeBackend",
    "OnnxRuntimeBackendRep",
    "is_compatible",
    "prepare",
    "run",
    "run_model",
    "supports_device",
]
