"""Constants, matrices with ones on a diagonal, and ranges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import DataType

from .node_oracles import run


@pytest.mark.parametrize(
    ("attributes", "dtype", "expected"),
    [
        ({"value_float": 1.5}, np.float32, 1.5),
        ({"value_floats": (1.5, 2.0)}, np.float32, [1.5, 2.0]),
        ({"value_floats": ()}, np.float32, []),
        ({"value_int": 2**40}, np.int64, 2**40),
        ({"value_ints": (1, -2)}, np.int64, [1, -2]),
        ({"value_string": "a"}, object, "a"),
        ({"value_string": ""}, object, ""),
        ({"value_strings": ("a", "")}, object, ["a", ""]),
        ({"value": np.array([[True]])}, bool, [[True]]),
        ({"value": np.array(["x"], dtype=object)}, object, ["x"]),
    ],
)
def test_constant(attributes: Any, dtype: Any, expected: Any) -> None:
    result = run("Constant", version=13, **attributes)
    assert isinstance(result, np.ndarray)
    assert result.dtype == dtype
    assert result.tolist() == expected


def test_a_constant_has_a_value() -> None:
    with pytest.raises(ValueError, match="none of the attributes"):
        run("Constant")


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16, object])
def test_sparse_constant(indices: Any, dtype: Any) -> None:
    is_text = dtype is object
    values = np.array(["a", "b"] if is_text else [7, 8], dtype=dtype)
    sparse = SimpleNamespace(
        values=values, indices=np.array(indices, dtype=np.int64), shape=(2, 3)
    )
    result = run("Constant", sparse_value=sparse, version=11)
    zero = "" if is_text else 0
    assert result.dtype == dtype
    expected = [[zero, values[0], zero], [zero, zero, values[1]]]
    assert result.tolist() == expected


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 0)])
@pytest.mark.parametrize(
    "dtype", [np.int8, bool, np.float64, ml_dtypes.bfloat16, ml_dtypes.uint4]
)
def test_constant_of_shape(shape: tuple[int, ...], dtype: Any) -> None:
    sizes = np.array(shape, dtype=np.int64)
    result = run("ConstantOfShape", sizes, value=np.array([1], dtype=dtype))
    assert (result.dtype, result.shape) == (dtype, shape)
    assert (result.astype(float) == 1).all()
    default = run("ConstantOfShape", sizes)
    assert (default.dtype, default.shape) == (np.float32, shape)
    assert not default.any()


@pytest.mark.parametrize("k", [-1, 0, 2])
@pytest.mark.parametrize("dtype", [None, "int64", "bfloat16", "bool"])
def test_eye_like(k: int, dtype: str | None) -> None:
    x = np.full((3, 4), 9, dtype=np.float16)
    attributes: dict[str, Any] = (
        {} if dtype is None else {"dtype": DataType(dtype).onnx}
    )
    result = run("EyeLike", x, k=k, version=22, **attributes)
    assert result.dtype == (DataType(dtype).numpy if dtype else np.float16)
    expected = [[int(column - row == k) for column in range(4)] for row in range(3)]
    assert result.astype(int).tolist() == expected


@pytest.mark.parametrize(
    "dtype", [np.int16, np.int32, np.int64, np.float32, np.float64]
)
@pytest.mark.parametrize(
    "bounds", [(1, 9, 3), (10, -3, -2), (0, 5, 1), (3, 3, 1), (3, 0, 1)]
)
def test_range(bounds: tuple[int, int, int], dtype: Any) -> None:
    result = run("Range", *(np.array(value, dtype=dtype) for value in bounds))
    assert result.dtype == dtype
    assert result.tolist() == list(range(*bounds))


def test_range_multiplies_rather_than_adds_up() -> None:
    bounds = (np.array(value, dtype=np.float32) for value in (1, 101, 0.1))
    result = run("Range", *bounds)
    # float32's 0.1 is a little more than a tenth
    assert result.size == 1000
    np.testing.assert_allclose(result, 1 + 0.1 * np.arange(1000), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("attributes", [{}, {"stash_type": 11}])
def test_range_of_narrow_floats(dtype: Any, attributes: Any) -> None:
    bounds = (np.array(value).astype(dtype) for value in (0, 1000, 1))
    result = run("Range", *bounds, version=27, **attributes)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.arange(1000).astype(dtype))


def test_range_needs_a_delta() -> None:
    zero = np.array(0, dtype=np.int64)
    with pytest.raises(ValueError, match="delta"):
        run("Range", zero, zero, zero)
