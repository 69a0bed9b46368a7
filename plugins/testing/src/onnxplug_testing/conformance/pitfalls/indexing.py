"""Pitfalls of what takes elements by their places, and puts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from onnxplug_testing.conformance.pitfalls.row import Row, ints, real, row, whole

_FAR: Final = 2**63 - 1
_LEAST: Final = -(2**63)


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _gathered()
    yield from _scattered()
    yield from _sliced()
    yield from _masked()
    yield from _made()


def _gathered() -> Iterator[Row]:
    data = real(3, 4, 5)
    for axis in (0, 1, 2, -1, -2, -3):
        size = data.shape[axis]
        yield row("Gather", data, ints(0, size - 1, 1), axis=axis)
        yield row("Gather", data, ints(-1, -size, 0), axis=axis)
        yield row("Gather", data, np.int64(-1), axis=axis)
        yield row("Gather", data, np.array([[0, -1], [1, 1]], np.int32), axis=axis)
        yield row("Gather", data, np.zeros((0,), np.int64), axis=axis)
    yield row("Gather", data, np.array([[2]]))
    yield row("Gather", real(6), np.array([[1, -6], [5, 0]]))
    yield row("Gather", whole(4), np.array(2))
    yield row("Gather", np.array([2**53 + 1, -1]), ints(0, -2))
    yield row("Gather", np.array([True, False, True]), ints(-1, 1))
    yield row("Gather", np.array(["a", "b", "c"], object), ints(-1, 0))
    places = np.array([[0, -1, 1, -3], [2, 0, -2, 1]])
    table = real(3, 4)
    yield row("GatherElements", table, places, axis=0)
    yield row("GatherElements", table, places)
    yield row("GatherElements", table, np.array([[0, -1], [3, -4], [1, 1]]), axis=1)
    yield row("GatherElements", table, np.array([[0, -1], [3, 1]], np.int32), axis=-1)
    yield row("GatherElements", data, np.array([[[1, -1]], [[0, 2]]]), axis=2)
    yield row("GatherElements", real(5), ints(4, -5, 0, 0))
    yield row("GatherND", data, np.array([[0, -1], [2, 1]]))
    yield row("GatherND", data, np.array([[0, -1, 2], [-3, 1, -5]]))
    yield row("GatherND", data, np.array([-1]))
    yield row("GatherND", data, np.array([[[0]], [[-1]]]))
    yield row("GatherND", data, np.array([[1], [-1], [0]]), batch_dims=1)
    yield row(
        "GatherND", data, np.array([[[1, 2]], [[0, -1]], [[-4, 3]]]), batch_dims=1
    )
    batches = np.array([[[0], [1], [2], [3]]] * 3)
    yield row("GatherND", data, batches, batch_dims=2)


def _scattered() -> Iterator[Row]:
    table = real(4, 3)
    places = np.array([[0, -1, 1], [2, 0, -2]])
    updates = real(2, 3) + 10
    for reduction in ("none", "add", "mul", "max", "min"):
        how: dict[str, Any] = {"reduction": reduction}
        yield row("ScatterElements", table, places, updates, axis=0, **how)
        across = np.array([[0, -1], [1, 0], [2, 1], [-3, -2]])
        yield row("ScatterElements", table, across, real(4, 2), axis=1, **how)
        yield row("ScatterElements", table, across[:2], real(2, 2), axis=-1, **how)
        if reduction != "none":  # whose order nobody says
            twice = np.array([[1, 1, 1], [1, -3, 1]])
            yield row("ScatterElements", table, twice, updates, axis=0, **how)
            same = np.array([[1], [-3], [1]])
            yield row("ScatterND", table, same, real(3, 3), **how)
        yield row("ScatterND", table, np.array([[2], [-4]]), real(2, 3), **how)
        yield row("ScatterND", table, np.array([[2, -1], [0, 1]]), real(2), **how)
        deep = real(2, 3, 4)
        yield row("ScatterND", deep, np.array([[0, -1], [1, 0]]), real(2, 4), **how)
        yield row("ScatterND", deep, np.array([[[1]], [[-2]]]), real(2, 1, 3, 4), **how)
        yield row("ScatterND", whole(5), np.array([[1], [-1]]), ints(7, 8), **how)
    yield row("ScatterElements", table, places, updates, axis=0, opset=13)
    yield row("Scatter", table, places, updates, axis=0, opset=10)
    yield row("ScatterND", table, np.array([[2], [0]]), real(2, 3), opset=13)
    empty = np.zeros((0, 1), np.int64)
    yield row("ScatterND", table, empty, np.zeros((0, 3), np.float32))


def _sliced() -> Iterator[Row]:
    data = real(4, 5, 6)

    def cut(*each: tuple[int, int, int, int], source: Any = data) -> Row:
        starts, ends, axes, steps = zip(*each, strict=True)
        return row("Slice", source, *(ints(*n) for n in (starts, ends, axes, steps)))

    yield cut((1, 3, 0, 1))
    yield cut((1, -1, 1, 1))
    yield cut((-3, _FAR, 2, 1))
    yield cut((0, _FAR, 2, 2))
    yield cut((1, _FAR, 2, 4))
    yield cut((-1, _LEAST, 1, -1))
    yield cut((_FAR, _LEAST, 1, -1))
    yield cut((_FAR, -_FAR, 2, -2))
    yield cut((4, 0, 1, -1))
    yield cut((-2, -5, 2, -2))
    yield cut((3, 1, 0, 1))
    yield cut((10, 20, 0, 1))
    yield cut((-100, 2, 0, 1))
    yield cut((2, 1000, 0, 1))
    yield cut((0, 0, 0, 1))
    yield cut((1, 4, -1, 1))
    yield cut((1, 4, -2, 2), (-1, -4, 0, -1))
    yield cut((1, 4, 2, 1), (0, 2, 0, 1))
    yield cut((0, 3, 2, 2), (4, _LEAST, 1, -2), (1, _FAR, 0, 1))
    yield row("Slice", data, ints(1, 2), ints(3, 4))
    yield row("Slice", data, ints(1), ints(3), None, ints(2))
    yield row("Slice", data, ints(1, 0, 2), ints(4, 2, 6), ints(2, 0, 1))
    yield row("Slice", data, *(np.array([n], np.int32) for n in (1, 5, 1, 2)))
    yield row("Slice", data, np.array([-3], np.int32), np.array([2**31 - 1], "i4"))
    yield row("Slice", real(6), ints(-1), ints(_LEAST), ints(0), ints(-1))
    yield row("Slice", whole(4), ints(1), ints(-1), ints(0))
    yield row("Slice", real(0, 3), ints(0), ints(_FAR), ints(0), ints(1))
    yield row("Slice", real(1, 3), ints(0), ints(-1), ints(0))
    yield row("Slice", data, opset=9, starts=[1, -3], ends=[3, _FAR], axes=[0, 2])
    yield row("Slice", data, opset=9, starts=[1, 0], ends=[-1, 2])
    yield row("Slice", data, opset=9, starts=[-2], ends=[1000], axes=[1])


def _masked() -> Iterator[Row]:
    data = real(3, 4)
    for upper in (0, 1):
        for offset in (-5, -3, -1, 0, 1, 2, 7):
            yield row("Trilu", data, np.int64(offset), upper=upper)
        yield row("Trilu", data, upper=upper)
        yield row("Trilu", real(2, 4, 3), np.int64(1), upper=upper)
        yield row("Trilu", real(2, 2, 1, 3), np.int64(-1), upper=upper)
        yield row("Trilu", whole(3, 3), np.int64(-1), upper=upper)
        yield row("Trilu", np.full((2, 2), -np.inf, np.float32), upper=upper)
    yield row("Trilu", data)
    kept = np.array([True, False, True])
    yield row("Compress", data, kept, axis=0)
    yield row("Compress", data, kept, axis=-1)
    yield row("Compress", data, kept)
    yield row("Compress", data, np.array([False, False]), axis=1)
    for axis in (-1, 0, 1, -2):
        depth, values = np.int64(4), np.array([-1, 2], np.float32)
        yield row("OneHot", np.array([[0, -1], [3, -4]]), depth, values, axis=axis)
        yield row("OneHot", np.array([7, -9, 2]), depth, values, axis=axis % 2)
    yield row("OneHot", np.array([1, 0], np.int32), np.array([3]), ints(5, 7))
    yield row("OneHot", np.array([1.0, -1.0], np.float32), np.float32(3), ints(0, 1))
    yield row("OneHot", np.array(2), np.int64(3), np.array([0, 1], np.float32))


def _made() -> Iterator[Row]:
    yield row("Range", np.int64(0), np.int64(5), np.int64(2))
    yield row("Range", np.int64(5), np.int64(-1), np.int64(-2))
    yield row("Range", np.int64(3), np.int64(3), np.int64(1))
    yield row("Range", np.int64(3), np.int64(0), np.int64(1))
    yield row("Range", np.float32(0), np.float32(1), np.float32(0.3))
    yield row("Range", np.float32(1), np.float32(0), np.float32(-0.25))
    yield row("Range", np.int32(-2), np.int32(7), np.int32(3))
    for offset in (-2, -1, 0, 1, 5):
        yield row("EyeLike", real(3, 4), k=offset)
    yield row("EyeLike", real(4, 2), dtype=7, k=-1)
    yield row("EyeLike", whole(2, 3), dtype=1)
    yield row("ReverseSequence", real(4, 3), ints(2, 4, 1))
    yield row("ReverseSequence", real(3, 4), ints(2, 4, 1), batch_axis=0, time_axis=1)
    yield row(
        "ReverseSequence", real(4, 3, 2), ints(1, 3, 4), time_axis=0, batch_axis=1
    )
