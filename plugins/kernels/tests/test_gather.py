"""Gathering and scattering against loops over the specification's equations."""

from __future__ import annotations

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


DTYPES = [np.float32, np.int64, bool, object, ml_dtypes.bfloat16]
COMBINE: dict[str, Any] = {
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    values = np.arange(np.prod(shape, dtype=int)) % 7
    if dtype is object:
        return np.array([f"s{v}" for v in values], dtype=object).reshape(shape)
    return values.astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-3, -1, 0, 1])
@pytest.mark.parametrize("indices", [1, [-1, 0], [[0, 1], [1, -2]], np.zeros((2, 0))])
def test_gather(dtype: Any, axis: int, indices: Any) -> None:
    x = numbered((2, 3, 4), dtype)
    where = np.array(indices, dtype=np.int32)
    for version in (1, 13):
        result = run("Gather", x, where, axis=axis, version=version)
        axis %= 3
        shape = x.shape[:axis] + where.shape + x.shape[axis + 1 :]
        assert (result.shape, result.dtype) == (shape, x.dtype)
        for before in np.ndindex(*x.shape[:axis]):
            for at in np.ndindex(*where.shape):
                assert np.all(result[before + at] == x[before][where[at]])


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.int4])
def test_gather_of_one_element_is_an_array(dtype: Any) -> None:
    x = numbered((3,), dtype)
    result = run("Gather", x, np.array(2))
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype, result[()]) == ((), x.dtype, x[2])


@pytest.mark.parametrize("index", [-4, 3])
def test_indices_out_of_range_are_errors(index: int) -> None:
    x = numbered((3, 3))
    message = f"index {index} is out of range for axis [01] of size 3; expected -3 to 2"
    where = np.full((1, 1), index)
    for op_type, inputs, attributes in (
        ("Gather", (x, where), {"axis": 1}),
        ("GatherElements", (x, where), {"axis": 0}),
        ("GatherND", (x, where), {}),
        ("ScatterElements", (x, where, x[:1, :1]), {}),
        ("ScatterND", (x, where, x[:1]), {}),
    ):
        with pytest.raises(IndexError, match=message):
            run(op_type, *inputs, **attributes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(dtype: Any, axis: int) -> None:
    x = numbered((3, 3, 4), dtype)
    where = np.array([[[2, -1], [0, 1]]], np.int64)
    result = run("GatherElements", x, where, axis=axis)
    assert (result.shape, result.dtype) == (where.shape, x.dtype)
    for position in np.ndindex(*where.shape):
        source = list(position)
        source[axis] = where[position]
        assert result[position] == x[tuple(source)]


def test_gather_elements_of_too_many() -> None:
    with pytest.raises(ValueError, match="no larger sizes except along axis 0"):
        run("GatherElements", numbered((3, 2)), np.zeros((3, 4), np.int64))
    with pytest.raises(ValueError, match="same rank"):
        run("GatherElements", numbered((3, 2)), ints(1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_dims", [0, 1, 2])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_gather_nd(dtype: Any, batch_dims: int, length: int) -> None:
    x = numbered((2, 3, 2, 2), dtype)
    where = np.arange(2 * 3 * 5 * length).reshape(2, 3, 5, length) % 4 - 2
    if batch_dims + length > x.ndim:
        with pytest.raises(ValueError, match=f"tuples of length {length}"):
            run("GatherND", x, where, batch_dims=batch_dims)
        return
    result = run("GatherND", x, where, batch_dims=batch_dims)
    rest = x.shape[batch_dims + length :]
    assert (result.shape, result.dtype) == ((2, 3, 5, *rest), x.dtype)
    for position in np.ndindex(2, 3, 5):
        source = position[:batch_dims] + tuple(where[position])
        assert np.all(result[position] == x[source])


def test_gather_nd_of_one_tuple() -> None:
    x = numbered((2, 2), object)
    result = run("GatherND", x, ints(1, -1), version=11)
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype, result.item()) == ((), object, "s3")
    with pytest.raises(UnsupportedAttribute, match="batch_dims"):
        run("GatherND", x, ints(1, 1), version=11, batch_dims=0)
    with pytest.raises(ValueError, match="same 1 batch axes"):
        run("GatherND", x, np.zeros((3, 1), np.int64), batch_dims=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op_type", ["Scatter", "ScatterElements"])
def test_scatter(dtype: Any, op_type: str) -> None:
    x = numbered((3, 4), dtype)
    where = np.array([[2, -4], [0, 3]])
    updates = numbered((2, 2), dtype)
    expected = x.copy()
    for i, j in np.ndindex(2, 2):
        expected[i, where[i, j]] = updates[i, j]
    before = x.copy()
    for version in (11, 28):
        result = run(op_type, x, where, updates, axis=-1, version=version)
        assert result.dtype == x.dtype
        assert result.tolist() == expected.tolist()
    assert x.tolist() == before.tolist()


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int8, np.uint64, ml_dtypes.bfloat16]
)
def test_scatter_combines_every_update(dtype: Any, reduction: str) -> None:
    x, updates = numbered((3, 2), dtype) + dtype(1), numbered((4, 2), dtype)
    where = np.array([[1, 2], [1, 0], [-2, 2], [0, 0]])
    expected = x.copy()
    for i, j in np.ndindex(4, 2):
        old = expected[where[i, j], j]
        expected[where[i, j], j] = COMBINE[reduction](old, updates[i, j])
    result = run("ScatterElements", x, where, updates, reduction=reduction)
    assert result.dtype == x.dtype
    assert result.tolist() == expected.tolist()

    expected = x.copy()
    for i, row in enumerate(where[:, 0]):
        for j in range(2):
            old = expected[row, j]
            expected[row, j] = COMBINE[reduction](old, updates[i, j])
    result = run("ScatterND", x, where[:, :1], updates, reduction=reduction)
    assert result.dtype == x.dtype
    assert result.tolist() == expected.tolist()


def test_scatter_accumulates_narrow_floats_in_wider_ones() -> None:
    # 2048 + 1 is 2048 in float16, however often it is added
    x = np.array([2048], np.float16)
    where, ones = np.zeros(8, np.int64), np.ones(8, np.float16)
    assert run("ScatterElements", x, where, ones, reduction="add").tolist() == [2056]


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_nd(dtype: Any) -> None:
    x = numbered((3, 2, 2), dtype)
    where = np.array([[0, 1], [-1, 0]])
    updates = numbered((2, 2), dtype)[::-1]
    expected = x.copy()
    expected[0, 1], expected[2, 0] = updates
    for version in (11, 13, 16, 18):
        result = run("ScatterND", x, where, updates, version=version)
        assert result.tolist() == expected.tolist()
    assert x.tolist() == numbered((3, 2, 2), dtype).tolist()


def test_scatter_reductions_are_named() -> None:
    x, where = numbered((3,)), ints(0)
    with pytest.raises(ValueError, match="expected none, add, mul, max, min"):
        run("ScatterElements", x, where, x[:1], reduction="sub")
    with pytest.raises(UnsupportedAttribute, match="reduction"):
        run("ScatterElements", x, where, x[:1], reduction="add", version=13)


@pytest.mark.parametrize("dtype", [np.float32, object, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize(("axis", "shape"), [(-2, (2, 3, 4, 2)), (1, (2, 4, 3))])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(
    dtype: Any, axis: int, shape: tuple[int, ...], mode: str
) -> None:
    past = numbered(shape, dtype)
    update_shape = list(shape)
    update_shape[axis] = 2
    update = numbered(tuple(update_shape), dtype)[::-1]
    starts = ints(1, 2) if mode == "linear" else ints(3, 9)
    result = run("TensorScatter", past, update, starts, axis=axis, mode=mode)
    expected = past.copy()
    axis %= len(shape)
    for prefix in np.ndindex(*shape[:axis]):
        for step in range(2):
            at = (starts[prefix[0]] + step) % 4
            expected[(*prefix, at)] = update[(*prefix, step)]
    assert result.tolist() == expected.tolist()
    first = run("TensorScatter", past, update, axis=axis)
    expected = past.copy()
    expected.swapaxes(axis, 1)[:, :2] = update.swapaxes(axis, 1)
    assert first.tolist() == expected.tolist()


def test_tensor_scatter_stays_inside_the_cache() -> None:
    past, update = numbered((2, 4, 1)), numbered((2, 2, 1))
    with pytest.raises(IndexError, match="positions 0 to 4 of axis 1"):
        run("TensorScatter", past, update, ints(0, 3))
    with pytest.raises(ValueError, match="linear or circular"):
        run("TensorScatter", past, update, mode="ring")


@pytest.mark.parametrize("dtype", DTYPES)
def test_compress(dtype: Any) -> None:
    x = numbered((3, 2), dtype)
    keep = np.array([False, True])
    assert run("Compress", x, keep, axis=0).tolist() == [x[1].tolist()]
    assert run("Compress", x, keep, axis=-1).tolist() == x[:, 1:].tolist()
    assert run("Compress", x, keep, version=9).tolist() == [x[0, 1]]
    assert run("Compress", x, np.zeros(0, bool)).shape == (0,)


def test_compress_by_too_long_a_condition() -> None:
    with pytest.raises(IndexError):
        run("Compress", numbered((2,)), np.array([True, True, True]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_non_zero(dtype: Any) -> None:
    x = np.array([[1, 0, 2], [0, 0, 1]]).astype(dtype)
    if dtype is object:
        x = np.array([["a", "", "b"], ["", "", "c"]], object)
    result = run("NonZero", x)
    assert result.dtype == np.int64
    assert result.tolist() == [[0, 0, 1], [0, 2, 2]]


def test_non_zero_of_a_scalar_has_no_rows() -> None:
    # unlike numpy, and as the specification says
    assert run("NonZero", np.array(3)).shape == (0, 1)
    assert run("NonZero", np.array(0.0)).shape == (0, 0)
    assert run("NonZero", np.zeros((2, 0), bool)).shape == (2, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-3, -1, 0, 1])
@pytest.mark.parametrize("index_type", [np.int64, np.uint8, np.float32])
def test_one_hot(dtype: Any, axis: int, index_type: Any) -> None:
    indices = np.array([[0, 2, 3], [-1, -3, -4]])
    if index_type is np.uint8:
        indices = np.abs(indices)
    values = numbered((2,), dtype)
    for version in (9, 11):
        result = run(
            "OneHot",
            indices.astype(index_type),
            np.array([3.0]),
            values,
            axis=axis,
            version=version,
        )
        assert result.dtype == values.dtype
        classes = np.moveaxis(result, axis, -1)
        assert classes.shape == (2, 3, 3)
        for i, j, c in np.ndindex(2, 3, 3):
            hot = {c} if version == 9 else {c, c - 3}
            assert classes[i, j, c] == values[int(indices[i, j] in hot)]
