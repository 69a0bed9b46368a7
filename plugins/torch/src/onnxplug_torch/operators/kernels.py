"""Operators that torch has no function for, by the kernels of ``onnxplug-kernels``.

Their arrays are tensors on the same device: nothing goes to the CPU EP and back.
They look at sizes and counts on the host, so it waits for the device there.
"""

from __future__ import annotations

from typing import Any, Final

from onnxplug_kernels import find_kernel
from onnxplug_torch.operators.registry import Operator

_COMPILED_ELSEWHERE: Final = frozenset({"Resize", "RoiAlign"})
"""What the CPU EP has compiled loops for, and kernels loops in Python: on a processor
the former are as near."""

BY_KERNELS: Final = frozenset(
    "AffineGrid BlackmanWindow CausalConvWithState CenterCropPad DeformConv "
    "HammingWindow HannWindow LinearAttention MeanVarianceNormalization "
    "MelWeightMatrix NonMaxSuppression RoiAlign STFT SwiGLU Unique".split()
)
"""What is computed by kernels alone, known without importing them."""

_DEVICES: Final = frozenset({"cpu", "cuda"})
"""Kinds of torch's devices whose float64, in which some kernels compute, is whole."""


def kernel_operator(
    domain: str, op_type: str, version: int, device: Any
) -> Operator | None:
    """What computes an operator on *device*, if a kernel is right there."""
    kernel = find_kernel(domain, op_type, version)
    if kernel is None or not kernel.portable or device.type not in _DEVICES:
        return None
    if device.type == "cpu" and op_type in _COMPILED_ELSEWHERE:
        return None
    return Operator(
        kernel,
        types=kernel.portable,
        other={},
        host=frozenset(),
        check=None,
        waits=True,
        prepare=None,
        is_kernel=True,
        traced=False,
    )
