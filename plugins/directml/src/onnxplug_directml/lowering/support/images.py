"""Operators on pictures: resampling and regions."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

supports(
    "RESAMPLE2",
    "InputTensor OutputTensor: FLOATS; ranks 1 2 3 4",
    level=level_named("5.1"),
)
supports(
    "ROI_ALIGN1",
    "InputTensor OutputTensor: FLOATS; ranks 4",
    "ROITensor: FLOATS; ranks 2 3 4",
    "BatchIndicesTensor: UINT64 UINT32; ranks 1 2 3 4",
)
supports("ROI_POOLING", "InputTensor ROITensor OutputTensor: FLOATS; ranks 4")
