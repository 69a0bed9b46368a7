"""Arithmetic against Python's own numbers and float64 computation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels.erf import erf
from onnxplug_kernels.registry import UnsupportedAttribute

from .node_oracles import reference, run

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def numbers(dtype: Any, shape: tuple[int, ...] = (2, 3), seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "u":
        return generator.integers(1, 12, shape).astype(dtype)
    if np.dtype(dtype).kind == "i":
        values = generator.integers(-12, 12, shape)
        return np.where(values == 0, 5, values).astype(dtype)
    return generator.uniform(-4, 4, shape).astype(dtype)


def epsilon(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def assert_rounded(actual: Any, exact: Any, dtype: Any) -> None:
    """*actual* is *exact*, in float64, rounded to *dtype*, within one unit."""
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == dtype
    assert actual.shape == np.shape(exact)
    np.testing.assert_allclose(
        actual.astype(np.float64), exact, rtol=epsilon(dtype), atol=1e-300
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((), ()), ((0, 3), (1,))])
@pytest.mark.parametrize(
    ("op_type", "exact"),
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
        ("Max", np.maximum),
        ("Min", np.minimum),
    ],
)
def test_binary_floats(op_type: str, exact: Any, shapes: Any, dtype: Any) -> None:
    a, b = numbers(dtype, shapes[0], 1), numbers(dtype, shapes[1], 2)
    expected = exact(a.astype(np.float64), b.astype(np.float64))
    assert_rounded(run(op_type, a, b), expected, dtype)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize(
    ("op_type", "attributes", "exact"),
    [
        ("Add", {}, lambda a, b: a + b),
        ("Mul", {}, lambda a, b: a * b),
        ("Div", {}, lambda a, b: math.trunc(Fraction(a, b))),
        ("Mod", {}, lambda a, b: a % b),
        ("Mod", {"fmod": 1}, lambda a, b: a - b * math.trunc(Fraction(a, b))),
        ("Max", {}, max),
        ("Min", {}, min),
    ],
)
def test_binary_integers(op_type: str, attributes: Any, exact: Any, dtype: Any) -> None:
    a, b = numbers(dtype, (40,), 1), numbers(dtype, (40,), 2)
    expected = [exact(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    result = run(op_type, a, b, **attributes)
    assert result.dtype == dtype
    # wrapped as two's complement is
    np.testing.assert_array_equal(result, np.array(expected).astype(dtype))


def test_large_integers_divide_exactly() -> None:
    a = np.array([2**62 + 1, -(2**62) - 1, 7], dtype=np.int64)
    np.testing.assert_array_equal(
        run("Div", a, np.array(2, dtype=np.int64)), [2**61, -(2**61), 3]
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_floats_special_cases(dtype: Any, fmod: int) -> None:
    inf, nan = math.inf, math.nan
    a = np.array([5.5, -5.5, 5.5, inf, 1, -1, nan, 1], dtype=dtype)
    b = np.array([2, 2, -2, 2, inf, inf, 1, 0], dtype=dtype)
    floored = [1.5, 0.5, -0.5, nan, 1, inf, nan, nan]
    truncated = [1.5, -1.5, 1.5, nan, 1, -1, nan, nan]
    with np.errstate(all="ignore"):
        result = run("Mod", a, b, fmod=fmod, version=28)
    assert result.dtype == dtype
    np.testing.assert_array_equal(
        result.astype(np.float64), truncated if fmod else floored
    )


@pytest.mark.parametrize("base", [np.int32, np.int64, *FLOATS])
@pytest.mark.parametrize("exponent", [np.uint8, np.int64, np.float16, np.float64])
def test_power_has_the_dtype_of_its_base(base: Any, exponent: Any) -> None:
    x = np.array([1, 2, 3, 5], dtype=base)
    y = np.array([0, 1, 3, 2], dtype=exponent)
    result = run("Pow", x, y)
    assert result.dtype == base
    np.testing.assert_allclose(
        result.astype(np.float64), [1, 2, 27, 25], rtol=4 * 2.0**-9
    )
    squares = run("Pow", x, np.array(2, dtype=exponent))
    assert squares.dtype == base
    np.testing.assert_array_equal(squares.astype(np.float64), [1, 4, 9, 25])


def test_power_of_integers() -> None:
    x = np.array([3, -1, -1, 1, 2, -2], dtype=np.int64)
    y = np.array([39, -3, -2, -9, -1, 3], dtype=np.int64)
    np.testing.assert_array_equal(run("Pow", x, y), [3**39, -1, 1, 1, 0, -8])
    least = np.full(6, -(2**63))
    np.testing.assert_array_equal(run("Pow", x, least), [0, 1, 1, 1, 0, 0])


def test_square_keeps_the_shape_that_broadcasting_gives() -> None:
    x = np.array([2.0, 3.0], dtype=np.float32)
    result = run("Pow", x, np.full((1, 1), 2, dtype=np.float32))
    np.testing.assert_array_equal(result, [[4, 9]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op_type", "exact"),
    [
        ("Abs", abs),
        ("Ceil", math.ceil),
        ("Floor", math.floor),
        ("Neg", lambda v: -v),
        ("Exp", math.exp),
        ("Erf", math.erf),
        ("Reciprocal", lambda v: 1 / v),
        ("Sign", lambda v: math.copysign(1, v)),
        ("Round", round),
    ],
)
@pytest.mark.parametrize("shape", [(50,), (), (0, 2)])
def test_unary_floats(op_type: str, exact: Any, dtype: Any, shape: Any) -> None:
    x = numbers(dtype, shape)
    expected = [exact(v) for v in x.astype(np.float64).reshape(-1).tolist()]
    result = run(op_type, x, version=22)
    assert_rounded(result, np.array(expected, dtype=float).reshape(shape), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_logarithm_and_root(dtype: Any) -> None:
    x = np.array([0, 0.5, 2, 100, -1, math.inf, math.nan], dtype=dtype)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64)
        assert_rounded(run("Log", x), np.log(exact), dtype)
        assert_rounded(run("Sqrt", x), np.sqrt(exact), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_round_takes_halves_to_even(dtype: Any) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.25, math.inf, math.nan], dtype=dtype)
    result = run("Round", x, version=22)
    assert result.dtype == dtype
    np.testing.assert_array_equal(
        result.astype(np.float64), [0, 2, 2, 0, -2, 2, math.inf, math.nan]
    )


@pytest.mark.parametrize("dtype", SIGNED)
def test_unary_integers(dtype: Any) -> None:
    x = np.array([-7, 0, 5], dtype=dtype)
    for op_type, expected in (
        ("Abs", [7, 0, 5]),
        ("Neg", [7, 0, -5]),
        ("Sign", [-1, 0, 1]),
    ):
        result = run(op_type, x)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)


def test_erf_of_float32_is_within_two_units() -> None:
    x = np.concatenate(
        [np.linspace(-4.5, 4.5, 30_001), np.logspace(-37, 0.7, 3_000)]
    ).astype(np.float32)
    exact = np.array([math.erf(v) for v in x.tolist()])
    units = np.abs(erf(np, x) - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert units.max() < 2.1


def test_erf_of_float64() -> None:
    x = np.concatenate([np.linspace(-7, 7, 10_001), np.logspace(-300, 1, 1_000)])
    exact = np.array([math.erf(v) for v in x.tolist()])
    np.testing.assert_allclose(erf(np, x), exact, rtol=5e-16, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_at_its_limits(dtype: Any) -> None:
    x = np.array([math.inf, -math.inf, 50, -50, math.nan, 0], dtype=dtype)
    np.testing.assert_array_equal(erf(np, x), [1, -1, 1, -1, math.nan, 0])


def test_erf_of_many_elements_is_that_of_each() -> None:
    x = np.linspace(-3, 3, 70_000, dtype=np.float32).reshape(700, 100)
    np.testing.assert_array_equal(erf(np, x[:, ::2]), erf(np, x)[:, ::2])
    assert erf(np, x)[650, 50] == erf(np, x[650:651, 50:51])[0, 0]


def test_erf_of_integers_is_truncated() -> None:
    result = run("Erf", np.array([0, 1, -1, 6], dtype=np.int32), version=9)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, [0, 0, 0, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, *FLOATS])
def test_clip(dtype: Any) -> None:
    x = np.array([0, 3, 5, 9], dtype=dtype)
    low, high = np.array(2, dtype=dtype), np.array(6, dtype=dtype)
    for arguments, expected in (
        ((low, high), [2, 3, 5, 6]),
        ((low,), [2, 3, 5, 9]),
        ((None, high), [0, 3, 5, 6]),
        ((), [0, 3, 5, 9]),
        ((high, low), [2, 2, 2, 2]),
    ):
        for count in (1, 10_000):
            result = run("Clip", np.tile(x, count), *arguments)
            assert result.dtype == dtype
            np.testing.assert_array_equal(
                result.astype(np.float64), np.tile(expected, count)
            )


@pytest.mark.parametrize("dtype", FLOATS)
def test_clip_without_limits_makes_infinities_finite(dtype: Any) -> None:
    result = run("Clip", np.array([math.inf, -math.inf], dtype=dtype))
    largest = ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]
    assert result.tolist() == [largest, -largest]


@pytest.mark.parametrize("version", [1, 6, 10])
def test_clip_by_attributes(version: int) -> None:
    x = np.array([-3, 0, 3], dtype=np.float16)
    result = run("Clip", x, version=version, min=-1.0, max=2.0)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, [-1, 0, 2])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run("Clip", x, version=version), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_and_mean_of_any_number(dtype: Any) -> None:
    arrays = [numbers(dtype, shape, 3) for shape in ((2, 3), (3,), ())]
    wide = [array.astype(np.float64) for array in arrays]
    assert_rounded(run("Sum", *arrays), wide[0] + wide[1] + wide[2], dtype)
    assert_rounded(run("Mean", *arrays), (wide[0] + wide[1] + wide[2]) / 3, dtype)
    for op_type in ("Sum", "Mean", "Max", "Min"):
        np.testing.assert_array_equal(run(op_type, arrays[0]), arrays[0])


def test_nan_passes_through_maximum_and_minimum() -> None:
    a = np.array([math.nan, 1], dtype=np.float32)
    b = np.array([1, math.nan], dtype=np.float32)
    assert np.isnan(run("Max", a, b)).all()
    assert np.isnan(run("Min", a, b)).all()


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5,), None), ((4, 5), None), ((), None), ((1, 1), None), ((3, 4), 1), ((2,), 0)],
)
def test_limited_broadcasting(op_type: str, shape: Any, axis: int | None) -> None:
    a, b = numbers(np.float32, (2, 3, 4, 5), 1), numbers(np.float32, shape, 2)
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    after = 0 if axis is None else 4 - axis - len(shape)
    expected = run(op_type, a, b.reshape(shape + (1,) * after), version=14)
    result = run(op_type, a, b, version=6, broadcast=1, **attributes)
    np.testing.assert_array_equal(result, expected)


def test_before_opset_7_broadcasting_is_asked_for() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="broadcast=1"):
        run("Add", a, b, version=6)
    with pytest.raises(UnsupportedAttribute, match="broadcast"):
        run("Add", a, b, version=7, broadcast=1)


@pytest.mark.parametrize(
    ("op_type", "count"), [("Abs", 1), ("Exp", 1), ("Add", 2), ("Max", 3), ("Mean", 2)]
)
def test_consumed_inputs_of_opset_1_change_nothing(op_type: str, count: int) -> None:
    arrays = [numbers(np.float32, (4,), seed) for seed in range(count)]
    result = run(op_type, *arrays, version=1, consumed_inputs=(0,) * count)
    np.testing.assert_array_equal(result, run(op_type, *arrays, version=14))
    with pytest.raises(UnsupportedAttribute, match="consumed_inputs"):
        run(op_type, *arrays, version=8, consumed_inputs=(0,))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_agrees_with_the_reference_implementation(dtype: Any) -> None:
    a, b = numbers(dtype, (2, 3), 1), numbers(dtype, (3,), 2)
    for op_type in ("Add", "Sub", "Mul", "Max", "Min"):
        expected = reference(op_type, a, b, outputs=(1,), version=14)[0]
        np.testing.assert_array_equal(run(op_type, a, b, version=14), expected)
