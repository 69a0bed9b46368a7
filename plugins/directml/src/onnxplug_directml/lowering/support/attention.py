"""Attention of many heads."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

supports(
    "MULTIHEAD_ATTENTION",
    "QueryTensor KeyTensor ValueTensor OutputTensor: FLOATS; ranks 3 4 5",
    "StackedQueryKeyTensor StackedKeyValueTensor StackedQueryKeyValueTensor: FLOATS; "
    "ranks 5",
    "BiasTensor: FLOATS; ranks 1 2 3 4 5",
    "MaskTensor: INT32; ranks 1 2 3 4 5",
    "RelativePositionBiasTensor PastKeyTensor PastValueTensor OutputPresentKeyTensor "
    "OutputPresentValueTensor: FLOATS; ranks 4 5",
    level=level_named("6.1"),
)
