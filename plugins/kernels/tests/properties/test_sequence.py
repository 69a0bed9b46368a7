"""Sequences against Python's lists, and optional values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .comparison import assert_same, result_of
from .strategies import Array, Draw, examples


def assert_all_same(found: list[Array], expected: list[Array]) -> None:
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert_same(one, two)


def position(draw: Draw, low: int, high: int) -> Array:
    kind = draw.one_of([np.int64, np.int32])
    return np.array(draw.integer(low, high), kind)


@examples(50)
def test_lists(draw: Draw) -> None:
    dtype = draw.dtype("SequenceInsert")
    items = [draw.array(dtype, draw.shape(0, 2)) for _ in range(draw.integer(0, 4))]
    new, length = draw.array(dtype, draw.shape(0, 2)), len(items)
    sequence = result_of("SequenceConstruct", *items)
    assert_all_same(sequence, items)
    assert_same(result_of("SequenceLength", sequence), np.array(length, np.int64))
    at: Any = position(draw, -length, length) if draw.flag() else None
    expected = list(items)
    expected.insert(length if at is None else int(at), new)
    assert_all_same(result_of("SequenceInsert", sequence, new, at), expected)
    assert_all_same(sequence, items)  # which is not changed
    if not items:
        assert result_of("SequenceEmpty") == []
        return
    at = position(draw, -length, length - 1)
    assert_same(result_of("SequenceAt", sequence, at), items[int(at)])
    at = at if draw.flag() else None
    expected = list(items)
    del expected[-1 if at is None else int(at)]
    assert_all_same(result_of("SequenceErase", sequence, at), expected)
    assert_all_same(sequence, items)


@examples(50)
def test_split_and_concat(draw: Draw) -> None:
    x = draw.array(draw.dtype("SplitToSequence"), draw.shape(1))
    axis = draw.axis(x.ndim)
    size = x.shape[axis]
    rows = np.moveaxis(x, axis, 0)
    given: dict[str, Any] = {"axis": axis}
    split, kept = None, True
    match draw.one_of(["one", "length", "lengths"]):
        case "one":
            ends = list(range(size + 1))
            if draw.flag():
                kept = draw.flag()
                given["keepdims"] = int(kept)
        case "length":
            length = draw.integer(1, 4)
            split = np.array(length, draw.one_of([np.int64, np.int32]))
            ends = [*range(0, size, length), size]
        case _:
            ends = sorted({0, size, *(draw.integer(0, size) for _ in range(2))})
            split = np.diff(ends)
    expected = [
        np.moveaxis(rows[start:end], 0, axis) if kept else rows[start, ...]
        for start, end in itertools.pairwise(ends)
    ]
    found = result_of("SplitToSequence", x, split, **given)
    assert_all_same(found, expected)
    if found:
        joined = result_of(
            "ConcatFromSequence", found, axis=axis, new_axis=int(not kept)
        )
        assert_same(joined, x)


@examples(20)
def test_optional(draw: Draw) -> None:
    x = draw.array(draw.dtype("SequenceInsert"), draw.shape())
    held = result_of("Optional", x)
    assert_same(result_of("OptionalGetElement", held), x)
    assert_same(result_of("OptionalHasElement", held), np.array(True))
    assert_same(result_of("OptionalHasElement", result_of("Optional")), np.array(False))
