"""TopK and Unique against Python's sort of lists."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel
from onnxplug_kernels.registry import UnsupportedAttribute


def run(
    op_type: str,
    *inputs: Any,
    version: int = 28,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


NUMBERS = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    np.int8,
    np.int64,
    np.uint8,
    np.uint64,
]


def ordered(row: list[Any], largest: int) -> list[int]:
    """Positions in order, NaN as the largest, of equal elements the first one first."""
    by_value = sorted(
        range(len(row)), key=lambda at: (row[at] != row[at], row[at]), reverse=False
    )
    if not largest:
        return by_value
    groups = itertools.groupby(by_value, key=lambda at: str(row[at]))
    return [at for group in reversed([list(g) for _, g in groups]) for at in group]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("axis", [0, -1])
def test_top_k(dtype: Any, largest: int, k: int, axis: int) -> None:
    x = np.array([[3, 1, 3, 0, 1], [7, 7, 7, 7, 7], [0, 1, 2, 3, 4]]).astype(dtype)
    x = x.swapaxes(axis, -1)
    values, indices = run("TopK", x, ints(k), axis=axis, largest=largest)
    assert (values.dtype, indices.dtype) == (x.dtype, np.int64)
    values, indices = values.swapaxes(axis, -1), indices.swapaxes(axis, -1)
    for row, found, at in zip(x.swapaxes(axis, -1), values, indices, strict=True):
        assert at.tolist() == ordered(row.tolist(), largest)[:k]
        assert found.tolist() == row[at].tolist()


@pytest.mark.parametrize("kind", ["distinct", "equal", "mixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_few_of_many(kind: str, dtype: Any, largest: int) -> None:
    random = np.random.default_rng(0)
    x = {
        "distinct": random.permuted(np.tile(np.arange(256), (3, 2)), axis=1),
        "equal": np.full((3, 512), 5),
        "mixed": random.integers(0, 200, (3, 512)),
    }[kind].astype(dtype)
    _, indices = run("TopK", x, ints(7), largest=largest)
    for row, at in zip(x, indices, strict=True):
        assert at.tolist() == ordered(row.tolist(), largest)[:7]


@pytest.mark.parametrize("size", [5, 600])
def test_top_k_counts_nan_as_the_largest(size: int) -> None:
    x = np.linspace(0, 1, size, dtype=np.float32)
    x[[1, 3]] = np.nan
    for k in (1, 2, 3):
        _, largest = run("TopK", x, ints(k))
        assert largest.tolist() == [1, 3, size - 1][:k]
        _, smallest = run("TopK", x, ints(k), largest=0)
        assert smallest.tolist() == [0, 2, 4][:k]


def test_top_k_of_former_versions() -> None:
    x = np.array([[1, 5, 2], [4, 4, 6]], np.float32)
    for values, indices in (
        run("TopK", x, version=1, k=2),
        run("TopK", x, ints(2), version=10),
        run("TopK", x, ints(2), version=11, sorted=0),
    ):
        order = np.argsort(-values, kind="stable")
        values = np.take_along_axis(values, order, -1)
        assert values.tolist() == [[5, 2], [6, 4]]
        assert np.take_along_axis(indices, order, -1).tolist() == [[1, 2], [2, 0]]
    with pytest.raises(UnsupportedAttribute, match="largest"):
        run("TopK", x, ints(2), version=10, largest=0)


def test_top_k_of_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="TopK of 4 elements along axis 0 of size 3"):
        run("TopK", ints(1, 2, 3), ints(4))
    values, indices = run("TopK", np.zeros((0, 3), np.float32), ints(2))
    assert (values.shape, indices.shape) == ((0, 2), (0, 2))


@pytest.mark.parametrize("dtype", [*NUMBERS, bool, object])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(dtype: Any, in_order: int, axis: int | None) -> None:
    x = np.array([[[3, 1], [0, 1]], [[3, 1], [0, 1]], [[0, 3], [3, 0]]])
    x = x.astype(str).astype(object) if dtype is object else x.astype(dtype)
    parts = (x.ravel() if axis is None else np.moveaxis(x, axis, 0)).tolist()
    distinct = sorted(parts) if in_order else parts
    distinct = [e for at, e in enumerate(distinct) if e not in distinct[:at]]

    attributes = {"sorted": in_order} | ({} if axis is None else {"axis": axis})
    values, *positions = run("Unique", x, output_count=4, **attributes)
    indices, inverse, counts = positions
    assert values.dtype == x.dtype
    found = values if axis is None else np.moveaxis(values, axis, 0)
    assert found.tolist() == distinct
    assert indices.tolist() == [parts.index(e) for e in distinct]
    assert inverse.tolist() == [distinct.index(e) for e in parts]
    assert counts.tolist() == [parts.count(e) for e in distinct]
    assert all((p.dtype, p.ndim) == (np.int64, 1) for p in positions)


def test_unique_values_alone_are_the_same() -> None:
    x = np.array([[2, 1], [2, 3]], np.float32)
    (values,) = run("Unique", x)
    assert (values.dtype, values.tolist()) == (np.float32, [1, 2, 3])
    assert run("Unique", x, sorted=0)[0].tolist() == [2, 1, 3]


def test_unique_of_nothing() -> None:
    for attributes in ({}, {"sorted": 0}):
        outputs = run("Unique", np.zeros((0, 2)), output_count=4, **attributes)
        assert [output.shape for output in outputs] == [(0,)] * 4
    outputs = run("Unique", np.zeros((0, 2)), output_count=4, axis=0)
    assert [output.shape for output in outputs] == [(0, 2), (0,), (0,), (0,)]
