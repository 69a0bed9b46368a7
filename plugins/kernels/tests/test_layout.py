"""Layout operators against loops over the wording of the specification."""

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


def zero(dtype: Any) -> Any:
    return "" if dtype is object else np.zeros((), dtype).item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose(dtype: Any) -> None:
    x = numbered((2, 3, 4), dtype)
    assert run("Transpose", x).tolist() == x.T.tolist()
    moved = run("Transpose", x, perm=(1, 2, 0))
    assert moved.dtype == x.dtype
    assert all(moved[j, k, i] == x[i, j, k] for i, j, k in np.ndindex(2, 3, 4))
    assert run("Transpose", numbered((), dtype), version=1).shape == ()


def test_concat() -> None:
    x, y = numbered((2, 3), object), numbered((2, 0), object)
    assert run("Concat", x, y, x, axis=-1).tolist() == [[*r, *r] for r in x.tolist()]
    assert run("Concat", x, x, axis=0, version=4).shape == (4, 3)
    assert run("Concat", x, x, version=1).shape == (2, 6)
    with pytest.raises(UnsupportedAttribute, match="needs the attribute 'axis'"):
        run("Concat", x, x)


def sliced(start: int, end: int, step: int, size: int) -> list[int]:
    """Positions that a slice selects, by the words of Slice-13."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), size), min(max(end, 0), size), step))
    last = size - 1
    return list(range(min(max(start, 0), last), min(max(end, -1), last), step))


@pytest.mark.parametrize("start", [-(2**63), -6, -2, 0, 3, 2**63 - 1])
@pytest.mark.parametrize("end", [-(2**63), -6, -2, 0, 3, 2**63 - 1])
@pytest.mark.parametrize("step", [-3, -1, 1, 2])
def test_slice(start: int, end: int, step: int) -> None:
    x = numbered((3, 5))
    result = run("Slice", x, ints(start), ints(end), ints(-1), ints(step))
    assert np.array_equal(result, x[:, sliced(start, end, step, 5)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_slice_defaults(dtype: Any) -> None:
    x = numbered((3, 5), dtype)
    for version in (10, 13):
        assert run("Slice", x, ints(1), ints(9), version=version).shape == (2, 5)
        rest = run("Slice", x, ints(1, -2), ints(9, 9), None, ints(1, 1))
        assert rest.tolist() == x[1:, 3:].tolist()
    starts, ends = np.array([3], np.int32), np.array([1], np.int32)
    assert run("Slice", x, starts, ends, ints(1)).shape == (3, 0)
    whole = run("Slice", x, version=1, starts=(0, -3), ends=(2, 1000))
    assert whole.tolist() == x[:2, 2:].tolist()
    column = run("Slice", x, version=1, starts=(1,), ends=(2,), axes=(1,))
    assert column.tolist() == x[:, 1:2].tolist()
    with pytest.raises(ValueError, match="zero"):
        run("Slice", x, ints(0), ints(1), ints(0), ints(0))


def test_split_by_lengths() -> None:
    x = numbered((2, 5), object)
    lengths = np.array([2, 0, 3], np.float32)
    expected = [x[:, :2].tolist(), x[:, 2:2].tolist(), x[:, 2:].tolist()]
    for parts in (
        run("Split", x, ints(2, 0, 3), axis=-1, output_count=3),
        run("Split", x, ints(2, 0, 3), axis=1, version=13, output_count=3),
        run("Split", x, axis=1, split=(2, 0, 3), version=11, output_count=3),
        run("Split", x, axis=1, split=(2, 0, 3), version=1, output_count=3),
        run("Split", x, lengths, axis=1, version=1, output_count=3),
    ):
        assert [part.tolist() for part in parts] == expected
    with pytest.raises(ValueError, match="add up to its size, 5"):
        run("Split", x, ints(2, 2), axis=1)
    with pytest.raises(ValueError, match="at least 0"):
        run("Split", x, ints(6, -1), axis=1)


@pytest.mark.parametrize(
    ("size", "count", "lengths"),
    [
        (6, 3, [2, 2, 2]),
        (7, 3, [3, 3, 1]),
        (2, 3, [1, 1, 0]),
        (0, 2, [0, 0]),
        (5, 4, [2, 2, 1, 0]),
    ],
)
def test_split_into_a_number_of_parts(
    size: int, count: int, lengths: list[int]
) -> None:
    x = numbered((size,))
    parts = run("Split", x, num_outputs=count, output_count=count)
    assert [len(part) for part in parts] == lengths
    assert np.array_equal(np.concatenate(parts), x)


@pytest.mark.parametrize("version", [1, 2, 11, 13])
def test_split_before_18_is_into_equal_parts(version: int) -> None:
    first, second = run("Split", numbered((6,)), version=version, output_count=2)
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4, 5])
    with pytest.raises(ValueError, match="multiple of 2"):
        run("Split", numbered((5,)), version=version, output_count=2)
    with pytest.raises(UnsupportedAttribute, match="num_outputs"):
        run("Split", numbered((6,)), version=version, num_outputs=2)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "amounts", [((2, 1), (0, 3)), ((0, 0), (1, 0)), ((7, 9), (8, 5))]
)
def test_pad_as_numpy_does(mode: str, amounts: tuple[tuple[int, int], ...]) -> None:
    x = numbered((3, 4))
    before, after = zip(*amounts, strict=True)
    result = run("Pad", x, ints(*before, *after), mode=mode)
    assert np.array_equal(result, np.pad(x, amounts, mode=mode))  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_with_a_constant(dtype: Any) -> None:
    x = numbered((2, 3), dtype)
    value = numbered((4,), dtype)[3]
    constant = np.array(value, dtype=x.dtype)
    nothing = zero(dtype)
    for given, filler in ((None, nothing), (constant, value), (constant[None], value)):
        result = run("Pad", x, ints(1, 0, 0, 2), given)
        assert (result.shape, result.dtype) == ((3, 5), x.dtype)
        rows = [[filler] * 5, *([*row, filler, filler] for row in x.tolist())]
        assert result.tolist() == rows
    only_columns = run("Pad", x, ints(1, 0), None, np.array([-1], np.int32))
    assert only_columns.tolist() == [[nothing, *row] for row in x.tolist()]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pad_before_11(dtype: Any) -> None:
    x = numbered((2, 2), dtype)
    for result in (
        run("Pad", x, version=2, pads=(0, 1, 0, -1), value=1.5),
        run("Pad", x, version=1, paddings=(0, 1, 0, -1), value=1.5),
    ):
        assert result.dtype == dtype
        assert result.tolist() == [[1.5, 0], [1.5, 2]]
    mirrored = run("Pad", x, version=2, pads=(0, 0, 0, 1), mode="reflect")
    assert mirrored.tolist() == [[0, 1, 0], [2, 3, 2]]


def test_pad_removes_elements_before_it_adds_any() -> None:
    x = ints(0, 1, 2, 3, 4)
    assert run("Pad", x, ints(-2, 4), mode="wrap").tolist() == [2, 3, 4, 2, 3, 4, 2]
    assert run("Pad", x, ints(2, -3), mode="reflect").tolist() == [0, 1, 0, 1]
    assert run("Pad", x, ints(-1, -1)).tolist() == [1, 2, 3]


def test_pad_removes_padding_where_there_are_no_elements_left() -> None:
    x = ints(1, 2, 3)
    assert run("Pad", x, ints(100, -99)).tolist() == [0, 0, 0, 0]
    assert run("Pad", x, ints(-9, 8)).tolist() == [0, 0]
    assert run("Pad", x, ints(100, -102)).tolist() == [0]
    with pytest.raises(ValueError, match="negative size"):
        run("Pad", x, ints(-9, 1))
    with pytest.raises(ValueError, match="no elements"):
        run("Pad", x, ints(100, -99), mode="reflect")


def test_pad_errors() -> None:
    with pytest.raises(ValueError, match="expected constant, edge, reflect, wrap"):
        run("Pad", ints(1), ints(1, 1), mode="mirror")
    with pytest.raises(ValueError, match="no elements"):
        run("Pad", ints(), ints(1, 1), mode="edge")
    with pytest.raises(ValueError, match="expected two for each of 1 axes, 2"):
        run("Pad", ints(1), ints(1, 1, 1))
    assert run("Pad", ints(), ints(1, 1)).tolist() == [0, 0]


@pytest.mark.parametrize("size", [0, 1, 4, 5])
@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 8])
def test_center_crop_pad(size: int, wanted: int) -> None:
    x = numbered((2, size)) + 1
    result = run("CenterCropPad", x, ints(wanted), axes=(-1,))
    if wanted <= size:
        start = (size - wanted) // 2
        expected = x[:, start : start + wanted]
    else:
        start = (wanted - size) // 2
        expected = np.zeros((2, wanted), np.float32)
        expected[:, start : start + size] = x
    assert np.array_equal(result, expected)
    assert np.array_equal(run("CenterCropPad", x, ints(2, wanted)), expected)


def test_center_crop_pad_of_strings() -> None:
    result = run("CenterCropPad", np.array(["a"], object), ints(3))
    assert result.tolist() == ["", "a", ""]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("dtype", [np.float32, object])
def test_depth_to_space_and_back(mode: str, dtype: Any) -> None:
    block, depth, height, width = 2, 3, 2, 4
    x = numbered((2, depth * block**2, height, width), dtype)
    result = run("DepthToSpace", x, blocksize=block, mode=mode)
    assert result.shape == (2, depth, height * block, width * block)
    for b, c, i, j, h, w in np.ndindex(2, depth, block, block, height, width):
        place = i * block + j
        channel = place * depth + c if mode == "DCR" else c * block**2 + place
        assert result[b, c, h * block + i, w * block + j] == x[b, channel, h, w]
    back = run("SpaceToDepth", result, blocksize=block, mode=mode)
    assert back.tolist() == x.tolist()


def test_depth_and_space_before_their_modes() -> None:
    x = numbered((1, 8, 2, 3))
    deep = run("DepthToSpace", x, version=1, blocksize=2)
    assert np.array_equal(deep, run("DepthToSpace", x, blocksize=2, mode="DCR"))
    assert np.array_equal(run("SpaceToDepth", deep, version=13, blocksize=2), x)
    with pytest.raises(UnsupportedAttribute, match="mode"):
        run("SpaceToDepth", deep, version=13, blocksize=2, mode="DCR")
    with pytest.raises(ValueError, match="expected DCR or CRD"):
        run("DepthToSpace", x, blocksize=2, mode="RDC")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -(2**62), -4, -1, 0, 2, 3, 2**62])
def test_trilu(dtype: Any, upper: int, k: int | None) -> None:
    x = numbered((2, 3, 4), dtype)
    result = run("Trilu", x, None if k is None else np.array(k), upper=upper)
    assert result.dtype == x.dtype
    for b, i, j in np.ndindex(2, 3, 4):
        kept = j - i >= (k or 0) if upper else j - i <= (k or 0)
        assert result[b, i, j] == (x[b, i, j] if kept else zero(dtype))


def test_trilu_of_nothing() -> None:
    assert run("Trilu", np.zeros((2, 0, 3), np.int32), np.array(1)).shape == (2, 0, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_reverse_sequence(dtype: Any, time_axis: int) -> None:
    x = numbered((4, 4, 2), dtype)
    lengths = ints(4, 0, 1, 3)
    axes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    result = run("ReverseSequence", x, lengths, **axes)
    assert result.dtype == x.dtype
    expected = np.copy(x) if time_axis == 0 else np.copy(x).swapaxes(0, 1)
    for batch, length in enumerate(lengths):
        expected[:length, batch] = expected[:length, batch][::-1]
    expected = expected if time_axis == 0 else expected.swapaxes(0, 1)
    assert result.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="5 elements"):
        run("ReverseSequence", x, lengths + 1, **axes)
