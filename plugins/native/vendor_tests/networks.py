"""A ResNet-50 and a BERT-base of random weights, small only in what they are fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """Gathers nodes and random weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array: Any) -> str:
        """A weight; its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, scale: float = 0.02, offset: float = 0.0) -> str:
        """A random weight; its name."""
        values = self._random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(values + np.float32(offset))

    def model(
        self, kind: int, shape: Sequence[int | str], output: str
    ) -> onnx.ModelProto:
        """The model of an input ``x``."""
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_empty_tensor_value_info(output)],
            self.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )


def resnet50() -> onnx.ModelProto:
    """Of pictures of any number and size."""
    net = Network()

    def convolve(value: str, out: int, into: int, size: int, stride: int) -> str:
        kernel = net.weight(out, into, size, size, scale=(2 / into) ** 0.5 / size)
        value = net.add(
            "Conv", value, kernel, strides=[stride] * 2, pads=[size // 2] * 4
        )
        parts = [net.weight(out, offset=1), net.weight(out), net.weight(out)]
        ones = net.constant(np.ones(out, np.float32))
        return net.add("BatchNormalization", value, *parts, ones)

    value = net.add("Relu", convolve("x", 64, 3, 7, 2))
    value = net.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            short = value
            if block == 0:
                short = convolve(value, width * 4, channels, 1, stride)
            value = net.add("Relu", convolve(value, width, channels, 1, 1))
            value = net.add("Relu", convolve(value, width, width, 3, stride))
            value = convolve(value, width * 4, width, 1, 1)
            value = net.add("Relu", net.add("Add", value, short))
            channels = width * 4
    value = net.add("Flatten", net.add("GlobalAveragePool", value))
    value = net.add("Gemm", value, net.weight(2048, 1000), net.weight(1000))
    return net.model(TensorProto.FLOAT, ["n", 3, "height", "width"], value)


def bert(layers: int = 12, width: int = 768, heads: int = 12) -> onnx.ModelProto:
    """Of any number of texts of any length up to 64."""
    net = Network()

    def dense(value: str, rows: int, columns: int) -> str:
        return net.add(
            "Add",
            net.add("MatMul", value, net.weight(rows, columns)),
            net.weight(columns),
        )

    def split(value: str, order: Sequence[int]) -> str:
        return net.add(
            "Transpose", net.add("Reshape", value, to_heads), perm=list(order)
        )

    def normalise(value: str) -> str:
        scale = net.weight(width, offset=1)
        return net.add("LayerNormalization", value, scale, net.weight(width), axis=-1)

    to_heads = net.constant(np.array([0, 0, heads, width // heads], np.int64))
    joined = net.constant(np.array([0, 0, width], np.int64))
    root = net.constant(np.float32((width // heads) ** 0.5))
    one, half, two = (net.constant(np.float32(x)) for x in (1, 0.5, 2**0.5))
    zero, last = (net.constant(np.array([x], np.int64)) for x in (0, 1))
    length = net.add("Slice", net.add("Shape", "x"), last, net.constant(np.array([2])))
    positions = net.add("Slice", net.weight(64, width), zero, length)
    value = net.add("Gather", net.weight(1000, width), "x")
    value = normalise(net.add("Add", value, positions))
    for _ in range(layers):
        q = split(dense(value, width, width), (0, 2, 1, 3))
        k = split(dense(value, width, width), (0, 2, 3, 1))
        v = split(dense(value, width, width), (0, 2, 1, 3))
        scores = net.add("Div", net.add("MatMul", q, k), root)
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
        mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = dense(net.add("Reshape", mixed, joined), width, width)
        value = normalise(net.add("Add", value, mixed))
        hidden = dense(value, width, 4 * width)
        gate = net.add("Add", net.add("Erf", net.add("Div", hidden, two)), one)
        hidden = net.add("Mul", net.add("Mul", hidden, gate), half)
        value = normalise(net.add("Add", value, dense(hidden, 4 * width, width)))
    return net.model(TensorProto.INT64, ["n", "length"], value)
