"""A decoder's block with weights of 4 bits, as exporters for ONNX Runtime write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(3)
WIDTH, HEADS, GROUPS, INNER, PAST, MOST = 128, 4, 2, 256, 6, 32
SIZE, BLOCK = WIDTH // HEADS, 32


class Block:
    """The nodes and weights, in one type of floats."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, operator: str, inputs: str, outputs: str, **attributes: Any) -> None:
        names = [name.strip("-") for name in inputs.split()]
        given = [name.strip("-") for name in outputs.split()]
        self.nodes.append(helper.make_node(operator, names, given, **attributes))

    def linear(self, x: str, y: str, inner: int, columns: int) -> None:
        blocks = inner // BLOCK
        shape = (columns, blocks, BLOCK // 2)
        self.weights[f"{y}_b"] = RNG.integers(0, 256, shape).astype(np.uint8)
        scales = RNG.random((columns, blocks)) / 50
        self.weights[f"{y}_s"] = scales.astype(self.dtype)
        self.add(
            "MatMulNBits", f"{x} {y}_b {y}_s", y, domain="com.microsoft", K=inner,
            N=columns, bits=4, block_size=BLOCK,
        )  # fmt: skip

    def model(self) -> onnx.ModelProto:
        element = helper.np_dtype_to_tensor_dtype(self.dtype)
        for name in ("one", "two"):
            self.weights[name] = np.ones(WIDTH, self.dtype)
        turns = np.arange(SIZE // 2) / (SIZE // 2)
        angles = np.arange(MOST)[:, None] / 10000**turns
        self.weights["cos"] = np.cos(angles).astype(self.dtype)
        self.weights["sin"] = np.sin(angles).astype(self.dtype)
        own = {"domain": "com.microsoft"}
        self.add("SimplifiedLayerNormalization", "x one", "n", epsilon=1e-5, axis=-1)
        self.linear("n", "q", WIDTH, WIDTH)
        self.linear("n", "k", WIDTH, GROUPS * SIZE)
        self.linear("n", "v", WIDTH, GROUPS * SIZE)
        self.add(
            "GroupQueryAttention", "q k v past_k past_v lengths total cos sin",
            "a present_k present_v", num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
            **own,
        )  # fmt: skip
        self.linear("a", "o", WIDTH, WIDTH)
        self.add("SkipSimplifiedLayerNormalization", "o x two", "m - - r", **own)
        self.linear("m", "g", WIDTH, INNER)
        self.linear("m", "u", WIDTH, INNER)
        self.add("Sigmoid", "g", "s")
        self.add("Mul", "g s", "gate")
        self.add("Mul", "gate u", "both")
        self.linear("both", "d", INNER, WIDTH)
        self.add("Add", "d r", "y")
        past, present = [1, GROUPS, PAST, SIZE], [1, GROUPS, PAST + 1, SIZE]
        shapes = {"x": [1, 1, WIDTH], "past_k": past, "past_v": past}
        given = {"y": [1, 1, WIDTH], "present_k": present, "present_v": present}
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "block",
            [
                *(value(name, element, shape) for name, shape in shapes.items()),
                value("lengths", TensorProto.INT32, [1]),
                value("total", TensorProto.INT32, []),
            ],
            [value(name, element, shape) for name, shape in given.items()],
            [onnx.numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        past = (1, GROUPS, PAST, SIZE)
        return {
            "x": RNG.standard_normal((1, 1, WIDTH)).astype(self.dtype),
            "past_k": RNG.standard_normal(past).astype(self.dtype),
            "past_v": RNG.standard_normal(past).astype(self.dtype),
            "lengths": np.array([PAST], np.int32),
            "total": np.array(PAST + 1, np.int32),
        }


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float16, 2e-3)])
def test_a_block_in_4_bits_is_on_the_device(
    beside: Any, dtype: Any, bound: float
) -> None:
    """The CPU EP computes it of the weights in full, by kernels of its own."""

    block = Block(dtype)
    model, feeds = block.model(), block.feeds()
    session = beside(model)
    found = session.run(None, feeds)
    nodes = session.explain().nodes
    there = [node for node in nodes if node.ep == EP and node.tier == "compiled"]
    assert len(there) >= 0.95 * len(nodes)
    # all of the arithmetic: what is elsewhere makes positions
    assert {node.op_type for node in nodes} - {n.op_type for n in there} <= {"Range"}
    assert sum(node.op_type == "MatMulNBits" for node in there) == 7
    on_cpu = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    for one, other in zip(found, on_cpu.run(None, feeds), strict=True):
        wide = other.astype(np.float64)
        apart = np.abs(one.astype(np.float64) - wide).max()
        assert apart <= bound * np.abs(wide).max()
