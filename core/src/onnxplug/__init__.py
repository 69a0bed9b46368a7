"""onnxplug: an ONNX runtime in which every execution provider is a pip install.

Importing this package imports neither numpy nor onnx nor any plugin; names are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnxplug import forks as _forks  # noqa: F401  # before anything else is imported

if TYPE_CHECKING:
    from onnxplug import ep, errors
    from onnxplug.calibration.calibrate import calibrate
    from onnxplug.compatibility import (
        OrtCompiledModelCompatibility,
        get_compatibility_info_from_model,
        get_compatibility_info_from_model_bytes,
        get_model_compatibility_for_ep_devices,
    )
    from onnxplug.context_data import OrtEpContextData, OrtEpContextDataBuffer
    from onnxplug.levels import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
    from onnxplug.options import RunOptions, SessionOptions
    from onnxplug.partition.report import Explanation
    from onnxplug.plugins import (
        register_ep_library,
        register_execution_provider_library,
        unregister_ep_library,
        unregister_execution_provider_library,
    )
    from onnxplug.process import (
        get_build_info,
        get_device,
        get_version_string,
        set_default_logger_severity,
        set_seed,
    )
    from onnxplug.queries import (
        get_all_providers,
        get_available_providers,
        get_ep_devices,
        get_hardware_devices,
        get_plugins,
        is_available,
        supported_by_platform,
    )
    from onnxplug.selection import (
        OrtExecutionProviderDevicePolicy,
        get_default_providers,
        provider,
        set_default_providers,
    )
    from onnxplug.session.io_binding import IOBinding
    from onnxplug.session.model_compiler import (
        ModelCompiler,
        OrtCompileApiFlags,
        OrtExternalInitializerInfo,
    )
    from onnxplug.session.model_info import ModelMetadata, NodeArg
    from onnxplug.session.ort_value import OrtValue
    from onnxplug.session.session import InferenceSession

__version__: Final = "0.1.0"

_HOME: Final = {
    "onnxplug.calibration.calibrate": ("calibrate",),
    "onnxplug.queries": (
        "get_all_providers",
        "get_available_providers",
        "get_ep_devices",
        "get_hardware_devices",
        "get_plugins",
        "is_available",
        "supported_by_platform",
    ),
    "onnxplug.session.io_binding": ("IOBinding",),
    "onnxplug.session.model_info": ("ModelMetadata", "NodeArg"),
    "onnxplug.compatibility": (
        "OrtCompiledModelCompatibility",
        "get_compatibility_info_from_model",
        "get_compatibility_info_from_model_bytes",
        "get_model_compatibility_for_ep_devices",
    ),
    "onnxplug.context_data": ("OrtEpContextData", "OrtEpContextDataBuffer"),
    "onnxplug.levels": (
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
    ),
    "onnxplug.options": ("RunOptions", "SessionOptions"),
    "onnxplug.session.ort_value": ("OrtValue",),
    "onnxplug.partition.report": ("Explanation",),
    "onnxplug.plugins": (
        "register_ep_library",
        "register_execution_provider_library",
        "unregister_ep_library",
        "unregister_execution_provider_library",
    ),
    "onnxplug.process": (
        "get_build_info",
        "get_device",
        "get_version_string",
        "set_default_logger_severity",
        "set_seed",
    ),
    "onnxplug.selection": (
        "OrtExecutionProviderDevicePolicy",
        "get_default_providers",
        "provider",
        "set_default_providers",
    ),
    "onnxplug.session.model_compiler": (
        "ModelCompiler",
        "OrtCompileApiFlags",
        "OrtExternalInitializerInfo",
    ),
    "onnxplug.session.session": ("InferenceSession",),
}
"""Module to the names that it lends to the package."""

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "Explanation",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "calibrate",
    "ep",
    "errors",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "get_default_providers",
    "get_device",
    "get_ep_devices",
    "get_hardware_devices",
    "get_model_compatibility_for_ep_devices",
    "get_plugins",
    "get_version_string",
    "is_available",
    "provider",
    "register_ep_library",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_providers",
    "set_seed",
    "supported_by_platform",
    "unregister_ep_library",
    "unregister_execution_provider_library",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("ep", "errors"):
        return importlib.import_module(f"onnxplug.{name}")
    home = next((module for module, names in _HOME.items() if name in names), None)
    if home is None:
        where = "; all names of ONNX Runtime are in onnxplug_onnxruntime, which the "
        where += "distribution onnxplug-onnxruntime has"
        raise AttributeError(
            f"module 'onnxplug' has no attribute {name!r}"
            f"{'' if name.startswith('_') else where}"
        )
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
