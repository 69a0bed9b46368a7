"""ONNX operators over the Array API, one family per module."""

from onnxplug_kernels.registry import (
    Kernel,
    UnsupportedAttribute,
    WrongInputs,
    find_kernel,
)

__all__ = ["Kernel", "UnsupportedAttribute", "WrongInputs", "find_kernel"]
__version__ = "0.1.0"
