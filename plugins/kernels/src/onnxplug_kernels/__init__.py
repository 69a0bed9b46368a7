"""ONNX operators over the Array API, one family per module."""

from onnxplug_kernels.registry import (
    Kernel,
    Registry,
    UnsupportedAttribute,
    WrongInputs,
    all_operators,
    find_kernel,
    function_of,
    is_refusal,
    kernels_of,
)

__all__ = [
    "Kernel",
    "Registry",
    "UnsupportedAttribute",
    "WrongInputs",
    "all_operators",
    "find_kernel",
    "function_of",
    "is_refusal",
    "kernels_of",
]
__version__ = "0.1.0"
