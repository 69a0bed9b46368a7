"""onnxplug by all names of ONNX Runtime, for programs that were written for that.

``import onnxplug_onnxruntime as ort`` in a program; or, for programs that are not to be
changed, :func:`install`, and on the command line ``python -m onnxplug_onnxruntime
program.py …``.

What onnxplug has by the same name is that; what only old programs ask for is here, and
imported when it is first asked for.
"""

from __future__ import annotations

from typing import Any, Final

__version__: Final = "1.32.0"
"""The version of ONNX Runtime whose names these are."""

_HOME: Final = {
    "callback": "set_default_logger_callback",
    "devices": """
        OrtDeviceEpIncompatibilityReason OrtEpDevice OrtHardwareDevice
        OrtHardwareDeviceType OrtSyncStream get_ep_devices
        get_hardware_device_ep_incompatibility_details get_hardware_devices
        get_model_compatibility_for_ep_devices
    """,
    "memory": """
        OrtAllocatorType OrtArenaCfg OrtDevice OrtDeviceMemoryType OrtDeviceVendorId
        OrtMemType OrtMemoryInfo OrtMemoryInfoDeviceType create_and_register_allocator
        create_and_register_allocator_v2 get_ort_device_type
    """,
    "process": """
        disable_telemetry_events enable_telemetry_events get_build_info
        get_version_string has_collective_ops preload_dlls print_debug_info
        set_default_logger_verbosity set_global_thread_pool_sizes
    """,
    "native": "SessionIOBinding",
    "providers": "check_and_normalize_provider_args",
    "session": """
        InferenceSession RunOptions Session SessionOptions get_default_session_options
    """,
    "sparse": "OrtSparseFormat SparseCooView SparseCsrView SparseTensor",
    "stand_in": "install",
    "values": "IOBinding OrtValue OrtValueVector copy_tensors is_dlpack_uint8_tensor",
}
"""Module of this package to the names that it lends to it."""

_ELSEWHERE: Final = {
    "OrtEpAssignedNode": "onnxplug.partition.assigned",
    "OrtEpAssignedSubgraph": "onnxplug.partition.assigned",
}

_SHARED: Final = frozenset(
    """
    ExecutionMode ExecutionOrder GraphOptimizationLevel ModelCompiler ModelMetadata
    NodeArg OrtCompileApiFlags OrtCompiledModelCompatibility OrtEpContextData
    OrtEpContextDataBuffer OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo
    get_all_providers get_available_providers
    get_compatibility_info_from_model get_compatibility_info_from_model_bytes get_device
    register_execution_provider_library set_default_logger_severity set_seed
    unregister_execution_provider_library
    """.split()
)
"""What is the same here as in onnxplug."""

ERRORS: Final = frozenset(
    """
    DeviceReset EPFail EngineError Fail InvalidArgument InvalidGraph InvalidProtobuf
    ModelLoadCanceled ModelLoaded ModelRequiresCompilation NoModel NoSuchFile NotFound
    NotImplemented RuntimeException
    """.split()
)
"""Classes of errors, which ONNX Runtime has in its module of native code."""

_VALUES: Final = {
    "cuda_version": "",
    "package_name": "onnxruntime",
    "version": __version__,
}

_INNER: Final = frozenset(
    """
    capi _pybind_state build_and_package_info onnxruntime_inference_collection
    onnxruntime_pybind11_state onnxruntime_validation
    """.split()
)
"""Modules of ONNX Runtime, all of whose names are here."""

__all__ = sorted(
    {
        *(name for names in _HOME.values() for name in names.split()),
        *_ELSEWHERE,
        *_SHARED,
        *_VALUES,
        "__version__",
    }
    - {"install"}
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = next((home for home in _HOME if name in _HOME[home].split()), None)
    if home is not None:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    elif name in _ELSEWHERE:
        value = getattr(import_module(_ELSEWHERE[name]), name)
    elif name in _SHARED:
        value = getattr(import_module("onnxplug"), name)
    elif name in ERRORS:
        value = getattr(import_module("onnxplug.errors"), name)
    elif name in _VALUES:
        value = _VALUES[name]
    elif name == "backend":
        value = import_module(f"{__name__}.backend")
    elif name in _INNER:
        value = import_module(__name__)
    else:
        raise AttributeError(
            f"onnxplug has no {name!r}, under that name of ONNX Runtime's; what is "
            "missing is in the list of docs/how-to/move-from-onnxruntime.md"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
