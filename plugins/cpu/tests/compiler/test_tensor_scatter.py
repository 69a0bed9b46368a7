"""TensorScatter, compiled, against its definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnxplug

RNG = np.random.default_rng(5)


def session(
    past: np.ndarray[Any, Any], attributes: str, *, with_starts: bool
) -> onnxplug.InferenceSession:
    name = onnx.helper.np_dtype_to_tensor_dtype(past.dtype)
    kind = onnx.TensorProto.DataType.Name(name).lower()
    shape = ", ".join("abcd"[: past.ndim])
    update = ", ".join("efgh"[: past.ndim])
    given = ", int64[n] starts" if with_starts else ""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 24]> g ({kind}[{shape}] past, '
        f"{kind}[{update}] update{given}) => ({kind}[{shape}] y) "
        f"{{ y = TensorScatter <{attributes}> (past, update"
        f"{', starts' if with_starts else ''}) }}"
    )
    return onnxplug.InferenceSession(model)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, -2])
def test_rows_are_where_starts_say(dtype: Any, mode: str, axis: int) -> None:
    shape = (3, 2, 7, 5)
    past = RNG.integers(0, 100, shape).astype(dtype)
    sizes = list(shape)
    sizes[axis] = length = 1 if axis == 1 else 3
    update = RNG.integers(0, 100, sizes).astype(dtype)
    most = shape[axis]
    starts = np.array([0, 1, most - length])
    if mode == "circular":
        starts = np.array([0, most - 1, 3 * most + 1])
    feeds = {"past": past, "update": update, "starts": starts}
    runner = session(past, f'axis = {axis}, mode = "{mode}"', with_starts=True)
    (found,) = runner.run(None, feeds)
    expected = past.copy()
    for image, start in enumerate(starts):
        for at in range(length):
            to: list[Any] = [image, *[slice(None)] * 3]
            from_ = list(to)
            to[axis], from_[axis] = (start + at) % most, at
            expected[tuple(to)] = update[tuple(from_)]
    np.testing.assert_array_equal(found, expected)
    (node,) = runner.explain().nodes
    assert (node.tier, node.note) == ("compiled", "")


def test_without_starts_the_first_rows_are_written() -> None:
    past, update = np.zeros((2, 4, 3), np.float32), np.ones((2, 2, 3), np.float32)
    runner = session(past, "axis = 1", with_starts=False)
    (found,) = runner.run(None, {"past": past, "update": update})
    np.testing.assert_array_equal(found, np.concatenate([update, past[:, 2:]], 1))


@pytest.mark.parametrize("start", [-1, 3, 2**62, -(2**62)])
def test_rows_outside_are_an_error(start: int) -> None:
    feeds = {
        "past": np.zeros((2, 4, 3), np.float32),
        "update": np.zeros((2, 2, 3), np.float32),
        "starts": np.array([1, start]),
    }
    with pytest.raises(onnxplug.errors.NodeError):
        session(feeds["past"], "axis = 1", with_starts=True).run(None, feeds)
