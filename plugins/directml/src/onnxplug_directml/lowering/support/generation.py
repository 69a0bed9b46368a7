"""Operators that make elements of numbers."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

supports("FILL_VALUE_CONSTANT FILL_VALUE_SEQUENCE", "OutputTensor: ALL")
supports("DIAGONAL_MATRIX", "OutputTensor: FLOATS INTS; ranks 2 3 4")
supports("DIAGONAL_MATRIX", "OutputTensor: ALL; ranks 2 3 4", level=level_named("5.1"))
supports(
    "DIAGONAL_MATRIX1",
    "InputTensor OutputTensor: ALL; ranks 2 3 4",
    level=level_named("5.1"),
)
