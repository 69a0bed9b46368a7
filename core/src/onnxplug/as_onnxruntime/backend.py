"""``onnxruntime.backend`` by onnxplug's."""

from __future__ import annotations

from onnxplug.backend import OnnxplugBackend as OnnxRuntimeBackend
from onnxplug.backend import OnnxplugBackendRep as OnnxRuntimeBackendRep
from onnxplug.backend import is_compatible, prepare, run, run_model, supports_device

__all__ = [
    "OnnxRuntimeBackend",
    "OnnxRuntimeBackendRep",
    "is_compatible",
    "prepare",
    "run",
    "run_model",
    "supports_device",
]
