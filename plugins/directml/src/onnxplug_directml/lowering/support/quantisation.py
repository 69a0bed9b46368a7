"""Quantisation in blocks; graphs have no types of 4 bits, which DirectML takes."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

supports(
    "DEQUANTIZE",
    "InputTensor: BYTES",
    "QuantizationTensors: FLOATS BYTES",
    "OutputTensor: FLOATS",
    level=level_named("6.3"),
)
