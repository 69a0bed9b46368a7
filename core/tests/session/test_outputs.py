"""Outputs belong to the caller: writing to one changes nothing else."""

from __future__ import annotations

import itertools
import mmap
from typing import Any

import numpy as np
import pytest

from onnxplug.ep import DataType, SparseTensor, TensorType
from onnxplug.errors import ModelWarning
from onnxplug.session.outputs import DeclaredShapes, own

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_fresh_arrays_are_not_copied() -> None:
    array = np.zeros(3)
    assert own([array], [X])[0] is array


def test_a_view_of_what_nobody_else_has_is_not_copied() -> None:
    results = [np.zeros(6).reshape(2, 3), np.full(2, "a", object)[:1]]
    places = [result.__array_interface__["data"] for result in results]
    owned = own(results, [X])
    assert [each.__array_interface__["data"] for each in owned] == places


def test_views_of_one_array_are_parted() -> None:
    array = np.zeros(4)
    owned = own([array[:2], array[1:], array[2:]], [])
    for one, other in itertools.combinations(owned, 2):
        assert not np.shares_memory(one, other)


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


@pytest.mark.parametrize("rows", [3, 3000])
def test_elements_of_a_sequence_are_parted(rows: int) -> None:
    array = np.arange(3.0 * rows).reshape(3, rows)
    (owned,) = own([[array[0], array[1:].T, array[0]]], [array])
    for one, other in itertools.combinations([*owned, array], 2):
        assert not np.shares_memory(one, other)
    for found, expected in zip(owned, [array[0], array[1:].T, array[0]], strict=True):
        assert found.flags.c_contiguous and found.flags.writeable
        np.testing.assert_array_equal(found, expected)


def test_parts_of_maps_and_sparse_tensors_are_copied() -> None:
    fed = {1: [X], 2: np.float32(1)}
    (owned,) = own([fed], [fed])
    assert not np.shares_memory(owned[1][0], X)
    assert owned[2] is fed[2]
    indices = np.array([0, 2])
    sparse = SparseTensor(values=X[0, :2], indices=indices, shape=(3,))
    (owned,) = own([sparse], [sparse])
    assert not np.shares_memory(owned.values, X)
    assert not np.shares_memory(owned.indices, indices)
    assert (owned.indices.tolist(), owned.shape) == ([0, 2], (3,))


def test_two_results_in_one_memory_are_parted() -> None:
    array = np.zeros(4)
    first, second = own([array, array[::2]], [])
    assert not np.shares_memory(first, second)


def test_maps_that_nothing_else_refers_to_stay_what_they_are() -> None:
    fresh = [{"a": 1.5, "b": 2}, {}, {3: "text"}]
    identities = [id(each) for each in fresh]
    results = [fresh]
    del fresh
    (owned,) = own(results, [])
    assert [id(each) for each in owned] == identities


def test_maps_that_something_else_refers_to_are_copied() -> None:
    kept = {"a": 1.5}
    array = np.zeros(2)
    twice = [{"a": 0.5}] * 2
    for maps in ([kept, {}], [{"a": array}], twice):
        (owned,) = own([maps], [array])
        assert owned is not maps
        for before, after in zip(maps, owned, strict=True):
            assert before is not after
            for key, value in before.items():
                assert after[key] is not array
                np.testing.assert_array_equal(after[key], value)


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


def test_it_is_so_of_code_that_has_run_for_long() -> None:
    fed = np.zeros(3)
    for _ in range(20_000):
        fresh = np.zeros(3)
        owned, back = own([fresh, fed], [fed])
        assert owned is fresh and back is not fed
        (given,) = own([np.zeros(3)], [fed])
        (back,) = own([given], [])
        assert back is given


def test_an_array_whose_only_holders_are_inputs_is_copied() -> None:
    base = np.zeros(4)
    inputs = [base[1:]]
    results = [base]
    del base
    (owned,) = own(results, inputs)
    assert not np.shares_memory(owned, inputs[0])


def test_inputs_returned_as_the_results_are_copied() -> None:
    inputs = [np.zeros(3), np.ones(2)]
    feed = dict(zip("xy", inputs, strict=True))
    owned = own(inputs, inputs)
    assert owned is not inputs
    for given, fed in zip(owned, feed.values(), strict=True):
        assert not np.shares_memory(given, fed)
        np.testing.assert_array_equal(given, fed)


def test_a_result_given_twice_is_parted() -> None:
    array = np.zeros(3)
    results = [array, array]
    del array
    first, second = own(results, [])
    assert not np.shares_memory(first, second)


def test_the_list_is_the_callers_own_too() -> None:
    kept = [np.zeros(3)]
    assert own(kept, []) is not kept


def test_declared_sizes_are_compared_whenever_others_come(recwarn: Any) -> None:
    float_3 = TensorType(DataType.FLOAT32, ("n", 3))
    declared = DeclaredShapes({"y": float_3, "z": float_3, "s": None})
    fits, also, wrong = np.zeros((2, 3)), np.zeros((5, 3)), np.zeros((2, 4))
    for y in (fits, also, fits):
        declared.check([y, fits, None])
    declared.check([None, [fits], None])  # an empty optional, and a sequence
    assert not recwarn.list
    with pytest.warns(ModelWarning, match=r"'z' has shape \[2, 4\]") as warned:
        declared.check([fits, wrong, None])
    assert warned[0].filename == __file__
    for z in (fits, wrong, wrong):
        declared.check([fits, z, None])
    assert not recwarn.list  # once for each output
    with pytest.warns(ModelWarning, match=r"'y' has shape \[1\]"):
        declared.check([np.zeros(1), wrong, None])
