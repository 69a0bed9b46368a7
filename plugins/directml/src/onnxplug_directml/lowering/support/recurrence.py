"""Recurrent operators."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import supports

_COMMON = (
    "InputTensor=WeightTensor=RecurrenceTensor=BiasTensor=HiddenInitTensor"
    "=OutputSequenceTensor=OutputSingleTensor"
)
_LENGTHS = "SequenceLengthsTensor: UINT32; ranks 4"

supports("RNN GRU", f"{_COMMON}: FLOATS; ranks 4", _LENGTHS)
supports(
    "LSTM",
    f"{_COMMON}=CellMemInitTensor=PeepholeTensor=OutputCellSingleTensor: FLOATS; "
    "ranks 4",
    _LENGTHS,
)
