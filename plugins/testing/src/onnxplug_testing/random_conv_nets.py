"""Random networks of convolutions, pools and what is usually between them."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_UNARY: Final = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg")


class ConvNet:
    """The model of one *seed*, and what to feed it; spatial axes are 1, 2 or 3."""

    def __init__(self, seed: int) -> None:
        self._draw, self._numbers = random.Random(seed), np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self.spatial = self._draw.choice((1, 2, 2, 2, 3))
        shape = (self._draw.randint(1, 2), self._draw.choice((2, 4)), *self._sizes())
        self.feeds = {"x": self._random(shape), "z": self._random(shape)}
        self.values: dict[str, tuple[int, ...]] = {"x": shape, "z": shape}
        for _ in range(self._draw.randint(4, 12)):
            self._draw_node()
        self.model = self._made(seed)

    def _sizes(self) -> tuple[int, ...]:
        return tuple(self._draw.randint(5, 7) for _ in range(self.spatial))

    def _random(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self._numbers.uniform(-1, 1, shape).astype(np.float32)

    def _weight(self, array: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(op_type, inputs, [name], name=name, **attributes)
        )
        return name

    def _draw_node(self) -> None:
        kinds = (
            "conv conv pool unary unary binary binary concat norm channel reduce other"
        )
        source = self._draw.choice([*self.values][-3:])
        getattr(self, f"_{self._draw.choice(kinds.split())}")(source)

    def _window(self, sizes: tuple[int, ...]) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Attributes of a window of 3, and the sizes that it leaves."""
        if min(sizes) > 4 and self._draw.random() < 0.3:
            return {"strides": [2] * len(sizes)}, tuple((s - 3) // 2 + 1 for s in sizes)
        if self._draw.random() < 0.3:
            return {"auto_pad": "SAME_UPPER"}, sizes
        return {"pads": [1] * (2 * len(sizes))}, sizes

    def _conv(self, source: str) -> None:
        batch, channels, *sizes = self.values[source]
        made = self._draw.choice((2, 4))
        window, left = self._window(tuple(sizes))
        group = 2 if self._draw.random() < 0.3 else 1
        kernel = [3] * len(sizes)
        inputs = [self._weight(self._random((made, channels // group, *kernel)) / 4)]
        if self._draw.random() < 0.5:
            inputs.append(self._weight(self._random((made,))))
        name = self._add("Conv", source, *inputs, group=group, **window)
        self.values[name] = (batch, made, *left)

    def _pool(self, source: str) -> None:
        batch, channels, *sizes = self.values[source]
        window, left = self._window(tuple(sizes))
        op_type = self._draw.choice(("MaxPool", "AveragePool"))
        name = self._add(op_type, source, kernel_shape=[3] * len(sizes), **window)
        self.values[name] = (batch, channels, *left)

    def _unary(self, source: str) -> None:
        name = self._add(self._draw.choice(_UNARY), source)
        self.values[name] = self.values[source]

    def _binary(self, source: str) -> None:
        alike = [n for n, shape in self.values.items() if shape == self.values[source]]
        name = self._add(
            self._draw.choice(("Add", "Mul", "Max", "Sub")),
            *self._draw.sample([source, self._draw.choice(alike)], 2),
        )
        self.values[name] = self.values[source]

    def _concat(self, source: str) -> None:
        alike = [n for n, shape in self.values.items() if shape == self.values[source]]
        parts = [source, self._draw.choice(alike)]
        axis = self._draw.choice((0, 1, -1))
        batch, channels, *_ = shape = list(self.values[source])
        if (axis == 1 and channels > 4) or (axis == 0 and batch > 2) or shape[-1] > 12:
            return
        shape[axis] *= 2
        name = self._add("Concat", *parts, axis=axis)
        self.values[name] = tuple(shape)

    def _norm(self, source: str) -> None:
        channels = self.values[source][1]
        scale, bias, mean = (self._weight(self._random((channels,))) for _ in range(3))
        if self._draw.random() < 0.5:
            name = self._add("InstanceNormalization", source, scale, bias, epsilon=0.1)
        else:
            variance = self._weight(abs(self._random((channels,))) + 0.5)
            name = self._add("BatchNormalization", source, scale, bias, mean, variance)
        self.values[name] = self.values[source]

    def _channel(self, source: str) -> None:
        """A factor for each channel: a constant, or what the image says."""
        channels, spatial = self.values[source][1], self.values[source][2:]
        if self._draw.random() < 0.5:
            factor = self._weight(self._random((channels, *[1] * len(spatial))))
        else:
            pooled = self._add(
                self._draw.choice(("GlobalAveragePool", "GlobalMaxPool")), source
            )
            factor = self._add("Sigmoid", pooled)
        name = self._add("Mul", source, factor)
        self.values[name] = self.values[source]

    def _reduce(self, source: str) -> None:
        shape = self.values[source]
        axes = self._weight(np.array(self._draw.choice(([1], [-1], [1, 2])), np.int64))
        mean = self._add("ReduceMean", source, axes, keepdims=1)
        name = self._add("Sub", source, mean)
        self.values[name] = shape

    def _other(self, source: str) -> None:
        """Something that needs its input as it is."""
        shape = self.values[source]
        if self._draw.random() < 0.5:
            name = self._add("Softmax", source, axis=self._draw.choice((1, -1)))
        else:
            target = self._weight(np.array([0, 0, *shape[2:]], np.int64))
            flat = self._weight(np.array([0, 0, -1], np.int64))
            name = self._add("Reshape", self._add("Reshape", source, flat), target)
        self.values[name] = shape

    def _made(self, seed: int) -> onnx.ModelProto:
        made = [name for name in self.values if name not in self.feeds]
        outputs = [name for name in made if self._draw.random() < 0.15] + made[-1:]
        graph = helper.make_graph(
            self._nodes,
            f"net{seed}",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
                for name, array in self.feeds.items()
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                for name in dict.fromkeys(outputs)
            ],
            self._weights,
        )
        imports = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)
