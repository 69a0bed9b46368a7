"""Random graphs of numbers that are quantised and dequantised, with what their
operators give in float64, and how far a right result may be from it.

What is exact by ONNX's definition, in float32, has an error of 0; a number that is
rounded to steps of a scale may be one step off where its error reaches a half.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

_ROUNDING = 4e-6
"""Of a sum of some hundred products in float32, in parts of that of their sizes."""


class Value(NamedTuple):
    """A value of floats, and how far a right computation may be from it."""

    name: str
    array: Array
    error: float = 0.0


class Scaled(NamedTuple):
    """A scale and a zero point: constants, and their names."""

    scale: Array
    zero: Array
    names: tuple[str, str]
    attributes: dict[str, int]


class Case(NamedTuple):
    """A model with inputs, and what it gives."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    wanted: list[Value]


class QuantisedGraph:
    """Makes one graph; the same seed makes the same."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.values: list[Value] = []
        self.count = 0

    def make(self, count: int) -> Case:
        """A case of about *count* nodes."""
        rank = self.choose.choice([2, 3, 4, 4])
        sizes = [
            self.choose.choice([1, 2, 3, 5, 8, 9, 16, 17, 24]) for _ in range(rank)
        ]
        if rank == 4:
            sizes[0] = self.choose.choice([1, 2])
        x = (self.numbers.standard_normal(sizes) * 2).astype(np.float32)
        self.feeds["x"] = x
        self.values.append(self.quantise(Value("x", x.astype(np.float64))))
        makers = [
            *[self.convolution] * 5, *[self.product] * 3,
            self.attention, self.sum, self.sum, self.function, self.function,
            self.move, self.move, self.pool, self.join, self.again, self.rows,
        ]  # fmt: skip
        while len(self.nodes) < count:
            self.choose.choice(makers)()
        wanted = self.values[-1:]
        wanted += [v for v in self.values[:-1] if self.choose.random() < 0.15]
        wanted = [v for v in wanted if v.name != "x"]
        return Case(self._model(wanted), self.feeds, wanted)

    def _model(self, wanted: Sequence[Value]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "quantised",
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
                for name, array in self.feeds.items()
            ],
            [onnx.ValueInfoProto(name=value.name) for value in wanted],
            [numpy_helper.from_array(w, name) for name, w in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    # names

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, array: Any) -> str:
        name = self.fresh("c")
        self.constants[name] = np.asarray(array)
        return name

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = self.fresh(operator.lower())
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def any(self) -> Value:
        return self.choose.choice(self.values[-3:])

    def add(self, name: str, array: Array, error: float) -> Value:
        """One more value, quantised mostly."""
        value = Value(name, array, error)
        if self.choose.random() < 0.8:
            value = self.quantise(value)
        self.values.append(value)
        return value

    # scales

    def scaled(self, shape: Sequence[int], largest: float) -> Scaled:
        """A scale and a zero point for all, for an axis, or in blocks."""
        dtype = self.choose.choice([np.int8, np.uint8] * 4 + [np.int16])
        limits = np.iinfo(dtype)
        kind = self.choose.random()
        sizes: tuple[int, ...] = ()
        attributes: dict[str, int] = {}
        if kind < 0.15 and shape:
            axis = self.choose.randrange(len(shape))
            sizes, attributes = (shape[axis],), {"axis": axis}
            if self.choose.random() < 0.4:
                block = self.choose.choice([1, 2, 4])
                blocks = -(-shape[axis] // block)
                sizes = (*shape[:axis], blocks, *shape[axis + 1 :])
                attributes["block_size"] = block
        # some saturate
        reach = max(largest, 1e-3) * self.choose.choice([0.4, 1.0, 1.3])
        scale = reach * 2 / (int(limits.max) - int(limits.min))
        scales = np.asarray(
            scale * (0.7 + 0.6 * self.numbers.random(sizes)), np.float32
        )
        middle = (int(limits.max) + int(limits.min) + 1) // 2
        zeros = np.full(sizes, middle, dtype)
        if self.choose.random() < 0.5:
            low, high = max(middle - 40, limits.min), min(middle + 40, limits.max)
            zeros = self.numbers.integers(low, high + 1, sizes).astype(dtype)
        zeros = np.asarray(zeros)
        names = self.constant(scales), self.constant(zeros)
        return Scaled(scales, zeros, names, attributes)

    def quantise(self, value: Value, scaled: Scaled | None = None) -> Value:
        """There and back."""
        array = value.array
        scaled = scaled or self.scaled(array.shape, float(np.abs(array).max(initial=0)))
        codes = self.node(
            "QuantizeLinear", [value.name, *scaled.names], **scaled.attributes
        )
        back = self.node(
            "DequantizeLinear", [codes, *scaled.names], **scaled.attributes
        )
        scale, zero = (_spread(each, array.shape, scaled) for each in scaled[:2])
        limits = np.iinfo(scaled.zero.dtype)
        if value.error:
            steps = np.rint(array / scale.astype(np.float64))
        else:
            steps = np.rint(array.astype(np.float32) / scale).astype(np.float64)
        q = np.clip(steps + zero, limits.min, limits.max)
        found = ((q - zero).astype(np.float32) * scale).astype(np.float64)
        error = 0.0
        if value.error:
            largest = float(scale.max())
            error = (np.floor(value.error / float(scale.min())) + 1) * largest
            error += 1e-6 * float(np.abs(found).max(initial=0))
        return Value(back, found, float(error))

    def weights(self, shape: Sequence[int], columns: int) -> Value:
        """Codes of a constant, dequantised: one scale, or one for each of an axis."""
        dtype = self.choose.choice([np.int8, np.int8, np.uint8])
        limits = np.iinfo(dtype)
        codes = self.numbers.integers(limits.min, limits.max + 1, shape).astype(dtype)
        sizes: tuple[int, ...] = ()
        attributes = {}
        if self.choose.random() < 0.6:
            sizes, attributes = (shape[columns],), {"axis": columns}
        scale = np.asarray(self.numbers.random(sizes) * 0.004 + 0.0005, np.float32)
        zero = np.full(sizes, 0 if dtype is np.int8 else 128, dtype)
        if self.choose.random() < 0.3:
            zero = self.numbers.integers(limits.min, limits.max + 1, sizes).astype(
                dtype
            )
        names = [self.constant(each) for each in (codes, scale, np.asarray(zero))]
        name = self.node("DequantizeLinear", names, **attributes)
        spread = [
            each.reshape(-1, *[1] * (len(shape) - 1 - columns)) if each.ndim else each
            for each in (scale, np.asarray(zero))
        ]
        wide = (codes.astype(np.float32) - spread[1].astype(np.float32)) * spread[0]
        return Value(name, wide.astype(np.float64))

    # operators

    def convolution(self) -> None:
        x = self.any()
        if x.array.ndim != 4 or min(x.array.shape[2:]) < 2:
            return
        channels, filters = x.array.shape[1], self.choose.choice([1, 4, 8, 16, 19])
        groups = 1
        if self.choose.random() < 0.25:
            groups, filters = channels, channels
        elif channels % 8 == 0 and filters % 2 == 0:
            groups = self.choose.choice([1, 2])
        kernel = self.choose.choice([1, 2, 3])
        kernel = min(kernel, *x.array.shape[2:])
        stride = self.choose.choice([1, 1, 2])
        pad = self.choose.choice([0, 1]) if kernel > 1 else 0
        w = self.weights((filters, channels // groups, kernel, kernel), 0)
        inputs = [x.name, w.name]
        bias = np.zeros(filters)
        if self.choose.random() < 0.6:
            bias = self.numbers.standard_normal(filters)
            inputs.append(self.constant(bias.astype(np.float32)))
        name = self.node(
            "Conv", inputs, strides=[stride] * 2, pads=[pad] * 4, group=groups
        )
        both = [torch.from_numpy(np.ascontiguousarray(each.array)) for each in (x, w)]
        more = {"stride": stride, "padding": pad, "groups": groups}
        conv = torch.nn.functional.conv2d
        found = conv(*both, torch.from_numpy(bias.astype(np.float32)).double(), **more)
        sizes = conv(both[0].abs(), both[1].abs(), **more)
        reach = conv(torch.full_like(both[0], x.error), both[1].abs(), **more)
        error = float(reach.max()) + _ROUNDING * (float(sizes.max()) + 1)
        self.add(name, found.numpy(), error)

    def product(self) -> None:
        x = self.any()
        inner, columns = x.array.shape[-1], self.choose.choice([1, 3, 8, 17, 32])
        is_gemm = x.array.ndim == 2 and self.choose.random() < 0.5
        turned = self.choose.random() < 0.4
        w = self.weights(
            (columns, inner) if turned else (inner, columns), int(not turned)
        )
        wide = w.array.T if turned else w.array
        bias = self.numbers.standard_normal(columns).astype(np.float32)
        if is_gemm:
            alpha = self.choose.choice([1.0, 0.5])
            inputs = [x.name, w.name, self.constant(bias)]
            name = self.node("Gemm", inputs, transB=int(turned), alpha=alpha)
        else:
            alpha, right = 1.0, w.name
            if turned:
                right = self.node("Transpose", [w.name], perm=[1, 0])
            name = self.node("MatMul", [x.name, right])
            if self.choose.random() < 0.6:
                name = self.node("Add", [name, self.constant(bias)])
            else:
                bias = np.zeros_like(bias)
        sizes = np.abs(x.array) @ np.abs(wide)
        error = x.error * float(np.abs(wide).sum(0).max())
        error += _ROUNDING * (float(sizes.max(initial=0)) + 4)
        self.add(name, x.array @ wide * alpha + bias, error)

    def attention(self) -> None:
        """A product of what is computed with itself."""
        x = self.any()
        if x.array.ndim < 2 or x.array.size > 4000:
            return
        order = [*range(x.array.ndim - 2), x.array.ndim - 1, x.array.ndim - 2]
        turned = Value(
            self.node("Transpose", [x.name], perm=order),
            x.array.transpose(order),
            x.error,
        )
        if self.choose.random() < 0.7:
            turned = self.quantise(turned)
        name = self.node("MatMul", [x.name, turned.name])
        one, other = np.abs(x.array), np.abs(turned.array)
        error = x.error * float(other.sum(-2).max()) + turned.error * float(
            one.sum(-1).max()
        )
        error += x.error * turned.error * x.array.shape[-1]
        error += _ROUNDING * (float((one @ other).max()) + 1)
        self.add(name, x.array @ turned.array, error)

    def sum(self) -> None:
        a, b = self.any(), self.choose.choice(self.values)
        if a.array.shape != b.array.shape:
            b = a
        operator = self.choose.choice(["Add", "Mul", "Add", "Max"])
        name = self.node(operator, [a.name, b.name])
        one, other = (float(np.abs(each.array).max(initial=0)) for each in (a, b))
        compute = {"Add": np.add, "Mul": np.multiply, "Max": np.maximum}[operator]
        error = a.error + b.error
        if operator == "Mul":
            error = a.error * other + b.error * one + a.error * b.error
        if operator != "Max" or error:
            error += 1e-6 * (one + other + one * other) + 1e-30
        self.add(name, compute(a.array, b.array), error)

    def function(self) -> None:
        x = self.any()
        operator = self.choose.choice(["Relu", "Clip", "Sigmoid", "LeakyRelu", "Neg"])
        inputs = [x.name]
        if operator == "Clip":
            inputs += [self.constant(np.float32(each)) for each in (0.0, 1.5)]
        name, a = self.node(operator, inputs), x.array
        found = {
            "Relu": lambda: np.maximum(a, 0),
            "Clip": lambda: np.clip(a, 0, 1.5),
            "Sigmoid": lambda: 1 / (1 + np.exp(-a)),
            "LeakyRelu": lambda: np.where(a < 0, a * np.float32(0.01), a),
            "Neg": lambda: -a,
        }[operator]()
        error = x.error
        if operator in ("Sigmoid", "LeakyRelu"):
            error += 1e-6 * (1 + float(np.abs(a).max(initial=0)))
        self.add(name, found, error)

    def rows(self) -> None:
        """A softmax, or a norm of what is exact."""
        x = self.any()
        a, columns = x.array, x.array.shape[-1]
        if x.error or self.choose.random() < 0.5:
            axis = self.choose.choice([-1, -1, 0])
            name = self.node("Softmax", [x.name], axis=axis)
            power = np.exp(a - a.max(axis, keepdims=True))
            error = float(np.expm1(min(2 * x.error, 1.0))) + 1e-6
            self.add(name, power / power.sum(axis, keepdims=True), error)
            return
        weights = [
            self.numbers.standard_normal(columns).astype(np.float32) for _ in "gb"
        ]
        names = [self.constant(each) for each in weights]
        name = self.node("LayerNormalization", [x.name, *names], epsilon=1e-3)
        apart = a - a.mean(-1, keepdims=True)
        root = np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-3)
        found = apart / root * weights[0] + weights[1]
        largest = float(np.abs(a).max(initial=0)) / float(root.min(initial=1))
        error = 1e-5 * (1 + float(np.abs(found).max(initial=0))) * (1 + largest)
        self.add(name, found, error)

    def move(self) -> None:
        x = self.any()
        shape, rank = x.array.shape, x.array.ndim
        kind = self.choose.choice(["Reshape", "Transpose", "Slice", "Gather", "Tile"])
        if kind == "Reshape":
            sizes = [shape[0], -1] if rank > 2 else [*shape[:-1], 1, shape[-1]]
            if rank > 3 and self.choose.random() < 0.5:
                sizes = [*shape[:2], -1]
            name = self.node(kind, [x.name, self.constant(np.int64(sizes))])
            found = x.array.reshape(sizes)
        elif kind == "Transpose":
            order = [*range(rank)]
            self.choose.shuffle(order)
            name, found = (
                self.node(kind, [x.name], perm=order),
                x.array.transpose(order),
            )
        elif kind == "Slice":
            axis = self.choose.randrange(rank)
            limits = [
                np.int64([0]),
                np.int64([max(1, shape[axis] - 1)]),
                np.int64([axis]),
            ]
            name = self.node(kind, [x.name, *map(self.constant, limits)])
            found = np.take(x.array, range(int(limits[1][0])), axis)
        elif kind == "Gather":
            axis = self.choose.randrange(rank)
            places = self.numbers.integers(0, shape[axis], 3)
            name = self.node(kind, [x.name, self.constant(places)], axis=axis)
            found = np.take(x.array, places, axis)
        else:
            if x.array.size > 2000:
                return
            times = [1] * rank
            times[self.choose.randrange(rank)] = 2
            name = self.node(kind, [x.name, self.constant(np.int64(times))])
            found = np.tile(x.array, times)
        self._back(x, Value(name, found, x.error))

    def _back(self, x: Value, moved: Value) -> None:
        """Quantise what was moved as it was before, mostly."""
        last = next((n for n in self.nodes if n.output[0] == x.name), None)
        if self.choose.random() < 0.7 and last and last.op_type == "DequantizeLinear":
            names = last.input[1], last.input[2]
            scale, zero = (self.constants[name] for name in names)
            if not last.attribute:
                scaled = Scaled(scale, zero, names, {})
                self.values.append(self.quantise(moved, scaled))
                return
        self.values.append(moved)

    def pool(self) -> None:
        x = self.any()
        if x.array.ndim != 4 or min(x.array.shape[2:]) < 2:
            return
        kind = self.choose.choice(["MaxPool", "AveragePool", "GlobalAveragePool"])
        tensor = torch.from_numpy(np.ascontiguousarray(x.array))
        if kind == "GlobalAveragePool":
            name = self.node(kind, [x.name])
            found = tensor.mean((2, 3), keepdim=True).numpy()
        else:
            name = self.node(kind, [x.name], kernel_shape=[2, 2], strides=[2, 2])
            pool = torch.nn.functional
            found = (
                pool.max_pool2d(tensor, 2, 2)
                if kind == "MaxPool"
                else pool.avg_pool2d(tensor, 2, 2)
            ).numpy()
        if kind == "MaxPool":
            self._back(x, Value(name, found, x.error))
            return
        error = x.error + 1e-6 * float(np.abs(x.array).max(initial=0)) + 1e-30
        self.add(name, found, error)

    def join(self) -> None:
        x = self.any()
        if x.array.size > 2000:
            return
        others = [v for v in self.values if v.array.shape == x.array.shape]
        both = [x, self.choose.choice(others)]
        axis = self.choose.randrange(x.array.ndim)
        name = self.node("Concat", [v.name for v in both], axis=axis)
        found = np.concatenate([v.array for v in both], axis)
        self._back(x, Value(name, found, max(v.error for v in both)))

    def again(self) -> None:
        """Other steps of what is in steps."""
        self.values.append(self.quantise(self.any()))


def _spread(array: Array, shape: Sequence[int], scaled: Scaled) -> Array:
    """A scale or zero point, for each element of *shape*."""
    if array.ndim == 0:
        return np.broadcast_to(array, shape)
    axis = scaled.attributes["axis"]
    block = scaled.attributes.get("block_size")
    if block:
        whole = np.repeat(array, block, axis)
        return np.take(whole, range(shape[axis]), axis)
    return np.broadcast_to(array.reshape(-1, *[1] * (len(shape) - 1 - axis)), shape)
