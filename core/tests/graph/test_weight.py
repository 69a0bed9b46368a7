"""Weights that are made when they are asked for."""

from __future__ import annotations

import gc

import numpy as np

from onnxplug.ep import DataType
from onnxplug.graph.weight import LARGE, Weight


def test_a_large_computed_weight_lives_as_long_as_it_is_used():
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.ones(LARGE, np.uint8)

    weight = Weight.computed(DataType.UINT8, (LARGE,), compute)
    assert not calls
    array = weight.array
    assert weight.array is array and not array.flags.writeable
    assert len(calls) == 1
    del array
    gc.collect()
    assert weight.array.sum() == LARGE
    assert len(calls) == 2
    assert bytes(weight.raw()[:3]) == b"\1\1\1"


def test_a_small_one_is_kept():
    weight = Weight.computed(DataType.UINT8, (3,), lambda: np.ones(3, np.uint8))
    assert weight.array is weight.array
