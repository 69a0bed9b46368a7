"""Rows taken out of tables of codes, against their definitions."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import NodeError
from onnxplug_cpu import quantised_weights

from .differential import session
from .test_weights_of_codes import TYPES, tensor

Array = np.ndarray[Any, Any]


def model(
    nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], result: int
) -> onnx.ModelProto:
    indices = helper.make_tensor_value_info("i", TensorProto.INT64, None)
    y = helper.make_tensor_value_info("y", result, None)
    graph = helper.make_graph(nodes, "table", [indices], [y], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def unpacked(data: Array, bits: int) -> Array:
    """Along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (data[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.reshape(*data.shape[:-1], -1).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_packed_tables(bits: int) -> None:
    """The last block is shorter, and an index outside gives zeros."""
    rng, each = np.random.default_rng(bits), 8 // bits
    cases: list[tuple[bool, tuple[int, ...], Any]] = [
        (False, (7, 3), np.float16),
        (True, (7,), np.float32),
    ]
    for has_zero, rows, dtype in cases:
        data = rng.integers(0, 256, (*rows, 72 // each), np.uint8)
        scales = rng.uniform(0.1, 1, (*rows, 5)).astype(dtype)
        zeros = rng.integers(0, 256, (*rows, -(-5 // each)), np.uint8)
        middle: Any = np.float32(1 << (bits - 1))
        arrays = {"data": data, "scales": scales}
        if has_zero:
            arrays["zeros"] = zeros
            middle = np.repeat(unpacked(zeros, bits)[..., :5], 16, -1)[..., :72]
        repeated = np.repeat(scales.astype(np.float32), 16, -1)[..., :72]
        table = ((unpacked(data, bits) - middle) * repeated).astype(dtype)
        node = helper.make_node(
            "GatherBlockQuantized", ["data", "i", *list(arrays)[1:]], ["y"],
            domain="com.microsoft", bits=bits, block_size=16, quantize_axis=-1,
        )  # fmt: skip
        constants = [numpy_helper.from_array(v, n) for n, v in arrays.items()]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        run = session(model([node], constants, kind), compiled=True)
        assert not [each.note for each in run.explain().nodes if each.note]
        for indices in ([[1, -1], [6, 0]], 3, [9, -8, 1], np.zeros((0, 2))):
            i = np.asarray(indices, np.int64)
            (found,) = run.run(None, {"i": i})
            inside = (i >= -7) & (i < 7)
            expected = table[np.where(inside, i, 0)]
            expected[~inside] = 0
            np.testing.assert_array_equal(found, expected)


def test_rows_of_a_table_of_four_bits() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(-8, 8, (5, 32))
    scales = rng.uniform(0.1, 1, (5, 2)).astype(np.float32)
    node = helper.make_node(
        "GatherBlockQuantized", ["data", "i", "scales"], ["y"],
        domain="com.microsoft", block_size=16, quantize_axis=1,
    )  # fmt: skip
    constants = [
        tensor("data", codes, "int4"),
        numpy_helper.from_array(scales, "scales"),
    ]
    run = session(model([node], constants, TensorProto.FLOAT), compiled=True)
    (found,) = run.run(None, {"i": np.array([4, -2])})
    table = codes.astype(np.float32) * np.repeat(scales, 16, 1)
    np.testing.assert_array_equal(found, table[[4, 3]])


@pytest.mark.parametrize("dtype", TYPES)
def test_tables_that_were_dequantised(dtype: str) -> None:
    rng, (_, low, high) = np.random.default_rng(1), TYPES[dtype]
    forms: list[tuple[tuple[int, ...], dict[str, int]]] = [
        ((), {}),
        ((9,), {"axis": 0}),
        ((9, 4), {"axis": -1, "block_size": 16}),
    ]
    for (shape, attributes), has_zero in itertools.product(forms, (False, True)):
        table = rng.integers(low, high + 1, (9, 64))
        scale = np.asarray(rng.uniform(0.1, 1, shape), np.float32)
        constants = [tensor("w", table, dtype), numpy_helper.from_array(scale, "s")]
        if has_zero:
            zero = np.asarray(rng.integers(low, high + 1, shape))
            constants.append(tensor("z", zero, dtype))
        names = [each.name for each in constants]
        nodes = [
            helper.make_node("DequantizeLinear", names, ["f"], **attributes),
            helper.make_node("Gather", ["f", "i"], ["y"]),
        ]
        made = model(nodes, constants, TensorProto.FLOAT)
        i = np.array([[1, -1, 0], [8, -9, 3]])
        with mock.patch.object(quantised_weights, "FEWEST_CODES", 1):
            run = onnxplug.InferenceSession(made, providers=["CPUExecutionProvider"])
            (found,) = run.run(None, {"i": i})
        assert not run.explain().computed_once
        (expected,) = ReferenceEvaluator(made).run(None, {"i": i})
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(NodeError, match="out of range for axis 0 of size 9"):
            run.run(None, {"i": i + 21})
