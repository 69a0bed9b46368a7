"""Shape operators against numpy and the wording of the specification."""

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


DTYPES = [np.float32, np.int64, bool, object, ml_dtypes.bfloat16, ml_dtypes.int4]


def numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    values = np.arange(np.prod(shape, dtype=int)) % 7
    if dtype is object:
        return np.array([f"s{v}" for v in values], dtype=object).reshape(shape)
    return values.astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "requested", "expected"),
    [
        ((2, 3, 4), (4, -1), (4, 6)),
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (0, 0, 2, 2), (2, 3, 2, 2)),
        ((1,), (), ()),
        ((), (1, 1), (1, 1)),
        ((0, 3), (3, 0, 4), None),
        ((0, 3), (-1,), (0,)),
        ((0, 3, 4), (0, -1), (0, 12)),
        ((0, 3, 4), (0, 2, -1), (0, 2, 6)),
    ],
)
def test_reshape(
    dtype: Any,
    shape: tuple[int, ...],
    requested: tuple[int, ...],
    expected: tuple[int, ...] | None,
) -> None:
    x = numbered(shape, dtype)
    if expected is None:
        with pytest.raises(ValueError):
            run("Reshape", x, ints(*requested))
        return
    for result in (
        run("Reshape", x, ints(*requested)),
        run("Reshape", x, ints(*requested), version=5),
        run("Reshape", x, version=1, shape=requested),
    ):
        assert result.shape == expected
        assert result.dtype == x.dtype
        assert result.ravel().tolist() == x.ravel().tolist()


def test_reshape_takes_zeros_literally_when_told_to() -> None:
    x = np.zeros((0, 3), np.float32)
    assert run("Reshape", x, ints(3, 4, 0), allowzero=1).shape == (3, 4, 0)
    with pytest.raises(ValueError, match="copies the size of axis 2"):
        run("Reshape", x, ints(3, 4, 0))


def test_attributes_exist_from_their_version_on() -> None:
    x = numbered((2, 3))
    with pytest.raises(UnsupportedAttribute, match="allowzero"):
        run("Reshape", x, ints(6), version=13, allowzero=1)
    with pytest.raises(UnsupportedAttribute, match="start"):
        run("Shape", x, version=14, start=1)
    with pytest.raises(UnsupportedAttribute, match="axes"):
        run("Squeeze", x, version=13, axes=(0,))


@pytest.mark.parametrize("start", [-9, -2, 0, 1, 9])
@pytest.mark.parametrize("end", [None, -9, -1, 2, 9])
def test_shape(start: int, end: int | None) -> None:
    # an axis counts from the back when negative, then is clamped to [0, r]
    first = min(max(start + 3 if start < 0 else start, 0), 3)
    last = 3 if end is None else min(max(end + 3 if end < 0 else end, 0), 3)
    attributes = {"start": start} | ({} if end is None else {"end": end})
    result = run("Shape", np.zeros((4, 0, 5)), **attributes)
    assert result.dtype == np.int64
    assert result.tolist() == [(4, 0, 5)[axis] for axis in range(first, last)]


def test_shape_and_size_of_a_scalar() -> None:
    shape, size = run("Shape", np.array("x", object), version=1), run("Size", ints())
    assert (shape.shape, shape.dtype) == ((0,), np.int64)
    assert (size.shape, size.dtype, size.item()) == ((), np.int64, 0)
    assert run("Size", np.float32(3) * np.ones(()), version=1).item() == 1


@pytest.mark.parametrize(
    ("axis", "expected"),
    [(0, (1, 24)), (1, (2, 12)), (3, (24, 1)), (-1, (6, 4)), (-3, (1, 24))],
)
def test_flatten(axis: int, expected: tuple[int, int]) -> None:
    x = numbered((2, 3, 4))
    assert np.array_equal(run("Flatten", x, axis=axis), x.reshape(expected))


def test_flatten_extremes() -> None:
    assert run("Flatten", numbered(()), axis=0).shape == (1, 1)
    assert run("Flatten", np.zeros((0, 3)), version=1).shape == (0, 3)
    with pytest.raises(ValueError, match="axis 3 of an input of rank 2"):
        run("Flatten", numbered((2, 3)), axis=3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_squeeze_and_unsqueeze(dtype: Any) -> None:
    x = numbered((1, 3, 1, 1), dtype)
    for version in (1, 11):
        assert run("Squeeze", x, version=version).shape == (3,)
        assert run("Squeeze", x, version=version, axes=(0, 2)).shape == (3, 1)
        unsqueezed = run("Unsqueeze", x, version=version, axes=(5, 0))
        assert unsqueezed.shape == (1, 1, 3, 1, 1, 1)
    for version in (13, 25):
        assert run("Squeeze", x, version=version).shape == (3,)
        assert run("Squeeze", x, None, version=version).shape == (3,)
        assert run("Squeeze", x, ints(-1, 0), version=version).shape == (3, 1)
        unsqueezed = run("Unsqueeze", x, ints(-1, 1), version=version)
        assert unsqueezed.shape == (1, 1, 3, 1, 1, 1)
        assert unsqueezed.dtype == x.dtype
        assert unsqueezed.ravel().tolist() == x.ravel().tolist()
    assert run("Squeeze", numbered((1,), dtype)).shape == ()
    assert run("Unsqueeze", x, np.array(-1)).shape == (1, 3, 1, 1, 1)


def test_squeeze_of_a_larger_axis_is_an_error() -> None:
    with pytest.raises(ValueError):
        run("Squeeze", numbered((2, 3)), ints(0))
    with pytest.raises(ValueError):
        run("Unsqueeze", numbered((2, 3)), ints(0, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "requested", "expected"),
    [
        ((3, 1), (2, 1, 6), (2, 3, 6)),
        ((3, 2), (1,), (3, 2)),
        ((2, 3, 4), (3, 1), (2, 3, 4)),
        ((), (2, 2), (2, 2)),
        ((1, 3), (0, 1), (0, 3)),
        ((0, 1), (1, 4), (0, 4)),
    ],
)
def test_expand(
    dtype: Any,
    shape: tuple[int, ...],
    requested: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    x = numbered(shape, dtype)
    result = run("Expand", x, ints(*requested))
    assert (result.shape, result.dtype) == (expected, x.dtype)
    for position in np.ndindex(*expected):
        own = position[len(expected) - len(shape) :]
        source = tuple(p if n > 1 else 0 for p, n in zip(own, shape, strict=True))
        assert result[position] == x[source]


def test_expand_to_another_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="size 3 cannot become 2"):
        run("Expand", numbered((3, 1)), ints(2, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tile(dtype: Any) -> None:
    x = numbered((2, 3), dtype)
    result = run("Tile", x, ints(2, 1))
    assert result.dtype == x.dtype
    assert result.tolist() == x.tolist() * 2
    assert run("Tile", x, ints(0, 2), version=6).shape == (0, 6)


def test_tile_of_version_1_repeats_along_one_axis() -> None:
    x = numbered((2, 3))
    result = run("Tile", x, np.ones(1) * 2, np.ones(1), version=1)
    assert np.array_equal(result, np.concatenate([x, x], axis=1))


def test_identity_returns_anything_as_it_is() -> None:
    for value in (numbered((2, 3)), [ints(1), ints(2)], None):
        assert run("Identity", value, version=16) is value
