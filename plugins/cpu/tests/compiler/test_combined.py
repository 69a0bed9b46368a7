"""What is scattered and combined, counted up, and spread over classes, compiled: to the
bit as on arrays, whose numpy is the definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.helper
import pytest

import onnxplug

from .differential import session

Array = np.ndarray[Any, Any]


def agree(
    op_type: str, feeds: dict[str, Array], constants: dict[str, Array], **given: Any
) -> None:
    """One node of these inputs, in their order; the last version of the operator."""
    helper = onnx.helper
    names = [*feeds, *constants]
    last = names[0] if op_type != "OneHot" else names[-1]
    result = {**feeds, **constants}[last].dtype
    made = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **given)],
        "combined",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [
            helper.make_tensor_value_info(
                "y", helper.np_dtype_to_tensor_dtype(result), None
            )
        ],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in constants.items()
        ],
    )
    opset = [helper.make_opsetid("", 26)]
    model = helper.make_model(made, opset_imports=opset, ir_version=10)
    compiled = session(model, compiled=True)
    assert [node.tier for node in compiled.explain().nodes] == ["compiled"]
    (found,) = compiled.run(None, feeds)
    (expected,) = session(model, compiled=False).run(None, feeds)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind == "V":  # bfloat16, whose NaN numpy does not know
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind == "b":
        return rng.random(shape) < 0.5
    found = np.asarray(rng.standard_normal(shape) * 3).astype(dtype)
    if np.dtype(dtype).kind == "f":
        found[rng.random(shape) < 0.05] = np.nan
    return found


@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        (np.float32, "add"),
        (np.float32, "max"),
        (np.float64, "mul"),
        (np.int64, "min"),
        (np.int8, "add"),
        (bool, "mul"),
        (ml_dtypes.bfloat16, "add"),
    ],
)
def test_many_for_one_place(dtype: Any, reduction: str) -> None:
    rng = np.random.default_rng(0)
    x = numbers((6, 5, 40), dtype)
    rows = rng.integers(-6, 6, (9, 1))
    feeds = {"x": x, "i": rows, "u": numbers((9, 5, 40), dtype)}
    agree("ScatterND", feeds, {}, reduction=reduction)
    places = rng.integers(-5, 5, (6, 11, 30))
    feeds = {"x": x, "i": places, "u": numbers(places.shape, dtype)}
    agree("ScatterElements", feeds, {}, reduction=reduction, axis=1)


@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint64])
def test_up_to_each_element(op_type: str, dtype: Any) -> None:
    for axis, exclusive, reverse in [(0, 0, 1), (1, 1, 0), (2, 1, 1), (2, 0, 0)]:
        x = numbers((3, 7, 50), dtype)
        constants = {"a": np.array(axis)}
        agree(op_type, {"x": x}, constants, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize(
    ("dtype", "axis"), [(np.int64, -1), (np.float32, 0), (np.int8, 1)]
)
def test_classes(dtype: Any, axis: int) -> None:
    rng = np.random.default_rng(0)
    places = rng.integers(-12, 12, (4, 30)).astype(dtype)
    if dtype == np.float32:
        places[0, :4] = np.nan, np.inf, -np.inf, 1.5
    values = np.array([0.25, -3], np.float16)
    for depth in (np.array(9), np.array([9.5], np.float32)):
        agree("OneHot", {"i": places}, {"d": depth, "v": values}, axis=axis)


def test_an_index_out_of_range_is_told() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 18]> g (float[3] x, int64[2,1] i, '
        'float[2] u) => (float[3] y) { y = ScatterND <reduction = "add"> (x, i, u) }'
    )
    compiled = session(onnx.parser.parse_model(text), compiled=True)
    x, u = np.zeros(3, np.float32), np.ones(2, np.float32)
    for index in (3, -4):
        with pytest.raises(onnxplug.errors.NodeError, match=f"index {index} is out of"):
            compiled.run(None, {"x": x, "i": np.array([[0], [index]]), "u": u})
