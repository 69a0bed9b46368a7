"""ONNX's operators by torch's functions."""

from onnxplug_torch.operators.kernels import BY_KERNELS, kernel_operator
from onnxplug_torch.operators.registry import (
    Operator,
    all_operators,
    find_operator,
    operators_of,
)

__all__ = [
    "BY_KERNELS",
    "Operator",
    "all_operators",
    "find_operator",
    "kernel_operator",
    "operators_of",
]
