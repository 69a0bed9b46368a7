"""What is computed row by row, as a target gives it."""

from __future__ import annotations

from onnxplug_cpu.compiler.kernels.normalization.norm import record_norm
from onnxplug_cpu.compiler.kernels.normalization.softmax import record_softmax

__all__ = ["record_norm", "record_softmax"]
