"""Weights that are computed when an EP asks for them, as other weights are shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition
from onnxplug.prepare.expand import expand_node


def matmul_n_bits(block: int = 32, scale: float = 1.0) -> bytes:
    rng = np.random.default_rng(5)
    n, k = 64, 128
    arrays: Mapping[str, np.ndarray[Any, Any]] = {
        "b": rng.integers(0, 256, (n, k // block, block // 2), np.uint8),
        "scales": np.full(n * k // block, scale, np.float32),
    }
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, k])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, n])
    node = helper.make_node(
        "MatMulNBits",
        ["x", "b", "scales"],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=4,
        block_size=block,
    )
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", [x], [y], stored)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


def test_what_is_computed_when_it_is_asked_for_is_told_by_what_it_is_of() -> None:
    def made(data: bytes) -> Any:
        graph = load_model(data).graph
        assert expand_node(graph, graph.nodes[0])
        (product,) = (node for node in graph.nodes if node.op_type == "MatMul")
        known = GraphPartition(graph, graph.nodes).weight(product.inputs[1] or "")
        assert known is not None and known.nbytes == 64 * 128 * 4
        return known.key

    data, other = matmul_n_bits(), matmul_n_bits(block=64)
    assert made(data) == made(data)
    assert len({made(each) for each in (data, other, matmul_n_bits(scale=2))}) == 3
