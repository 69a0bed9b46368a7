"""Gathering, scattering, sorting: examples of the pages, and their constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators.indexing import UNDEFINED
from .examples import Array, assert_documented, assert_rejected, evaluate, f32, i32, u32

SQUARE = f32([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
TALL = f32([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("axis", "dimensions", "values", "indices", "expected"),
    [
        (0, 1, f32([11, 12, 13, 14]), [3, 1, 3, 0, 2], [14, 12, 14, 11, 13]),
        (0, 1, TALL, [[0, 1, 1, 2]], [[1, 2], [3, 4], [3, 4], [5, 6]]),
        # of the page's third example IndexDimensions are 2, which gives {3, 1, 2}
        (1, 1, TALL, [[1, 0]], [[2, 1], [4, 3], [6, 5]]),
        (2, 2, SQUARE[None], [[[0, 2]]], [[[1, 3]], [[4, 6]], [[7, 9]]]),
        (
            1,
            2,
            TALL[None],
            [[[0, 1], [1, 2]]],
            [[[1, 2], [3, 4]], [[3, 4], [5, 6]]],
        ),
    ],
)
def test_gather(
    axis: int, dimensions: int, values: Array, indices: Any, expected: Any
) -> None:
    assert_documented(
        "GATHER",
        InputTensor=values,
        IndicesTensor=u32(indices),
        OutputTensor=f32(expected),
        Axis=axis,
        IndexDimensions=dimensions,
    )


def test_gather_counts_from_the_end_and_never_reads_outside() -> None:
    fields = {"InputTensor": f32([1, 2, 3]), "Axis": 0, "IndexDimensions": 1}
    assert_documented(
        "GATHER", **fields, IndicesTensor=i32([-1, -3]), OutputTensor=f32([3, 1])
    )
    beyond = np.array([2**64 - 1, 3], np.uint64)
    assert_documented(
        "GATHER", **fields, IndicesTensor=beyond, OutputTensor=f32([3, 3])
    )


def test_gathers_constraints() -> None:
    fields: dict[str, Any] = {"InputTensor": TALL, "OutputTensor": f32([[1, 2]])}
    indices = {"IndicesTensor": u32([[0]])}
    assert_rejected("GATHER", "Axis 2", **fields, **indices, Axis=2, IndexDimensions=1)
    both = {"Axis": 0, "IndexDimensions": 1}
    two = u32([[0], [1]])
    assert_rejected("GATHER", "not 1 dimensions", **fields, IndicesTensor=two, **both)
    three = fields | {"OutputTensor": TALL}
    assert_rejected("GATHER", "OutputTensor has Sizes", **three, **indices, **both)
    nested = {"Axis": 1, "IndexDimensions": 2}
    assert_rejected("GATHER", "in 2 dimensions", **fields, **indices, **nested)
    deep = fields | {"IndicesTensor": u32([0])}
    assert_rejected("GATHER", "DimensionCount", **deep, **both)
    old = {"InputTensor": f32([[[[1]]]]), "OutputTensor": f32([[[[1]]]])}
    signed = i32([[[[0]]]])
    assert_rejected("GATHER", "is INT32", (2, 1), **old, IndicesTensor=signed, **both)


def test_gather_elements() -> None:
    assert_documented(
        "GATHER_ELEMENTS",
        InputTensor=SQUARE,
        IndicesTensor=u32([[1, 2, 0], [2, 0, 0]]),
        OutputTensor=f32([[4, 8, 3], [7, 2, 3]]),
        Axis=0,
    )
    fields = {"InputTensor": SQUARE, "IndicesTensor": i32([[-1, 0]]), "Axis": 0}
    assert_rejected(
        "GATHER_ELEMENTS", "indices of", **fields, OutputTensor=f32([[7, 2]])
    )


@pytest.mark.parametrize("name", ["GATHER_ND", "GATHER_ND1"])
def test_gather_nd(name: str) -> None:
    batches = {"BatchDimensionCount": 0} if name == "GATHER_ND1" else {}
    assert_documented(
        name,
        InputTensor=f32([[0, 1], [2, 3]]),
        IndicesTensor=u32([[1], [0]]),
        OutputTensor=f32([[2, 3], [0, 1]]),
        InputDimensionCount=2,
        IndicesDimensionCount=2,
        **batches,
    )
    cube = f32(np.arange(8).reshape(1, 2, 2, 2))
    assert_documented(
        name,
        InputTensor=cube,
        IndicesTensor=u32([[[[0, 1], [1, 0]]]]),
        OutputTensor=f32([[[[2, 3], [4, 5]]]]),
        InputDimensionCount=3,
        IndicesDimensionCount=2,
        **batches,
    )
    # the sizes that the pages work out
    values = f32(np.arange(3 * 4 * 5 * 6 * 7).reshape(3, 4, 5, 6, 7))
    expected = np.stack([values[2, 0, 4], values[1, 3, 0]])[None, None]
    assert_documented(
        name,
        InputTensor=values,
        IndicesTensor=i32([[[[[2, 0, -1], [1, -1, 0]]]]]),
        OutputTensor=expected,
        InputDimensionCount=5,
        IndicesDimensionCount=3,
        **batches,
    )


def test_gather_nd_with_batches() -> None:
    fields: dict[str, Any] = {
        "InputTensor": f32(np.arange(12).reshape(1, 3, 2, 2)),
        "IndicesTensor": u32([[[[0, 0], [1, 1]], [[1, 1], [0, 0]], [[0, 1], [1, 0]]]]),
        "OutputTensor": f32([[[[0, 3], [7, 4], [9, 10]]]]),
        "InputDimensionCount": 3,
        "IndicesDimensionCount": 3,
    }
    assert_documented("GATHER_ND1", **fields, BatchDimensionCount=1)
    assert_rejected("GATHER_ND1", "Batch", **fields, BatchDimensionCount=3)
    assert_rejected("GATHER_ND1", "tuples of 2", **fields, BatchDimensionCount=2)
    two = fields | {"InputTensor": f32(np.zeros((1, 2, 2, 2)))}
    assert_rejected("GATHER_ND1", "batches", **two, BatchDimensionCount=1)


@pytest.mark.parametrize("name", ["SCATTER", "SCATTER_ELEMENTS"])
def test_scatter(name: str) -> None:
    assert_documented(
        name,
        InputTensor=f32([0, 1, 2, 3, 4]),
        IndicesTensor=u32([3, 1, 3, 0]),
        UpdatesTensor=f32([5, 6, 7, 8]),
        OutputTensor=f32([8, 6, 2, 7, 4]),
        Axis=0,
    )
    fields: dict[str, Any] = {
        "InputTensor": f32(np.zeros((3, 3))),
        "IndicesTensor": u32([[1, 0, 2], [0, 2, 1]]),
        "OutputTensor": f32([[20, 11, 0], [10, 0, 22], [0, 21, 12]]),
        "Axis": 0,
    }
    updates = f32([[10, 11, 12], [20, 21, 22]])
    assert_documented(name, **fields, UpdatesTensor=updates)
    assert_rejected(name, "Sizes", **fields, UpdatesTensor=updates[:1].copy())
    assert_rejected(name, "indices of", **(fields | {"Axis": 1}), UpdatesTensor=updates)


def test_scatter_nd() -> None:
    fields: dict[str, Any] = {
        # the page's example, of which all tensors must have one DimensionCount
        "InputTensor": f32([[1, 2, 3, 4, 5, 6, 7, 8]]),
        "IndicesTensor": u32([[4], [3], [1], [7]]),
        "OutputTensor": f32([[1, 11, 3, 10, 9, 6, 7, 12]]),
        "InputDimensionCount": 1,
        "IndicesDimensionCount": 2,
    }
    assert_documented("SCATTER_ND", **fields, UpdatesTensor=f32([[9, 10, 11, 12]]))
    assert_rejected("SCATTER_ND", "Updates", **fields, UpdatesTensor=f32([[9, 10, 11]]))
    values = f32(np.arange(12).reshape(2, 3, 2))
    expected = values.copy()
    expected[1, 2], expected[0, 0] = [-1, -2], [-3, -4]
    assert_documented(
        "SCATTER_ND",
        InputTensor=values,
        IndicesTensor=i32([[[-1, -1], [0, 0]]]),
        UpdatesTensor=f32([[[-1, -2], [-3, -4]]]),
        OutputTensor=expected,
        InputDimensionCount=3,
        IndicesDimensionCount=2,
    )


@pytest.mark.parametrize(
    ("axis", "indices", "values", "expected"),
    [
        (
            3,
            u32([[[[0], [3], [2]]]]),
            [[[[0, 1]]]],
            [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
        ),
        (
            2,
            u32([[[[0, 2, 1, 0]]]]),
            [[[[0, 1]]]],
            [[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]],
        ),
        (
            3,
            u32([[[[0], [3], [2]]]]),
            [[[[4], [2], [9]]]],
            [[2, 4, 4, 4], [4, 4, 4, 2], [4, 4, 2, 4]],
        ),
        (
            3,
            i32([[[[-3], [100], [3]]]]),
            [[[[0, 1]]]],
            [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]],
        ),
    ],
)
def test_one_hot(axis: int, indices: Array, values: Any, expected: Any) -> None:
    fields = {"IndicesTensor": indices, "OutputTensor": f32([[expected]]), "Axis": axis}
    assert_documented("ONE_HOT", **fields, ValuesTensor=f32(values))
    few = f32([[[[1]]]])
    assert_rejected("ONE_HOT", "fewer than two", **fields, ValuesTensor=few)
    other = fields | {"Axis": 1}
    assert_rejected(
        "ONE_HOT", "IndicesTensor has Sizes", **other, ValuesTensor=f32(values)
    )


ROWS = f32([[[[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]]])
TIES = f32([[[[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]]]])


@pytest.mark.parametrize(
    ("values", "axis", "direction", "top", "places"),
    [
        (
            ROWS,
            3,
            "DECREASING",
            [[11, 10], [9, 8], [7, 6]],
            [[3, 2], [2, 3], [3, 2]],
        ),
        (
            ROWS,
            2,
            "DECREASING",
            [[4, 5, 10, 11], [3, 2, 9, 8]],
            [[2, 2, 0, 0], [1, 1, 1, 1]],
        ),
        (
            TIES,
            3,
            "DECREASING",
            [[3, 2, 2], [5, 5, 4], [6, 6, 6]],
            [[3, 1, 2], [2, 3, 1], [0, 1, 2]],
        ),
        (
            TIES,
            3,
            "INCREASING",
            [[1, 2, 2], [3, 4, 5], [6, 6, 6]],
            [[0, 1, 2], [0, 1, 2], [0, 1, 2]],
        ),
    ],
)
def test_top_k(values: Array, axis: int, direction: str, top: Any, places: Any) -> None:
    most = np.array([[top]]).shape[axis]
    fields = {
        "InputTensor": values,
        "OutputValueTensor": f32([[top]]),
        "OutputIndexTensor": u32([[places]]),
        "Axis": axis,
    }
    assert_documented("TOP_K1", **fields, K=most, AxisDirection=direction)
    if direction == "DECREASING":
        assert_documented("TOP_K", **fields, K=most)
    more = most + 1
    assert_rejected("TOP_K", "OutputValueTensor has Sizes", **fields, K=more)
    assert_rejected("TOP_K", "K is 9", **fields, K=9)


@pytest.mark.parametrize("data_type", [np.int8, np.uint8, np.int64, np.uint64])
def test_top_k_of_integers_at_their_limits(data_type: Any) -> None:
    limits = np.iinfo(data_type)
    values = np.array([1, limits.min, limits.max, limits.max], data_type)
    assert_documented(
        "TOP_K",
        InputTensor=values,
        OutputValueTensor=values[[2, 3, 0, 1]],
        OutputIndexTensor=np.array([2, 3, 0, 1], np.uint64),
        Axis=0,
        K=4,
    )


def test_nonzero_coordinates() -> None:
    values = f32([[[[1.0, 0.0, 0.0, 2.0], [-0.0, 3.5, 0.0, -5.2]]]])
    fields = {"InputTensor": values, "OutputCountTensor": u32([[[[4]]]])}
    count, found = evaluate(
        "NONZERO_COORDINATES",
        **fields,
        OutputCoordinatesTensor=u32(np.zeros((1, 1, 8, 3))),
    )
    assert count.item() == 4
    np.testing.assert_array_equal(
        found[0, 0, :4], [[0, 0, 0], [0, 0, 3], [0, 1, 1], [0, 1, 3]]
    )
    assert (found[0, 0, 4:] == UNDEFINED).all()
    for sizes, reason in (
        ((1, 1, 7, 3), "7 coordinates"),
        ((1, 1, 8, 1), "of rank 2"),
        ((1, 1, 8, 5), "5 numbers"),
    ):
        output = u32(np.zeros(sizes))
        assert_rejected(
            "NONZERO_COORDINATES", reason, **fields, OutputCoordinatesTensor=output
        )
