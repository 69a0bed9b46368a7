"""Small networks of random weights, as exporters write the large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, WORDS, MOST = 32, 4, 61, 24


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

    def name(self, value: str, name: str) -> None:
        """Give a value another name, for an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def constant(self, array: Any) -> str:
        """A weight; its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, scale: float = 0.2, offset: float = 0.0) -> str:
        """A random weight; its name."""
        values = self._random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(values + np.float32(offset))

    def dense(self, value: str, rows: int, columns: int) -> str:
        """A product and a bias."""
        product = self.add("MatMul", value, self.weight(rows, columns))
        return self.add("Add", product, self.weight(columns))

    def norm(self, value: str) -> str:
        """Of the last axis."""
        scale, shift = self.weight(WIDTH, offset=1), self.weight(WIDTH)
        return self.add("LayerNormalization", value, scale, shift, axis=-1)

    def heads(self, value: str, order: Sequence[int] = (0, 2, 1, 3)) -> str:
        """The last axis as heads, in an order of axes."""
        shape = self.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
        return self.add("Transpose", self.add("Reshape", value, shape), perm=order)

    def mixed(self, query: str, key: str, value: str, mask: str | None) -> str:
        """Attention over keys that are transposed, and its projection."""
        root = self.constant(np.float32((WIDTH // HEADS) ** 0.5))
        scores = self.add("Div", self.add("MatMul", query, key), root)
        if mask is not None:
            scores = self.add("Add", scores, mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        mixed = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.constant(np.array([0, 0, WIDTH]))
        return self.dense(self.add("Reshape", mixed, joined), WIDTH, WIDTH)

    def perceptron(self, value: str) -> str:
        """Two layers with Gelu between them, as written before it was an operator."""
        one, half, root = (self.constant(np.float32(x)) for x in (1, 0.5, 2**0.5))
        hidden = self.dense(value, WIDTH, 4 * WIDTH)
        gate = self.add("Add", self.add("Erf", self.add("Div", hidden, root)), one)
        hidden = self.add("Mul", self.add("Mul", hidden, gate), half)
        return self.dense(hidden, 4 * WIDTH, WIDTH)

    def model(
        self,
        inputs: Mapping[str, tuple[int, Sequence[int | str]]],
        outputs: Sequence[str],
    ) -> onnx.ModelProto:
        """The model of these inputs, each with type and shape."""
        given = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ]
        found = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "network", given, found, self.weights)
        opsets = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def mlp() -> onnx.ModelProto:
    """Of any number of rows."""
    net = Network()
    hidden = net.add("Relu", net.dense("x", WIDTH, 2 * WIDTH))
    shares = net.add("Softmax", net.dense(hidden, 2 * WIDTH, 10))
    return net.model({"x": (TensorProto.FLOAT, ["n", WIDTH])}, [shares])


def resnet() -> onnx.ModelProto:
    """Of pictures of any number: two stages of bottlenecks."""
    net = Network()

    def convolve(value: str, out: int, into: int, size: int, stride: int) -> str:
        kernel = net.weight(out, into, size, size, scale=(2 / into) ** 0.5 / size)
        pads = [size // 2] * 4
        value = net.add("Conv", value, kernel, strides=[stride] * 2, pads=pads)
        parts = [net.weight(out, offset=1), net.weight(out), net.weight(out)]
        ones = net.constant(np.ones(out, np.float32))
        return net.add("BatchNormalization", value, *parts, ones)

    value = net.add("Relu", convolve("x", 8, 3, 7, 2))
    value = net.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 8
    for stage in range(2):
        width, stride = 4 * 2**stage, 1 + stage
        short = convolve(value, width * 4, channels, 1, stride)
        value = net.add("Relu", convolve(value, width, channels, 1, 1))
        value = net.add("Relu", convolve(value, width, width, 3, stride))
        value = convolve(value, width * 4, width, 1, 1)
        value = net.add("Relu", net.add("Add", value, short))
        channels = width * 4
    value = net.add("Flatten", net.add("GlobalAveragePool", value))
    value = net.add("Gemm", value, net.weight(channels, 10), net.weight(10))
    return net.model({"x": (TensorProto.FLOAT, ["n", 3, 32, 32])}, [value])


def bert() -> onnx.ModelProto:
    """Of any number of texts of any length."""
    net = Network()
    zero, one = (net.constant(np.array([x])) for x in (0, 1))
    length = net.add("Slice", net.add("Shape", "x"), one, net.constant(np.array([2])))
    positions = net.add("Slice", net.weight(MOST, WIDTH), zero, length)
    value = net.add("Gather", net.weight(WORDS, WIDTH), "x")
    value = net.norm(net.add("Add", value, positions))
    for _ in range(2):
        query = net.heads(net.dense(value, WIDTH, WIDTH))
        key = net.heads(net.dense(value, WIDTH, WIDTH), (0, 2, 3, 1))
        content = net.heads(net.dense(value, WIDTH, WIDTH))
        value = net.norm(net.add("Add", value, net.mixed(query, key, content, None)))
        value = net.norm(net.add("Add", value, net.perceptron(value)))
    return net.model({"x": (TensorProto.INT64, ["n", "length"])}, [value])


def gpt2() -> onnx.ModelProto:
    """One block, of new tokens behind a cache that grows: ``x``, ``past_k``, ``past_v``
    to ``y``, ``k`` and ``v``."""
    net = Network()
    zero, one, two = (net.constant(np.array([x])) for x in (0, 1, 2))
    three = net.constant(np.array([3]))
    new = net.add("Slice", net.add("Shape", "x"), one, two)
    past = net.add("Slice", net.add("Shape", "past_k"), two, three)
    whole = net.add("Add", past, new)
    positions = net.add("Slice", net.weight(MOST, WIDTH), past, whole)
    value = net.add("Gather", net.weight(WORDS, WIDTH), "x")
    value = net.add("Add", value, positions)
    normal = net.norm(value)
    query, key, content = (net.heads(net.dense(normal, WIDTH, WIDTH)) for _ in range(3))
    key = net.add("Concat", "past_k", key, axis=2)
    content = net.add("Concat", "past_v", content, axis=2)
    lower = np.triu(np.full((MOST, MOST), -1e9, np.float32), 1)
    starts = net.add("Concat", past, zero, axis=0)
    ends = net.add("Concat", whole, whole, axis=0)
    axes = net.constant(np.array([0, 1]))
    mask = net.add("Slice", net.constant(lower), starts, ends, axes)
    turned = net.add("Transpose", key, perm=[0, 1, 3, 2])
    value = net.add("Add", value, net.mixed(query, turned, content, mask))
    value = net.add("Add", value, net.perceptron(net.norm(value)))
    scores = net.add("MatMul", net.norm(value), net.weight(WIDTH, WORDS))
    for found, name in ((scores, "y"), (key, "k"), (content, "v")):
        net.name(found, name)
    cache = TensorProto.FLOAT, [1, HEADS, "past", WIDTH // HEADS]
    return net.model(
        {"x": (TensorProto.INT64, [1, "new"]), "past_k": cache, "past_v": cache},
        ["y", "k", "v"],
    )
