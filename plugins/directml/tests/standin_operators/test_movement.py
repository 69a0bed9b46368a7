"""Slices, joins, padding and tiles: examples of the pages, and their constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .examples import assert_documented, assert_rejected, evaluate, f32, u32, union

FOUR = f32(np.arange(1, 17).reshape(1, 1, 4, 4))


def test_slice() -> None:
    one = {"InputTensor": FOUR, "DimensionCount": 4}
    assert_documented(
        "SLICE",
        **one,
        Offsets=(0, 0, 1, 2),
        Sizes=(1, 1, 3, 2),
        Strides=(1, 1, 1, 1),
        OutputTensor=f32([[[[7, 8], [11, 12], [15, 16]]]]),
    )
    two = {
        **one,
        "Sizes": (1, 1, 2, 2),
        "Strides": (1, 1, 2, 3),
        "OutputTensor": f32([[[[5, 8], [13, 16]]]]),
    }
    assert_documented("SLICE", **two, Offsets=(0, 0, 1, 0))
    assert_rejected("SLICE", "out of bounds: 4", **two, Offsets=(0, 0, 2, 0))
    wrong = two | {"Sizes": (1, 1, 2, 1)}
    assert_rejected("SLICE", "OutputTensor has Sizes", **wrong, Offsets=(0, 0, 1, 0))


@pytest.mark.parametrize(
    ("strides", "expected"),
    [((1, 1, 2, 2), [[2, 4], [10, 12]]), ((1, 1, -2, 2), [[14, 16], [6, 8]])],
)
def test_slice1(strides: tuple[int, ...], expected: list[Any]) -> None:
    assert_documented(
        "SLICE1",
        InputTensor=FOUR,
        OutputTensor=f32([[expected]]),
        DimensionCount=4,
        InputWindowOffsets=(0, 0, 0, 1),
        InputWindowSizes=(1, 1, 4, 3),
        InputWindowStrides=strides,
    )


def test_slice1_may_leave_out_the_last_elements_of_its_window() -> None:
    window = {
        "InputTensor": f32([1, 2, 3, 4, 5]),
        "DimensionCount": 1,
        "InputWindowOffsets": (1,),
        "InputWindowStrides": (-2,),
    }
    sizes = {"InputWindowSizes": (4,)}
    assert_documented("SLICE1", **window, **sizes, OutputTensor=f32([5]))
    assert_documented("SLICE1", **window, **sizes, OutputTensor=f32([5, 3]))
    three = f32([5, 3, 1])
    assert_rejected(
        "SLICE1", "3 elements of at most 2", **window, **sizes, OutputTensor=three
    )
    wide = {"InputWindowSizes": (5,), "OutputTensor": f32([5])}
    assert_rejected("SLICE1", "out of axis 0", **window, **wide)
    still = window | {"InputWindowStrides": (0,)}
    assert_rejected("SLICE1", "stride of 0", **still, **sizes, OutputTensor=f32([5]))


COLUMN = f32(np.arange(1, 13).reshape(1, 1, 6, 2))


def test_split() -> None:
    rows = [COLUMN[:, :, :2], COLUMN[:, :, 2:3], COLUMN[:, :, 3:]]
    columns = [COLUMN[..., :1], COLUMN[..., 1:]]
    for axis, parts in ((2, rows), (3, columns)):
        copies = [part.copy() for part in parts]
        count = len(parts)
        assert_documented(
            "SPLIT",
            InputTensor=COLUMN,
            OutputCount=count,
            OutputTensors=copies,
            Axis=axis,
        )
    less = {"InputTensor": COLUMN, "OutputTensors": rows[:2], "OutputCount": 2}
    assert_rejected("SPLIT", "3 elements along axis 2", **less, Axis=2)
    assert_rejected("SPLIT", "Axis 4", **less, Axis=4)
    assert_rejected("SPLIT", r"OutputTensors\[0\] has Sizes", **less, Axis=3)


def test_join() -> None:
    narrow = f32([[[[1, 2, 3], [4, 5, 6]]]])
    wide = f32([[[[7, 8, 9, 10], [11, 12, 13, 14]]]])
    assert_documented(
        "JOIN",
        InputCount=2,
        InputTensors=[narrow, wide],
        OutputTensor=f32([[[[1, 2, 3, 7, 8, 9, 10], [4, 5, 6, 11, 12, 13, 14]]]]),
        Axis=3,
    )
    three = [f32(np.arange(at, at + 4).reshape(1, 1, 2, 2)) for at in (1, 5, 9)]
    for axis, expected in (
        (1, [[[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]]),
        (2, [[[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]]]),
        (3, [[[[1, 2, 5, 6, 9, 10], [3, 4, 7, 8, 11, 12]]]]),
    ):
        joined = f32(expected)
        assert_documented(
            "JOIN", InputCount=3, InputTensors=three, OutputTensor=joined, Axis=axis
        )


EIGHT_BY_TEN = {
    "CONSTANT": """
        9 9 9 9 9 9 9 9 9 9
        9 9 1 2 3 4 9 9 9 9
        9 9 5 6 7 8 9 9 9 9
        9 9 1 2 3 4 9 9 9 9
        9 9 5 6 7 8 9 9 9 9
        9 9 9 9 9 9 9 9 9 9
        9 9 9 9 9 9 9 9 9 9
        9 9 9 9 9 9 9 9 9 9
    """,
    "EDGE": """
        1 1 1 2 3 4 4 4 4 4
        1 1 1 2 3 4 4 4 4 4
        5 5 5 6 7 8 8 8 8 8
        1 1 1 2 3 4 4 4 4 4
        5 5 5 6 7 8 8 8 8 8
        5 5 5 6 7 8 8 8 8 8
        5 5 5 6 7 8 8 8 8 8
        5 5 5 6 7 8 8 8 8 8
    """,
    "REFLECTION": """
        7 6 5 6 7 8 7 6 5 6
        3 2 1 2 3 4 3 2 1 2
        7 6 5 6 7 8 7 6 5 6
        3 2 1 2 3 4 3 2 1 2
        7 6 5 6 7 8 7 6 5 6
        3 2 1 2 3 4 3 2 1 2
        7 6 5 6 7 8 7 6 5 6
        3 2 1 2 3 4 3 2 1 2
    """,
    "SYMMETRIC": """
        2 1 1 2 3 4 4 3 2 1
        2 1 1 2 3 4 4 3 2 1
        6 5 5 6 7 8 8 7 6 5
        2 1 1 2 3 4 4 3 2 1
        6 5 5 6 7 8 8 7 6 5
        6 5 5 6 7 8 8 7 6 5
        2 1 1 2 3 4 4 3 2 1
        6 5 5 6 7 8 8 7 6 5
    """,
}


@pytest.mark.parametrize("mode", EIGHT_BY_TEN)
def test_padding(mode: str) -> None:
    rows = f32([[[[1, 2, 3, 4], [5, 6, 7, 8]] * 2]])
    expected = np.array(EIGHT_BY_TEN[mode].split(), np.float32).reshape(1, 1, 8, 10)
    fields: dict[str, Any] = {
        "InputTensor": rows,
        "OutputTensor": expected,
        "PaddingMode": mode,
        "DimensionCount": 4,
        "StartPadding": (0, 0, 1, 2),
    }
    assert_documented("PADDING", **fields, PaddingValue=9.0, EndPadding=(0, 0, 3, 4))
    of_union = {"PaddingValueDataType": "FLOAT32", "PaddingValue": union(np.float32(9))}
    assert_documented("PADDING1", **fields, **of_union, EndPadding=(0, 0, 3, 4))
    short = {"EndPadding": (0, 0, 3, 3)}
    assert_rejected("PADDING1", "OutputTensor has Sizes", **fields, **of_union, **short)


def test_reflections_repeat_beyond_the_tensor() -> None:
    fields = {"InputTensor": f32([1, 2, 3]), "PaddingValue": 0.0, "StartPadding": (0,)}
    reflected = f32([1, 2, 3, 2, 1, 2, 3, 2])
    assert_documented(
        "PADDING",
        **fields,
        PaddingMode="REFLECTION",
        EndPadding=(5,),
        OutputTensor=reflected,
    )


def test_modes_of_padding_came_with_feature_levels() -> None:
    fields: dict[str, Any] = {
        "InputTensor": f32([[[[1, 2]]]]),
        "PaddingValue": 0.0,
        "StartPadding": (0, 0, 0, 0),
        "EndPadding": (0, 0, 0, 1),
    }
    for mode, last, since in (("SYMMETRIC", 2, (3, 0)), ("WRAP", 1, (6, 4))):
        output = {"PaddingMode": mode, "OutputTensor": f32([[[[1, 2, last]]]])}
        assert_documented("PADDING", since, **fields, **output)
        earlier = (since[0], since[1] - 1) if since[1] else (since[0] - 1, 1)
        assert_rejected("PADDING", f"{mode} is of", earlier, **fields, **output)


def test_padding_is_of_the_tensors_type() -> None:
    fields: dict[str, Any] = {
        "InputTensor": np.array([1], np.int64),
        "OutputTensor": np.array([1, 2**60 + 1], np.int64),
        "PaddingMode": "CONSTANT",
        "StartPadding": (0,),
        "EndPadding": (1,),
    }
    value = union(np.int64(2**60 + 1))
    assert_documented(
        "PADDING1", **fields, PaddingValueDataType="INT64", PaddingValue=value
    )
    assert_rejected(
        "PADDING1",
        "is INT32",
        **fields,
        PaddingValueDataType="INT32",
        PaddingValue=value,
    )
    truncated = fields | {"OutputTensor": np.array([1, -3], np.int64)}
    assert_documented("PADDING", **truncated, PaddingValue=-3.9)


def test_tile() -> None:
    six = f32([[[[1, 2, 3], [4, 5, 6]]]])
    expected = f32([[[[1, 2, 3] * 3, [4, 5, 6] * 3] * 3]])
    fields = {"InputTensor": six, "OutputTensor": expected, "RepeatsCount": 4}
    assert_documented("TILE", **fields, Repeats=(1, 1, 3, 3))
    assert_rejected("TILE", "Repeats", **fields, Repeats=(1, 0, 3, 3))
    assert_rejected("TILE", "OutputTensor has Sizes", **fields, Repeats=(1, 1, 3, 2))
    double = fields | {"InputTensor": six.astype(np.float64)}
    assert_rejected("TILE", "FLOAT64", **double, Repeats=(1, 1, 3, 3))


def test_reverse_subsequences() -> None:
    rows = f32(np.arange(1, 13).reshape(1, 1, 3, 4))
    assert_documented(
        "REVERSE_SUBSEQUENCES",
        InputTensor=rows,
        SequenceLengthsTensor=u32([[[[2], [4], [3]]]]),
        OutputTensor=f32([[[[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]]]]),
        Axis=3,
    )
    by_column = f32([[[[5, 10, 3, 4], [1, 6, 7, 8], [9, 2, 11, 12]]]])
    lengths = {"SequenceLengthsTensor": u32([[[[2, 3, 1, 0]]]])}
    fields = {"InputTensor": rows, "OutputTensor": by_column}
    assert_documented("REVERSE_SUBSEQUENCES", **fields, **lengths, Axis=2)
    assert_rejected(
        "REVERSE_SUBSEQUENCES", "SequenceLengths", **fields, **lengths, Axis=3
    )
    longer = {"SequenceLengthsTensor": u32([[[[9, 9, 9, 9]]]])}
    (reversed_,) = evaluate("REVERSE_SUBSEQUENCES", **fields, **longer, Axis=2)
    np.testing.assert_array_equal(reversed_, rows[:, :, ::-1])
