"""A decoder's block with weights of 4 bits, as exporters for ONNX Runtime write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .graph import Array, Case

_BLOCK = 32
_PLACES = 2048


class _Nodes:
    """The nodes and weights, in one type of floats."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def add(self, operator: str, inputs: str, outputs: str, **attributes: Any) -> None:
        """A node; ``-`` stands for a name that is left out."""
        names = [name.strip("-") for name in inputs.split()]
        given = [name.strip("-") for name in outputs.split()]
        self.nodes.append(helper.make_node(operator, names, given, **attributes))

    def linear(self, x: str, y: str, inner: int, columns: int) -> None:
        """A product with weights of 4 bits, in blocks of 32."""
        blocks = inner // _BLOCK
        shape = (columns, blocks, _BLOCK // 2)
        self.weights[f"{y}_b"] = self.random.integers(0, 256, shape).astype(np.uint8)
        scales = self.random.random((columns, blocks)) / 50
        self.weights[f"{y}_s"] = scales.astype(self.dtype)
        self.add(
            "MatMulNBits", f"{x} {y}_b {y}_s", y, domain="com.microsoft", K=inner,
            N=columns, bits=4, block_size=_BLOCK,
        )  # fmt: skip


def llama_in_4_bits(
    dtype: Any,
    past: int,
    *,
    width: int = 1024,
    heads: int = 16,
    groups: int = 4,
    inner: int = 2816,
) -> Case:
    """A decoder layer as of Llama 2 and 3 over one token, without embeddings.

    Args:
        dtype: of what is not quantised.
        past: tokens before it, whose keys and values are inputs.
        width, inner: multiples of 32.
    """
    block, size = _Nodes(dtype), width // heads
    for name in ("one", "two"):
        block.weights[name] = np.ones(width, block.dtype)
    angles = np.arange(_PLACES)[:, None] / 10000 ** (np.arange(size // 2) * 2 / size)
    block.weights["cos"] = np.cos(angles).astype(block.dtype)
    block.weights["sin"] = np.sin(angles).astype(block.dtype)
    _add_layers(block, width, heads, groups, inner)
    draw = block.random.standard_normal
    feeds = {
        "x": draw((1, 1, width)).astype(block.dtype),
        "past_k": draw((1, groups, past, size)).astype(block.dtype),
        "past_v": draw((1, groups, past, size)).astype(block.dtype),
        "lengths": np.array([past], np.int32),
        "total": np.array(past + 1, np.int32),
    }
    element = helper.np_dtype_to_tensor_dtype(block.dtype)
    present = [1, groups, past + 1, size]
    given = {"y": [1, 1, width], "present_k": present, "present_v": present}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        block.nodes,
        "block",
        [
            *(value(name, element, feeds[name].shape) for name in list(feeds)[:3]),
            value("lengths", TensorProto.INT32, [1]),
            value("total", TensorProto.INT32, []),
        ],
        [value(name, element, shape) for name, shape in given.items()],
        [onnx.numpy_helper.from_array(w, n) for n, w in block.weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return Case(helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds)


def _add_layers(block: _Nodes, width: int, heads: int, groups: int, inner: int) -> None:
    own, size = {"domain": "com.microsoft"}, width // heads
    block.add("SimplifiedLayerNormalization", "x one", "n", epsilon=1e-5, axis=-1)
    block.linear("n", "q", width, width)
    block.linear("n", "k", width, groups * size)
    block.linear("n", "v", width, groups * size)
    block.add(
        "GroupQueryAttention", "q k v past_k past_v lengths total cos sin",
        "a present_k present_v", num_heads=heads, kv_num_heads=groups, do_rotary=1,
        **own,
    )  # fmt: skip
    block.linear("a", "o", width, width)
    block.add("SkipSimplifiedLayerNormalization", "o x two", "m - - r", **own)
    block.linear("m", "g", width, inner)
    block.linear("m", "u", width, inner)
    block.add("Sigmoid", "g", "s")
    block.add("Mul", "g s", "gate")
    block.add("Mul", "gate u", "both")
    block.linear("both", "d", inner, width)
    block.add("Add", "d r", "y")
