"""Reductions, indices and running tallies: examples of the pages, Python's results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..standin.operators import OPERATORS, Rejected
from .examples import assert_documented, assert_rejected, described, evaluate, f32, u32

EXAMPLE = f32([[1, 2, 3], [3, 0, 4], [2, 4, 2]])


@pytest.mark.parametrize(
    ("axes", "expected"),
    [((0,), [[6, 6, 9]]), ((1,), [[6], [7], [8]]), ((0, 1), [[21]])],
)
def test_sum(axes: tuple[int, ...], expected: Any) -> None:
    assert_documented(
        "REDUCE",
        Function="SUM",
        InputTensor=EXAMPLE,
        OutputTensor=f32(expected),
        Axes=axes,
    )


RANDOM = np.random.default_rng(9).uniform(0.5, 2, (2, 3, 4)).astype(np.float32)

FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "AVERAGE": lambda x: math.fsum(x) / len(x),
    "L1": lambda x: math.fsum(map(abs, x)),
    "L2": lambda x: math.hypot(*x),
    "LOG_SUM": lambda x: math.log(math.fsum(x)),
    "LOG_SUM_EXP": lambda x: math.log(math.fsum(map(math.exp, x))),
    "MAX": max,
    "MIN": min,
    "MULTIPLY": math.prod,
    "SUM": math.fsum,
    "SUM_SQUARE": lambda x: math.fsum(v * v for v in x),
}


@pytest.mark.parametrize("axes", [(1,), (0, 2), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, axes: tuple[int, ...]) -> None:
    x = RANDOM if name.startswith("LOG") else RANDOM * f32([1, -1, 1, -1])
    kept = [at for at in range(3) if at not in axes]
    rows = x.transpose(*kept, *sorted(axes)).reshape(*(x.shape[a] for a in kept), -1)
    expected = np.apply_along_axis(lambda r: FUNCTIONS[name](r.tolist()), -1, rows)
    sizes = tuple(1 if at in axes else n for at, n in enumerate(x.shape))
    expected = expected.reshape(sizes).astype(np.float32)
    fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": expected, "Axes": axes}
    (found,) = evaluate("REDUCE", Function=name, **fields)
    np.testing.assert_array_max_ulp(found, expected, 1)


def test_log_sum_exp_of_large_values_does_not_overflow() -> None:
    x, y = f32([[1000, 1000]]), f32([[1000 + math.log(2)]])
    fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": y, "Axes": (1,)}
    assert_documented("REDUCE", Function="LOG_SUM_EXP", **fields)


def test_integers_wrap() -> None:
    x = np.array([[2**31 - 1, 1], [3, 4]], np.int32)
    expected = np.array([[-(2**31)], [7]], np.int32)
    fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": expected, "Axes": (1,)}
    assert_documented("REDUCE", Function="SUM", **fields)


def test_each_function_has_data_types_of_its_own() -> None:
    small = np.array([[1, 2]], np.int8)
    fields: dict[str, Any] = {
        "InputTensor": small,
        "OutputTensor": small[:, :1],
        "Axes": (1,),
    }
    assert_documented("REDUCE", Function="MIN", **fields)
    for name in ("SUM", "AVERAGE", "L1"):
        assert_rejected("REDUCE", f"{name} of INT8", Function=name, **fields)
    wide = np.array([[3, 2]])
    fields = {"InputTensor": wide, "OutputTensor": wide[:, :1], "Axes": (1,)}
    assert_rejected("REDUCE", "L2 of INT64", Function="L2", **fields)
    fields["OutputTensor"] = u32([[1]])
    assert_rejected("REDUCE", "DataType must be", Function="MAX", **fields)
    fields = {"InputTensor": f32([[1, 3]]), "OutputTensor": f32([[1]]), "Axes": (1,)}
    assert_rejected("REDUCE", "gives no FLOAT32", Function="ARGMAX", **fields)


@pytest.mark.parametrize(
    ("function", "dtype", "since"),
    [
        ("SUM", "u4", (3, 0)),
        ("SUM", "i8", (5, 0)),
        ("L1", "i4", (5, 0)),
        ("MAX", "i1", (3, 0)),
        ("MAX", "u8", (5, 0)),
    ],
)
def test_levels_of_functions(function: str, dtype: str, since: tuple[int, int]) -> None:
    """On tensors of two dimensions, which came with 3.0."""
    x = np.array([[1, 2]], dtype)
    fields: dict[str, Any] = {"InputTensor": x, "OutputTensor": x[:, :1].copy()}
    fields |= {"Function": function, "Axes": (1,), "AxisCount": 1}
    check = OPERATORS["REDUCE"].check_level
    desc = described("REDUCE", (6, 4), fields)
    tensors = {"InputTensor": desc.InputTensor, "OutputTensor": desc.OutputTensor}
    check(desc, tensors, since)
    if since > (3, 0):
        with pytest.raises(Rejected, match=f"feature level {since[0]}"):
            check(desc, tensors, (4, 1))


def test_axes_are_within_and_once() -> None:
    fields: dict[str, Any]
    for axes in ((2,), (0, 0)):
        fields = {"InputTensor": EXAMPLE, "OutputTensor": f32([[1, 2, 3]])}
        assert_rejected("REDUCE", "Axes", Function="SUM", Axes=axes, **fields)
    fields = {
        "InputTensor": EXAMPLE,
        "OutputTensor": f32([1, 2, 3]),
        "Axes": (0,),
    }
    assert_rejected("REDUCE", "OutputTensor has Sizes", Function="SUM", **fields)


INDEXED = f32([[1, 2, 3], [3, 0, 4], [2, 5, 2]])


@pytest.mark.parametrize(
    ("name", "axes", "expected"),
    [
        ("ARGMAX", (0,), [[1, 2, 1]]),
        ("ARGMAX", (1,), [[2], [2], [1]]),
        ("ARGMAX", (0, 1), [[7]]),
        ("ARGMIN", (0,), [[0, 1, 2]]),
        ("ARGMIN", (1,), [[0], [1], [0]]),
        ("ARGMIN", (0, 1), [[4]]),
    ],
)
def test_indices(name: str, axes: tuple[int, ...], expected: Any) -> None:
    fields: dict[str, Any] = {
        "InputTensor": INDEXED,
        "OutputTensor": u32(expected),
        "Axes": axes,
    }
    assert_documented(name, AxisDirection="INCREASING", **fields)
    assert_documented("REDUCE", Function=name, **fields)


def test_the_direction_decides_between_equals() -> None:
    for name, values in (("ARGMAX", [3, 2, 1, 2, 3]), ("ARGMIN", [1, 2, 3, 2, 1])):
        for direction, expected in (("INCREASING", 0), ("DECREASING", 4)):
            assert_documented(
                name,
                InputTensor=f32(values),
                OutputTensor=np.array([expected]),
                Axes=(0,),
                AxisDirection=direction,
            )


TALLIED = f32([[[[2, 1, 3, 5], [3, 8, 7, 3], [9, 6, 2, 4]]]])


@pytest.mark.parametrize(
    ("axis", "direction", "exclusive", "expected"),
    [
        (3, "INCREASING", False, [[2, 3, 6, 11], [3, 11, 18, 21], [9, 15, 17, 21]]),
        (3, "INCREASING", True, [[0, 2, 3, 6], [0, 3, 11, 18], [0, 9, 15, 17]]),
        (3, "DECREASING", False, [[11, 9, 8, 5], [21, 18, 10, 3], [21, 12, 6, 4]]),
        (2, "INCREASING", False, [[2, 1, 3, 5], [5, 9, 10, 8], [14, 15, 12, 12]]),
    ],
)
def test_cumulative_summation(
    axis: int, direction: str, exclusive: bool, expected: Any
) -> None:
    assert_documented(
        "CUMULATIVE_SUMMATION",
        InputTensor=TALLIED,
        OutputTensor=f32([[expected]]),
        Axis=axis,
        AxisDirection=direction,
        HasExclusiveSum=exclusive,
    )


@pytest.mark.parametrize(
    ("axis", "direction", "exclusive", "expected"),
    [
        (3, "INCREASING", False, [[2, 2, 6, 30], [3, 24, 168, 504], [9, 54, 108, 432]]),
        (3, "INCREASING", True, [[1, 2, 2, 6], [1, 3, 24, 168], [1, 9, 54, 108]]),
        (3, "DECREASING", False, [[30, 15, 15, 5], [504, 168, 21, 3], [432, 48, 8, 4]]),
        (2, "INCREASING", False, [[2, 1, 3, 5], [6, 8, 21, 15], [54, 48, 42, 60]]),
    ],
)
def test_cumulative_product(
    axis: int, direction: str, exclusive: bool, expected: Any
) -> None:
    assert_documented(
        "CUMULATIVE_PRODUCT",
        InputTensor=TALLIED,
        OutputTensor=f32([[expected]]),
        Axis=axis,
        AxisDirection=direction,
        HasExclusiveProduct=exclusive,
    )


def test_the_axis_of_a_tally_is_within() -> None:
    fields: dict[str, Any] = {
        "InputTensor": TALLIED,
        "OutputTensor": TALLIED,
        "Axis": 4,
    }
    fields |= {"AxisDirection": "INCREASING", "HasExclusiveSum": False}
    assert_rejected("CUMULATIVE_SUMMATION", "Axes", **fields)
