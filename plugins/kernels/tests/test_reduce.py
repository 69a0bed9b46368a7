"""Reductions against float64 and Python integers, and ONNX's rules of what is empty."""

from __future__ import annotations

import math
from collections.abc import Callable
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


# of a list of Python numbers
EXACT: dict[str, Callable[[list[Any]], Any]] = {
    "ReduceL1": lambda v: sum(map(abs, v)),
    "ReduceL2": lambda v: math.sqrt(sum(e * e for e in v)),
    "ReduceLogSum": lambda v: math.log(sum(v)),
    "ReduceLogSumExp": lambda v: math.log(sum(map(math.exp, v))),
    "ReduceMax": max,
    "ReduceMean": lambda v: math.fsum(v) / len(v),
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceSumSquare": lambda v: sum(e * e for e in v),
}
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]
NUMBERS = np.array([[[1, 3, 2], [2, 1, 5]], [[4, 1, 1], [3, 2, 2]]])


def expected(op_type: str, x: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    axes = tuple(sorted(axis % x.ndim for axis in axes))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    result = np.empty([x.shape[axis] for axis in kept], object)
    for position in np.ndindex(*result.shape):
        index: list[Any] = [slice(None)] * x.ndim
        for axis, at in zip(kept, position, strict=True):
            index[axis] = at
        result[position] = EXACT[op_type](x[tuple(index)].ravel().tolist())
    return np.expand_dims(result, axes) if keepdims else result


@pytest.mark.parametrize("op_type", EXACT)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_reduction(op_type: str, dtype: Any) -> None:
    for axes in ((0,), (-1,), (2, 0), (-2, -1, -3)):
        for keepdims in (0, 1):
            check_reduction(op_type, dtype, axes, keepdims)


def check_reduction(
    op_type: str, dtype: Any, axes: tuple[int, ...], keepdims: int
) -> None:
    x = NUMBERS.astype(dtype)
    exact = expected(op_type, x, axes, keepdims)
    rtol = 1e-6 if dtype is np.float32 else 1e-12
    if dtype in (np.float16, ml_dtypes.bfloat16):
        rtol = 2**-10 if dtype is np.float16 else 2**-7
    since = 13 if op_type == "ReduceSum" else 18
    for result in (
        run(op_type, x, ints(*axes), keepdims=keepdims),
        run(op_type, x, ints(*axes), keepdims=keepdims, version=since),
        run(op_type, x, axes=axes, keepdims=keepdims, version=since - 1),
        run(op_type, x, axes=axes, keepdims=keepdims, version=1),
    ):
        assert isinstance(result, np.ndarray)
        assert (result.shape, result.dtype) == (exact.shape, x.dtype)
        if dtype in INTEGERS:
            assert result.tolist() == np.vectorize(int, otypes=[object])(exact).tolist()
        else:
            assert result.astype(float) == pytest.approx(exact.astype(float), rel=rtol)


@pytest.mark.parametrize("op_type", EXACT)
def test_no_axes_are_all_of_them(op_type: str) -> None:
    x = NUMBERS.astype(np.float64)
    exact = expected(op_type, x, (0, 1, 2), 1).astype(float)
    since = 13 if op_type == "ReduceSum" else 18
    for result in (
        run(op_type, x),
        run(op_type, x, None),
        run(op_type, x, ints()),
        run(op_type, x, version=since - 1),
        run(op_type, x, axes=(), version=1),
    ):
        assert result.shape == (1, 1, 1)
        assert result == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("op_type", EXACT)
def test_no_axes_reduce_nothing_when_told_so(op_type: str) -> None:
    # the parts that are no reduction still happen: logarithm, square, absolute value
    x = NUMBERS.astype(np.float64)
    exact = [[[EXACT[op_type]([e]) for e in r] for r in m] for m in x.tolist()]
    for axes in (None, ints()):
        result = run(op_type, x, axes, noop_with_empty_axes=1)
        assert result == pytest.approx(np.array(exact), rel=1e-12)
    since = 13 if op_type == "ReduceSum" else 18
    with pytest.raises(UnsupportedAttribute, match="noop_with_empty_axes"):
        run(op_type, x, version=since - 1, noop_with_empty_axes=1)


@pytest.mark.parametrize("op_type", EXACT)
def test_a_scalar(op_type: str) -> None:
    x = np.array(3, np.float32)
    for axes in (None, ints(0), ints(-1)):
        result = run(op_type, x, axes)
        assert isinstance(result, np.ndarray)
        assert (result.shape, result.dtype) == ((), np.float32)
        assert result.item() == pytest.approx(EXACT[op_type]([3.0]), rel=1e-6)


EMPTY: dict[str, float] = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMean": 0,
    "ReduceMin": np.inf,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}


@pytest.mark.parametrize("op_type", EMPTY)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_nothing(op_type: str, dtype: Any, keepdims: int) -> None:
    x = np.zeros((2, 0, 3), dtype)
    with np.errstate(divide="ignore"):
        result = run(op_type, x, ints(1), keepdims=keepdims)
    assert result.dtype == x.dtype
    row = [EMPTY[op_type]] * 3
    assert result.tolist() == ([[row], [row]] if keepdims else [row, row])
    assert run(op_type, x, ints(0), keepdims=0).shape == (0, 3)


@pytest.mark.parametrize("dtype", [*INTEGERS, np.int8, np.uint8])
def test_extremes_of_nothing_are_those_of_the_dtype(dtype: Any) -> None:
    x = np.zeros(0, dtype)
    assert run("ReduceMax", x, keepdims=0).item() == np.iinfo(dtype).min
    assert run("ReduceMin", x, keepdims=0).item() == np.iinfo(dtype).max


def test_extremes_of_bools() -> None:
    x = np.array([[True, False], [False, False]])
    assert run("ReduceMax", x, ints(1), keepdims=0).tolist() == [True, False]
    assert run("ReduceMin", x, ints(1), keepdims=0).tolist() == [False, False]
    nothing = np.zeros(0, bool)
    assert run("ReduceMax", nothing).tolist() == [False]
    assert run("ReduceMin", nothing).tolist() == [True]
    assert run("ReduceMax", x).dtype == bool


def test_narrow_floats_are_summed_in_wider_ones() -> None:
    # 2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16
    x = np.array([2048] + [1] * 64, np.float16)
    assert run("ReduceSum", x, keepdims=0).item() == 2112
    narrow = np.array([256] + [1] * 64, ml_dtypes.bfloat16)
    assert run("ReduceSum", narrow, keepdims=0).item() == 320
    assert run("ReduceL2", np.array([3e4, 4e4], np.float16)).tolist() == [49984]


def test_integer_sums_wrap_in_their_own_dtype() -> None:
    x = np.array([2**31 - 1, 1], np.int32)
    assert run("ReduceSum", x).tolist() == [-(2**31)]
    assert run("ReduceProd", x * 0 - 2).tolist() == [4]


def test_integer_means_round_toward_zero() -> None:
    assert run("ReduceMean", np.array([-3, -4], np.int32)).tolist() == [-3]
    assert run("ReduceMean", ints(2**53, 2**53 + 2)).tolist() == [2**53 + 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_log_sum_exp_is_stable(dtype: Any) -> None:
    infinity = np.inf
    x = np.array(
        [[1000, 1000], [-1000, -1000], [-infinity, -infinity], [infinity, 1]], dtype
    )
    with np.errstate(divide="ignore"):
        result = run("ReduceLogSumExp", x, ints(1), keepdims=0)
    shifted = np.log(2) + np.array([1000, -1000])
    assert result[:2].astype(float) == pytest.approx(shifted, rel=0.01)
    assert result[2:].tolist() == [-infinity, infinity]


def test_nan_is_the_extreme() -> None:
    x = np.array([1, np.nan, 3], np.float32)
    for op_type in ("ReduceMax", "ReduceMin", "ReduceLogSumExp"):
        assert np.isnan(run(op_type, x)).all()


@pytest.mark.parametrize(
    "dtype", [*FLOATS, *INTEGERS, np.int8, np.uint8, np.int16, np.uint16]
)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_position_of_the_extreme(
    op_type: str, dtype: Any, axis: int, keepdims: int
) -> None:
    x = NUMBERS.astype(dtype)
    extreme = max if op_type == "ArgMax" else min
    rows = np.moveaxis(x, axis, -1)
    for last in (0, 1):
        exact = np.empty(rows.shape[:-1], np.int64)
        for position in np.ndindex(*exact.shape):
            row = rows[position].tolist()
            found = [at for at, e in enumerate(row) if e == extreme(row)]
            exact[position] = found[-last]
        if keepdims:
            exact = np.expand_dims(exact, axis)
        result = run(op_type, x, axis=axis, keepdims=keepdims, select_last_index=last)
        assert (result.dtype, result.tolist()) == (np.int64, exact.tolist())
        if not last:
            old = run(op_type, x, axis=axis, keepdims=keepdims, version=1)
            assert (old.dtype, old.tolist()) == (np.int64, exact.tolist())


def test_position_is_an_array_even_of_a_vector() -> None:
    result = run("ArgMax", ints(1, 3, 3), keepdims=0)
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.item()) == ((), 1)
    with pytest.raises(UnsupportedAttribute, match="select_last_index"):
        run("ArgMin", ints(1), version=11, select_last_index=1)


@pytest.mark.parametrize("op_type", EXACT)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_what_is_stretched_is_as_if_it_were_not(op_type: str, dtype: Any) -> None:
    few = np.random.default_rng(0).integers(1, 3, (1, 4, 1)).astype(dtype)
    x = np.broadcast_to(few, (5, 4, 3))
    rtol = 1e-2 if np.dtype(dtype).itemsize == 2 else 1e-6
    for axes in ((0,), (1,), (2,), (0, -2), (0, 1, 2)):
        for keepdims in (0, 1):
            with np.errstate(over="ignore"):
                found = run(op_type, x, ints(*axes), keepdims=keepdims)
                expected = run(op_type, x.copy(), ints(*axes), keepdims=keepdims)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(
                found.astype(np.float64),
                expected.astype(np.float64),
                rtol,
                err_msg=f"{axes}, keepdims={keepdims}",
            )


@pytest.mark.parametrize("op_type", [*EXACT, "ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_2_40_times_the_same_takes_no_time(op_type: str, dtype: Any) -> None:
    n = 1 << 40
    x = np.broadcast_to(np.array([[1, 3]], dtype), (n, 2))
    if op_type.startswith("Arg"):
        for last, expected in ((0, 0), (1, n - 1)):
            found = run(op_type, x, axis=0, keepdims=0, select_last_index=last)
            assert found.tolist() == [expected] * 2
            found = run(op_type, x, axis=1, select_last_index=last)
            assert found.shape == (n, 1)
            assert found[0].item() == found[-1].item() == (op_type == "ArgMax")
        return
    with np.errstate(over="ignore"):
        found = run(op_type, x, ints(0), keepdims=0)
    assert found.dtype == dtype
    exact = {
        "ReduceMax": [1, 3],
        "ReduceMin": [1, 3],
        "ReduceMean": [1, 3],
        "ReduceSum": [n, 3 * n],
        "ReduceL1": [n, 3 * n],
        "ReduceSumSquare": [n, 9 * n],
        "ReduceL2": [2**20, 3 * 2**20],
        "ReduceLogSum": [math.log(n), math.log(3 * n)],
        "ReduceLogSumExp": [1 + math.log(n), 3 + math.log(n)],
        "ReduceProd": [1, pow(3, n, 1 << 64)],
    }[op_type]
    if np.dtype(dtype).kind in "iu":
        bits = 8 * np.dtype(dtype).itemsize
        wrapped = [int(value) % (1 << bits) for value in exact]
        assert [int(value) % (1 << bits) for value in found] == wrapped
        return
    if op_type == "ReduceProd":
        exact = [1, math.inf]
    with np.errstate(over="ignore"):
        expected = np.array(exact, np.float64).astype(dtype)
    np.testing.assert_allclose(
        found, expected, rtol=2e-3 if dtype is np.float16 else 1e-6
    )
