"""Operators that move elements, and change none."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import supports

supports("SLICE1 PADDING1 TILE", "InputTensor OutputTensor: ALL")
supports("SPLIT", "InputTensor OutputTensors: ALL")
supports("JOIN", "InputTensors OutputTensor: ALL")
supports("DEPTH_TO_SPACE1 SPACE_TO_DEPTH1", "InputTensor OutputTensor: ALL; ranks 4")
supports(
    "REVERSE_SUBSEQUENCES",
    "InputTensor OutputTensor: FLOATS INTS; ranks 4 5",
    "SequenceLengthsTensor: UINT32; ranks 4 5",
)
