"""Whether results are what they should be, exactly or to some units in the last place.

What should come out is computed in NumPy's widest floating type, in which rounding is
far finer than in any of ONNX's (where it is no wider than float64, as fine as that).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

from ..node_oracles import run
from .strategies import Array, Dtype, limits

Wide = np.longdouble


def result_of(op_type: str, *inputs: Any, **options: Any) -> Any:
    """What the newest kernel returns, without NumPy's warnings of infinities."""
    options.setdefault("version", onnx.defs.onnx_opset_version())
    with np.errstate(all="ignore"):
        found = run(op_type, *inputs, **options)
    for value in found if isinstance(found, tuple) else (found,):
        assert isinstance(value, np.ndarray | list | dict) or value is None
    return found


def wide(x: Array) -> Array:
    """The same numbers in the widest type."""
    if x.dtype.kind == "V":
        x = x.astype(np.int8 if "int" in x.dtype.name else np.float32)
    return np.asarray(x, np.clongdouble if x.dtype.kind == "c" else Wide)


def narrow(exact: Array, dtype: Any) -> Array:
    """Numbers of the widest type, or Python's integers, that *dtype* has, in it."""
    dtype = np.dtype(dtype)
    if dtype.isbuiltin != 1:
        exact = np.asarray(exact, np.float32)
    return np.asarray(exact).astype(dtype)


def wrapped(exact: Array, dtype: Any) -> Array:
    """Python's integers modulo two to the bits of *dtype*, as processors have them."""
    low, high = limits(np.dtype(dtype))
    span = high - low + 1
    flat = [(int(n) - low) % span + low for n in np.ravel(exact).tolist()]
    return np.array(flat, object).reshape(np.shape(exact)).astype(dtype)


def objects(x: Array) -> Array:
    """The same numbers as Python's integers, which never overflow."""
    if x.dtype.isbuiltin != 1:
        x = x.astype(np.int8)
    return x.astype(object)


def assert_same(found: Array, expected: Array) -> None:
    """Equal to the bit, but for the bits of NaN."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind == "O":
        assert found.tolist() == expected.tolist()
        return
    one, two = wide(found), wide(expected)
    np.testing.assert_array_equal(one, two)
    if one.dtype.kind != "c":
        number = ~np.isnan(one)
        np.testing.assert_array_equal(np.signbit(one[number]), np.signbit(two[number]))


def assert_near(
    found: Array,
    exact: Array,
    dtype: Any,
    units: float = 1,
    magnitude: Any = 0,
) -> None:
    """*found* is *exact* in *dtype*, give or take *units* in the last place.

    Args:
        magnitude: of what the units are, where it is larger than the result: of a sum
            that may cancel, the sum of the magnitudes of its terms.
    """
    dtype = np.dtype(dtype)
    exact = np.asarray(exact)
    assert (found.dtype, found.shape) == (dtype, exact.shape)
    if dtype.kind in "iub" or "int" in dtype.name:
        np.testing.assert_array_equal(wide(found), wide(exact))
        return
    if dtype.kind == "c":
        part = np.dtype(f"float{dtype.itemsize * 4}")
        size = np.maximum(np.abs(exact), magnitude)
        assert_near(np.asarray(found.real), exact.real, part, units, size)
        assert_near(np.asarray(found.imag), exact.imag, part, units, size)
        return
    result, expected = wide(found), wide(exact)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(expected), wide(np.asarray(magnitude)))
        near = np.abs(result - expected) <= units * last_place(size, dtype)
        same = (result == expected) | (np.isnan(result) & np.isnan(expected))
        # beyond the largest number lies infinity
        largest = Wide(ml_dtypes.finfo(dtype).max)
        beyond = size + (units + 0.5) * last_place(size, dtype) > largest
        infinite = (
            np.isinf(result)
            & (np.sign(result) == np.sign(expected))
            & np.isfinite(expected)
        )
        good = same | (near & np.isfinite(result)) | (beyond & infinite)
    if not good.all():
        at = tuple(np.argwhere(~good)[0])
        raise AssertionError(
            f"{result[at]} instead of {expected[at]} at {at}, which is "
            f"{(result - expected)[at] / last_place(size, dtype)[at]} units of {dtype}"
        )


def last_place(size: Array, dtype: Dtype) -> Array:
    """The distance of numbers of *dtype* of that *size*."""
    info: Any = ml_dtypes.finfo(dtype)
    least = Wide(info.tiny)
    largest = Wide(info.max)
    inside = np.clip(np.nan_to_num(size, nan=1, posinf=largest), least, largest)
    _, exponent = np.frexp(inside)
    return np.asarray(np.ldexp(Wide(info.eps), exponent - 1))
