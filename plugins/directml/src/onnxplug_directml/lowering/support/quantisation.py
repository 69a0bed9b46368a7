"""Quantisation in blocks."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

supports(
    "DEQUANTIZE",
    "InputTensor: INT8 INT4 UINT8 UINT4",
    "QuantizationTensors: FLOATS INT8 INT4 UINT8 UINT4",
    "OutputTensor: FLOATS",
    level=level_named("6.3"),
)
