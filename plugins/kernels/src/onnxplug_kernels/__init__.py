"""ONNX operators over the Array API, one family per module."""

from onnxplug_kernels.registry import (
    Kernel,
    UnsupportedAttribute,
    WrongInputs,
    all_operators,
    find_kernel,
    is_refusal,
    kernels_of,
)

__all__ = [
    "Kernel",
    "UnsupportedAttribute",
    "WrongInputs",
    "all_operators",
    "find_kernel",
    "is_refusal",
    "kernels_of",
]
__version__ = "0.1.0"
