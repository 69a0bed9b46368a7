"""Outputs belong to the caller: writing to one changes nothing else."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from onnxplug.outputs import own

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_fresh_arrays_are_not_copied() -> None:
    array = np.zeros(3)
    assert own([array], [X])[0] is array


@pytest.mark.parametrize(
    "result",
    [X, X.T, X[0], X.reshape(3, 2), np.broadcast_to(X, (2, 2, 3))],
)
def test_inputs_and_views_of_them_are_copied(result: Any) -> None:
    (owned,) = own([result], [X])
    assert not np.shares_memory(owned, X)
    assert owned.flags.c_contiguous and owned.flags.writeable
    np.testing.assert_array_equal(owned, result)


def test_elements_of_a_sequence_that_was_fed_are_copied() -> None:
    ((owned,),) = own([[X]], [[X]])
    assert not np.shares_memory(owned, X)


def test_two_results_in_one_memory_are_parted() -> None:
    array = np.zeros(4)
    first, second = own([array, array[::2]], [])
    assert not np.shares_memory(first, second)


def test_constants_and_mapped_memory_are_copied() -> None:
    constant = np.ones(3)
    constant.flags.writeable = False
    mapped = np.frombuffer(mmap.mmap(-1, 16), np.float32)
    sources = [constant, mapped]
    for owned, source in zip(own(sources, []), sources, strict=True):
        assert owned.flags.writeable and not np.shares_memory(owned, source)


def test_scalars_become_arrays_and_other_values_pass() -> None:
    scalar, nothing, mapping = own([np.float32(2), None, {1: 2.0}], [])
    assert isinstance(scalar, np.ndarray) and scalar.dtype == np.float32
    assert nothing is None and mapping == {1: 2.0}


def test_layout_is_made_contiguous() -> None:
    (owned,) = own([np.zeros((2, 3)).T], [])
    assert owned.flags.c_contiguous and owned.shape == (3, 2)
