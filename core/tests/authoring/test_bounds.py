"""Numbers that say where an operator reads: taken when ONNX allows them, or refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxplug.authoring.bounds import (
    OutOfBounds,
    at_least,
    normal_axes,
    normal_axis,
    permutation,
    sizes,
)


@pytest.mark.parametrize("rank", range(4))
def test_an_axis_is_one_that_the_tensor_has(rank: int) -> None:
    for axis in (*range(-8, 8), -(2**63), 2**63 - 1):
        try:
            expected = range(rank)[axis]
        except IndexError:
            with pytest.raises(OutOfBounds, match=str(axis)):
                normal_axis(axis, rank)
        else:
            assert normal_axis(np.int64(axis), rank) == expected


def test_axes_are_distinct() -> None:
    assert normal_axes([-1, 0], 3) == (2, 0)
    assert normal_axes([], 0) == ()
    for wrong in ([0, 0], [1, -2], [3]):
        with pytest.raises(OutOfBounds):
            normal_axes(wrong, 3)


@pytest.mark.parametrize("rank", range(4))
def test_a_permutation_has_each_axis_once(rank: int) -> None:
    right = set(itertools.permutations(range(rank)))
    for length in range(5):
        for perm in itertools.product(range(-1, 4), repeat=length):
            if perm in right:
                assert permutation(perm, rank) == perm
            else:
                with pytest.raises(OutOfBounds, match="perm"):
                    permutation(perm, rank)


def test_sizes_are_natural_and_their_product_is_an_int64() -> None:
    assert sizes(np.array([2, 0, 3])) == (2, 0, 3)
    assert sizes([2**31, 2**31]) == (2**31, 2**31)
    for wrong in ([-1], [-2, -2], [2**32, 2**31], [2**62, 2, 0]):
        with pytest.raises(OutOfBounds, match="the shape"):
            sizes(wrong)
    with pytest.raises(OutOfBounds):
        sizes([2**31, 2**31], itemsize=4)


def test_counts_have_a_minimum_and_a_number() -> None:
    assert at_least(1, [1, 2], "strides", count=2) == (1, 2)
    with pytest.raises(OutOfBounds, match=r"strides is \[0\]; expected 1 or more"):
        at_least(1, [0], "strides")
    with pytest.raises(OutOfBounds, match=r"strides has 1 values \[3\]; expected 2"):
        at_least(1, [3], "strides", count=2)
    with pytest.raises(TypeError):
        at_least(1, [1.5], "strides")  # type: ignore[list-item]
