"""Operators that choose elements by their order, compiled: against the array tier, the
definition, and what ONNX says of ties and NaN."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.helper
import pytest

from .differential import session
from .numpy_selection import is_missing, ranked

Array = np.ndarray[Any, Any]

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64]
INTEGERS += [np.uint8, np.uint16, np.uint32, np.uint64]


def elements(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    """Many of them equal, with limits, zeros of both signs and NaN among them."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        special: list[Any] = [info.min, info.max, 0, 1]
        found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    else:
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
        found = rng.standard_normal(shape).astype(dtype)
    for number in special:
        found[rng.random(shape) < 0.04] = number
    return found


def model(op_type: str, x: Array, outputs: int = 1, **attributes: Any) -> bytes:
    """One node; *x* with its first and last axes exchanged, which moves nothing."""
    helper, rank = onnx.helper, x.ndim
    turned = [rank - 1, *range(1, rank - 1), 0] if rank > 1 else [0]
    count = attributes.pop("k", None)
    names = ["t"] if count is None else ["t", "k"]
    made = ["y", "i"][:outputs]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=turned),
        helper.make_node(op_type, names, made, **attributes),
    ]
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    kinds = [element] * (outputs - 1) + [onnx.TensorProto.INT64]
    k = [] if count is None else [onnx.numpy_helper.from_array(np.array([count]), "k")]
    made_graph = helper.make_graph(
        nodes,
        "selection",
        [helper.make_tensor_value_info("x", element, x.shape)],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(made, kinds, strict=True)
        ],
        k,
    )
    opset = helper.make_opsetid("", 24)
    whole = helper.make_model(made_graph, opset_imports=[opset], ir_version=10)
    return bytes(whole.SerializeToString())


def agree(model: bytes, x: Array) -> list[Array]:
    """What is compiled, which is to the bit what the array tier gives."""
    compiled = session(onnx.load_from_string(model), compiled=True)
    assert {node.tier for node in compiled.explain().nodes} == {"compiled"}
    found = compiled.run(None, {"x": x})
    arrays = session(onnx.load_from_string(model), compiled=False)
    for one, other in zip(found, arrays.run(None, {"x": x}), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind == "V":  # bfloat16, whose NaN numpy does not know
            one, other = one.astype(np.float32), other.astype(np.float32)
        np.testing.assert_array_equal(one, other)
        if one.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
    return list(found)


@pytest.mark.parametrize(
    ("op_type", "dtype"),
    [
        *[("ArgMax", dtype) for dtype in (*FLOATS, *INTEGERS, bool)],
        *[("ArgMin", dtype) for dtype in (np.float32, np.uint8)],
    ],
)
def test_places_of_extremes(op_type: str, dtype: Any) -> None:
    for shape, axis, last in [((3, 70), 0, 0), ((3, 70), 1, 1), ((5, 2, 1100), -1, 1)]:
        x = elements(shape, dtype)
        one = model(op_type, x, axis=axis, keepdims=last, select_last_index=last)
        (found,) = agree(one, x)
        ranks = ranked(np.swapaxes(x, 0, -1))
        if op_type == "ArgMin":  # but NaN is preferred all the same
            missing = is_missing(np.swapaxes(x, 0, -1))
            ranks = np.where(missing, ranks.max() + 1, -ranks)
        best = ranks == ranks.max(axis, keepdims=True)
        places = np.indices(ranks.shape)[axis]
        expected = np.where(best, places, ranks.size).min(axis)
        if last:
            expected = np.where(best, places, -1).max(axis)
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (np.float32, 1),
        (np.float32, 0),
        (ml_dtypes.bfloat16, 1),
        (np.uint8, 0),
        (np.float64, 0),
        (np.int64, 1),
    ],
)
def test_first_elements(dtype: Any, largest: int) -> None:
    for shape, axis, count in [
        ((5, 9), 0, 4),
        ((5, 9), 1, 5),
        ((3, 50), 0, 16),
        ((2, 1, 300), 0, 17),
        ((3000,), -1, 400),
        ((40,), 0, 40),
        ((6, 2), 1, 0),
    ]:
        x = elements(shape, dtype, count)
        agree(model("TopK", x, 2, axis=axis, k=count, largest=largest), x)
