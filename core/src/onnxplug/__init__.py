"""onnxplug: an ONNX runtime in which every execution provider is a pip install.

Importing this package imports neither numpy nor onnx nor any plugin; names are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxplug.inquire import (
        get_available_providers,
        get_ep_devices,
        get_hardware_devices,
        get_plugins,
    )
    from onnxplug.model_info import ModelMetadata, NodeArg
    from onnxplug.options import SessionOptions
    from onnxplug.partition.report import Explanation
    from onnxplug.selection import provider
    from onnxplug.session import InferenceSession

__version__: Final = "0.1.0"

_HOME: Final = {
    "Explanation": "onnxplug.partition.report",
    "InferenceSession": "onnxplug.session",
    "ModelMetadata": "onnxplug.model_info",
    "NodeArg": "onnxplug.model_info",
    "SessionOptions": "onnxplug.options",
    "get_available_providers": "onnxplug.inquire",
    "get_ep_devices": "onnxplug.inquire",
    "get_hardware_devices": "onnxplug.inquire",
    "get_plugins": "onnxplug.inquire",
    "provider": "onnxplug.selection.request",
}

__all__ = [
    "Explanation",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "SessionOptions",
    "__version__",
    "get_available_providers",
    "get_ep_devices",
    "get_hardware_devices",
    "get_plugins",
    "provider",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onnxplug' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
