"""Running sums and products against loops over Python numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel


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


OPERATORS: dict[str, Callable[[list[Any]], Any]] = {"CumSum": sum, "CumProd": math.prod}


@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
        np.int32,
        np.int64,
        np.uint32,
        np.uint64,
    ],
)
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_scan(
    op_type: str, dtype: Any, axis: int, exclusive: int, reverse: int
) -> None:
    x = np.array([[1, 2, 3], [4, 1, 2]]).astype(dtype)
    result = run(op_type, x, np.array(axis), exclusive=exclusive, reverse=reverse)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    rows, results = x.swapaxes(axis, -1).tolist(), result.swapaxes(axis, -1).tolist()
    for row, found in zip(rows, results, strict=True):
        for at in range(len(row)):
            upto, onward = row[: at + 1 - exclusive], row[at + exclusive :]
            span = onward if reverse else upto
            assert found[at] == OPERATORS[op_type](span)


@pytest.mark.parametrize("op_type", OPERATORS)
def test_scan_of_nothing(op_type: str) -> None:
    for exclusive in (0, 1):
        x = np.zeros((2, 0), np.int32)
        result = run(op_type, x, ints(1), exclusive=exclusive)
        assert (result.shape, result.dtype) == ((2, 0), np.int32)


def test_scan_keeps_the_width_of_integers_and_not_of_narrow_floats() -> None:
    x = np.array([2**31 - 1, 1], np.int32)
    assert run("CumSum", x, np.array(0), version=11).tolist() == [x[0], -(2**31)]
    # 2048 + 1 is 2048 in float16
    y = np.array([2048, 1, 1], np.float16)
    assert run("CumSum", y, np.array(0)).tolist() == [2048, 2048, 2050]


def test_scan_along_an_axis_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="axis is 2"):
        run("CumSum", np.zeros((2, 2)), np.array(2))
