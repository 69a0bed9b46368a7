"""Random networks that take pictures or sequences of any size."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


class _Network:
    """A chain of nodes over [batch, channels, lines, pixels], then over sequences."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.value, self.channels = "x", 3
        self.stride = 1

    def weight(self, *shape: int) -> str:
        scale = max(1, int(np.prod(shape[1:]))) ** -0.5
        array = self.numbers.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(array)

    def constant(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, *inputs: str, count: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0]

    # over pictures

    def convolve(self) -> None:
        groups, kernel = 1, self.choose.choice([1, 3, 3, 5])
        channels = self.choose.choice([8, 16, 24, 40])
        if self.choose.random() < 0.3:
            groups = channels = self.channels
        strides = [self.choose.choice([1, 1, 2]) for _ in range(2)]
        down = self.stride * max(strides)
        if down > 4:
            strides, down = [1, 1], self.stride
        self.stride = down
        weight = self.weight(channels, self.channels // groups, kernel, kernel)
        inputs = [self.value, weight]
        if self.choose.random() < 0.7:
            inputs.append(self.weight(channels))
        pads = [kernel // 2] * 4
        self.value = self.add("Conv", *inputs, group=groups, strides=strides, pads=pads)
        self.channels = channels

    def activate(self) -> None:
        op_type = self.choose.choice(["Relu", "HardSwish", "Sigmoid", "Tanh"])
        self.value = self.add(op_type, self.value)

    def pool(self) -> None:
        op_type = self.choose.choice(["MaxPool", "AveragePool"])
        self.value = self.add(
            op_type, self.value, kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        )

    def branch(self) -> None:
        weight = self.weight(self.channels, self.channels, 1, 1)
        self.value = self.add("Add", self.value, self.add("Conv", self.value, weight))

    def join(self) -> None:
        other = self.add("Conv", self.value, self.weight(8, self.channels, 1, 1))
        self.value = self.add("Concat", self.value, other, axis=1)
        self.channels += 8

    def squeeze(self) -> None:
        mean = self.add("GlobalAveragePool", self.value)
        scale = self.add("Conv", mean, self.weight(self.channels, self.channels, 1, 1))
        self.value = self.add("Mul", self.value, self.add("Sigmoid", scale))

    # over sequences

    def to_sequence(self) -> None:
        self.value = self.add("ReduceMean", self.value, axes=[2], keepdims=0)
        self.value = self.add("Transpose", self.value, perm=[2, 0, 1])

    def recur(self) -> None:
        states = self.choose.choice([8, 20])
        weights = [self.weight(2, 4 * states, n) for n in (self.channels, states)]
        made = self.add(
            "LSTM", self.value, *weights, hidden_size=states, direction="bidirectional"
        )
        turned = self.add("Transpose", made, perm=[0, 2, 1, 3])
        shape = self.constant(np.array([0, 0, 2 * states]))
        self.value, self.channels = self.add("Reshape", turned, shape), 2 * states

    def multiply(self) -> None:
        channels = self.choose.choice([10, 33, 64])
        self.value = self.add(
            "MatMul", self.value, self.weight(self.channels, channels)
        )
        self.channels = channels

    def normalise(self) -> None:
        size = self.channels
        scale, bias = self.weight(size), self.weight(size)
        self.value = self.add("LayerNormalization", self.value, scale, bias, axis=-1)

    def soften(self) -> None:
        self.value = self.add("Softmax", self.value, axis=-1)

    def any_of(self, makers: Sequence[Callable[[], None]], count: int) -> None:
        for _ in range(count):
            self.choose.choice(makers)()


def network(seed: int) -> onnx.ModelProto:
    """A network of pictures [batch, 3, lines, pixels] of any size."""
    g = _Network(seed)
    g.convolve()
    makers = (g.convolve, g.convolve, g.activate, g.activate, g.pool, g.branch)
    g.any_of((*makers, g.join, g.squeeze), g.choose.randint(1, 6))
    if g.choose.random() < 0.6:
        g.to_sequence()
        sequences = (g.recur, g.multiply, g.normalise, g.soften, g.activate)
        g.any_of(sequences, g.choose.randint(1, 3))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, "h", "w"])
    y = helper.make_tensor_value_info(g.value, TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "of any size", [x], [y], g.weights)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
