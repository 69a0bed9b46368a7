"""Operators that read and write elements at indices."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import supports

_INDICES = "IndicesTensor: INT64 INT32 UINT64 UINT32"

supports("GATHER GATHER_ELEMENTS GATHER_ND1", "InputTensor OutputTensor: ALL", _INDICES)
supports(
    "SCATTER_ELEMENTS SCATTER_ND",
    "InputTensor UpdatesTensor OutputTensor: ALL",
    _INDICES,
)
supports("ONE_HOT", "ValuesTensor OutputTensor: ALL", _INDICES)
supports(
    "TOP_K1",
    "InputTensor OutputValueTensor: ALL",
    "OutputIndexTensor: UINT64 UINT32",
)
