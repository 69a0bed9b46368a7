"""Recurrent operators."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import supports

_COMMON = (
    "InputTensor WeightTensor RecurrenceTensor BiasTensor HiddenInitTensor "
    "OutputSequenceTensor OutputSingleTensor: FLOATS; ranks 4"
)
_LENGTHS = "SequenceLengthsTensor: UINT32; ranks 4"

supports("RNN GRU", _COMMON, _LENGTHS)
supports(
    "LSTM",
    _COMMON,
    "CellMemInitTensor PeepholeTensor OutputCellSingleTensor: FLOATS; ranks 4",
    _LENGTHS,
)
