"""Operators of ``com.microsoft`` over the Array API, one family per module.

Source: ``docs/ContribOperators.md`` of ONNX Runtime; where it leaves something open,
what ONNX Runtime computes on the CPU.  Operators that are compositions of ONNX's have
no kernels: they are functions.
"""

from __future__ import annotations

from typing import Final

from onnxplug_kernels import Registry
from onnxplug_microsoft.names import MICROSOFT

KERNELS: Final = Registry(
    MICROSOFT,
    flags=frozenset({"channels_last", "mark", "positive", "unidirectional"}),
)
