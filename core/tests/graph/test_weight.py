"""Weights that are made when they are asked for."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from onnxplug.ep import DataType
from onnxplug.graph import packing
from onnxplug.graph.packing import from_raw
from onnxplug.graph.weight import LARGE, Weight


def test_a_large_computed_weight_lives_as_long_as_it_is_used():
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.ones(LARGE, np.uint8)

    weight = Weight.computed(DataType.UINT8, (LARGE,), compute, method="", of=[])
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
    weight = Weight.computed(
        *(DataType.UINT8, (3,), lambda: np.ones(3, np.uint8)), method="", of=[]
    )
    assert weight.array is weight.array


def test_an_array_of_another_form_is_held_as_eps_take_arrays():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (x.astype(x.dtype.newbyteorder("S")), x.T.copy().T, x.view(np.matrix)):
        weight = Weight.from_array(array)
        assert type(weight.array) is np.ndarray
        assert weight.array.dtype is np.dtype(np.float32)
        assert weight.array.flags.c_contiguous and not weight.array.flags.writeable
        assert weight.raw().tobytes() == x.tobytes()
    usual = x.copy()
    assert Weight.from_array(usual).array is usual
    with pytest.raises(TypeError, match="no ONNX element type"):
        Weight.from_array(x.astype("M8[s]"))


def test_a_large_copy_of_few_bits_is_not_kept() -> None:
    raw = np.full(LARGE, 0x21, np.uint8)
    shape = (2, LARGE)
    weight = Weight(
        DataType.UINT4,
        shape,
        lambda: from_raw(raw.data, DataType.UINT4, shape),
        raw.data,
    )
    array = weight.array
    assert weight.array is array
    kept = weakref.ref(array)
    del array
    gc.collect()
    assert kept() is None
    assert [int(code) for code in weight.array[1, :3]] == [1, 2, 1]


def test_what_begins_at_any_byte_is_copied_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "_PIECE", 8)
    wanted = np.arange(5, dtype=np.float32)
    raw = memoryview(b"-" + wanted.tobytes())[1:]
    found = from_raw(raw, DataType.FLOAT32, (5,))
    assert found.flags.aligned
    np.testing.assert_array_equal(found, wanted)
