"""Pitfalls of what goes along axes: reductions, searches, sorting, running sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from onnxplug_testing.conformance.pitfalls.row import Row, ints, real, row, whole

_REDUCTIONS: Final = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
    "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip

_AXES: Final = ((1,), (-1,), (0, 2), (2, 0), (-1, -3), (0, 1, 2), (-2,))

_TIES: Final = np.array(
    [[2, 5, 5, 1], [5, 0, 5, 5], [1, 1, 1, 1], [-3, -3, -1, -1]], np.float32
)


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _reduced()
    yield from _reduced_before()
    yield from _found()
    yield from _sorted()
    yield from _softened()
    yield from _summed()


def _reduced() -> Iterator[Row]:
    for operator in _REDUCTIONS:
        data = np.abs(real(2, 3, 4)) + 0.5 if "Log" in operator else real(2, 3, 4)
        for axes in _AXES:
            for keeps in (1, 0):
                yield row(operator, data, ints(*axes), keepdims=keeps)
        for keeps in (1, 0):
            yield row(operator, data, keepdims=keeps)
            yield row(operator, data, keepdims=keeps, noop_with_empty_axes=1)
            yield row(operator, data, ints(), keepdims=keeps, noop_with_empty_axes=1)
            yield row(operator, data, ints(), keepdims=keeps)
            yield row(operator, data, ints(1), keepdims=keeps, noop_with_empty_axes=1)
        yield row(operator, data[:, :1], ints(1))
        yield row(operator, data[0, 0, 0], keepdims=0)
        yield row(operator, data[:, :, 0].copy(), ints(0), keepdims=0)
        yield row(operator, data.astype(np.float64), ints(1))
        yield row(operator, np.abs(real(2, 3, 1, 2, 2, 3)) + 1, ints(1, -2), keepdims=0)
        yield row(operator, np.abs(real(3, 5, 7)) + 1, ints(0), keepdims=0)
        if operator not in ("ReduceMax", "ReduceMin", "ReduceMean"):
            yield row(operator, np.zeros((2, 0, 3), np.float32), ints(1))
        if operator in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
            for dtype in (np.int32, np.int64):
                yield row(operator, whole(2, 3, dtype=dtype), ints(1), keepdims=0)
            far = np.array([[2**53 + 1, 1], [-(2**53) - 1, 1]])
            yield row(operator, far, ints(1), keepdims=0)
        for scale in (100, -100):
            if operator in ("ReduceLogSumExp", "ReduceMax", "ReduceMin"):
                yield row(operator, real(2, 3) + np.float32(scale), ints(1))
    for operator in ("ReduceMax", "ReduceMin"):
        yield row(operator, -np.abs(real(2, 3)), ints(1))
        yield row(operator, np.abs(real(2, 3)), ints(1))
        yield row(operator, np.full((2, 3), -np.inf, np.float32), ints(1))
        yield row(operator, np.array([[True, False], [False, False]]), ints(1))
    # sums of many, and of what cancels
    yield row("ReduceSum", np.full((1, 4099), 0.1, np.float32), ints(1))
    yield row("ReduceMean", np.full((2, 2053), 1000.1, np.float32), ints(1))
    yield row("ReduceMean", whole(2, 3, dtype=np.int32), ints(1))


def _reduced_before() -> Iterator[Row]:
    for operator in _REDUCTIONS:
        data = np.abs(real(2, 3, 4)) + 0.5
        before = 11 if operator == "ReduceSum" else 13
        for axes in ((1,), (0, 2), (-1,)):
            for keeps in (1, 0):
                yield row(operator, data, opset=before, axes=axes, keepdims=keeps)
        yield row(operator, data, opset=before, keepdims=0)
        yield row(operator, data, opset=before)


def _found() -> Iterator[Row]:
    for operator in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for axis in (0, 1, -1, -2):
                for keeps in (0, 1):
                    yield row(
                        operator, _TIES, axis=axis, keepdims=keeps,
                        select_last_index=last,
                    )  # fmt: skip
        yield row(operator, _TIES)
        yield row(operator, -np.abs(real(2, 3, 4)) - 1, axis=1)
        yield row(operator, np.abs(real(2, 3, 4)) + 1, axis=1, keepdims=0)
        yield row(operator, real(2, 3, 4), axis=-2, keepdims=0)
        yield row(operator, real(5), axis=0, keepdims=0)
        yield row(operator, _TIES.astype(np.int32), axis=1)
        yield row(operator, np.array([[2**53 + 1, 2**53]]), axis=1)
        yield row(operator, np.full((2, 3), -np.inf, np.float32), axis=1)
        yield row(operator, _TIES, axis=1, opset=11)
        yield row(operator, np.array([[200, 3], [7, 255]], np.uint8), axis=1)
    for data in (
        np.array([[0, 1, 0], [2, 0, 3]], np.float32),
        np.zeros((2, 3), np.float32),
        np.array([0.0, -0.0, 1e-30, -1], np.float32),
        np.array([True, False, True]),
        whole(2, 2, 3),
        np.float32(3) * np.ones((1, 1), np.float32),
        np.zeros((0, 3), np.float32),
    ):
        yield row("NonZero", data)
    repeated = np.array([3, 1, 1, 2, 3, 3], np.float32)
    for kept in (0, 1):
        yield row("Unique", repeated, outputs=4, sorted=kept)
        yield row("Unique", repeated, sorted=kept)
        yield row("Unique", repeated, outputs=(True, False, True), sorted=kept)
        table = np.array([[1, 0], [1, 0], [0, 2]], np.float32)
        for axis in (0, 1, -1):
            yield row("Unique", table, outputs=4, axis=axis, sorted=kept)


def _sorted() -> Iterator[Row]:
    for largest in (1, 0):
        for count in (1, 2, 4):
            yield row("TopK", _TIES, ints(count), outputs=2, largest=largest)
        yield row("TopK", _TIES, ints(3), outputs=2, axis=0, largest=largest)
        yield row("TopK", _TIES, ints(2), outputs=2, axis=-2, largest=largest)
        yield row("TopK", real(2, 5, 3), ints(4), outputs=2, axis=1, largest=largest)
        yield row("TopK", _TIES, ints(0), outputs=2, largest=largest)
        yield row("TopK", _TIES, ints(3), outputs=(True, False), largest=largest)
        yield row("TopK", _TIES, ints(3), outputs=(False, True), largest=largest)
        far = np.array([[2**53 + 1, 2**53, -5, 2**53 + 2]])
        yield row("TopK", far, ints(3), outputs=2, largest=largest)
        yield row("TopK", whole(2, 6, dtype=np.int32), ints(3), outputs=2)
        infinite = np.array([[1, np.inf, -np.inf, 2]], np.float32)
        yield row("TopK", infinite, ints(4), outputs=2, largest=largest)
        yield row("TopK", real(7), ints(3), outputs=2, largest=largest, sorted=1)
    yield row("TopK", _TIES, ints(2), outputs=2, axis=1, opset=10)
    yield row("TopK", _TIES, outputs=2, axis=0, k=2, opset=9)


def _softened() -> Iterator[Row]:
    for operator in ("Softmax", "LogSoftmax", "Hardmax"):
        data = real(2, 3, 4)
        for axis in (0, 1, 2, -1, -2, -3):
            yield row(operator, data, axis=axis)
            yield row(operator, data, axis=axis, opset=12)
        yield row(operator, data)
        yield row(operator, data, opset=12)
        yield row(operator, data, opset=11)
        yield row(operator, real(5))
        yield row(operator, real(2, 3, 1), axis=-1)
        yield row(operator, real(2, 3) * 60, axis=1)
        yield row(operator, real(2, 3) * 60 - 500, axis=1)
        yield row(operator, real(2, 3, 2, 2, 2, 2), axis=1)
        yield row(operator, np.zeros((0, 3), np.float32), axis=1)
        yield row(operator, _TIES, axis=1)
        yield row(operator, _TIES, axis=0)
        yield row(operator, real(2, 300), axis=1)
        yield row(operator, real(300, 2), axis=0)
        yield row(operator, real(2, 3).astype(np.float64), axis=0)
    masked = np.array([[0, -np.inf, 1], [-np.inf, 2, -np.inf]], np.float32)
    yield row("Softmax", masked, axis=1)


def _summed() -> Iterator[Row]:
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, 1, -1, -2):
                yield row(
                    "CumSum", real(3, 4), np.int32(axis), exclusive=exclusive,
                    reverse=reverse,
                )  # fmt: skip
            yield row(
                "CumSum", whole(2, 3, 2), np.int64(1), exclusive=exclusive,
                reverse=reverse,
            )  # fmt: skip
    yield row("CumSum", real(5), np.int32(0), exclusive=1)
    yield row("CumSum", real(2, 1), np.int32(1), exclusive=1, reverse=1)
