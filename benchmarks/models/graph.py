"""Writes graphs in the form that ``torch.onnx.export`` gives them.

There are two exporters, and their graphs differ.  ``TORCHSCRIPT`` is the older one as
it wrote most published models: opset 13, LayerNorm in its parts, scalars as
``Constant`` nodes, biases added from the left.  ``DYNAMO`` is today's: opset 18,
``LayerNormalization``, scaled dot-product attention spelled out.  Weights are named as
in the ``transformers`` library, so that they can be loaded there for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


class Exporter(Enum):
    """Whose form a graph has; the value is the opset."""

    TORCHSCRIPT = 13
    DYNAMO = 18


class Case(NamedTuple):
    """A model and inputs for it."""

    model: onnx.ModelProto
    feeds: dict[str, Array]


class Graph:
    """Gathers nodes and random weights, which depend on the seed alone.

    With a *prefix*, names are unlike those of the graph that it is a body of.
    """

    def __init__(
        self, exporter: Exporter = Exporter.DYNAMO, seed: int = 0, prefix: str = ""
    ) -> None:
        self.exporter = exporter
        self.prefix = prefix
        self.random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        return self.add_many(operator, 1, *inputs, **attributes)[0]

    def add_many(
        self, operator: str, outputs: int, *inputs: str, **attributes: Any
    ) -> list[str]:
        """A node of several outputs."""
        names = [self._name(operator.lower()) for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names

    def rename(self, value: str, name: str) -> str:
        """Call the output of the newest node *name*."""
        outputs = self._nodes[-1].output
        outputs[list(outputs).index(value)] = name
        return name

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{self.prefix}{stem}_{self._count}"

    def weight(
        self, name: str, *shape: int, scale: float = 0.02, mean: float = 0.0
    ) -> str:
        """A random weight of normal distribution; the same one for the same name."""
        name = f"{self.prefix}{name}"
        if name not in self._weights:
            values = self.random.standard_normal(shape, np.float32)
            values *= np.float32(scale)
            values += np.float32(mean)
            self._weights[name] = numpy_helper.from_array(values, name)
        return name

    def constant(self, array: Any) -> str:
        """A constant that is an initializer."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._name("constant")
            self._weights[name] = numpy_helper.from_array(array, name)
            self._constants[key] = name
        return self._constants[key]

    def scalar(self, value: float) -> str:
        """A float of rank 0, as the exporter writes it."""
        array = np.array(value, np.float32)
        if self.exporter is Exporter.DYNAMO:
            return self.constant(array)
        return self.add("Constant", value=numpy_helper.from_array(array))

    def integers(self, *values: int) -> str:
        """A vector of int64, for shapes and axes."""
        return self.constant(np.array(values, np.int64))

    # what layers are made of

    def reshape(self, value: str, *shape: int) -> str:
        """To a constant shape."""
        attributes = {"allowzero": 1} if self.exporter is Exporter.DYNAMO else {}
        return self.add("Reshape", value, self.integers(*shape), **attributes)

    def transpose(self, value: str, *order: int) -> str:
        """With the axes in another order."""
        return self.add("Transpose", value, perm=list(order))

    def linear(
        self, value: str, name: str, rows: int, columns: int, bias: bool = True
    ) -> str:
        """``torch.nn.Linear`` of an input of rank 3."""
        value = self.add("MatMul", value, self.weight(f"{name}.weight", rows, columns))
        if not bias:
            return value
        terms = [value, self.weight(f"{name}.bias", columns)]
        if self.exporter is Exporter.TORCHSCRIPT:
            terms.reverse()
        return self.add("Add", *terms)

    def layer_norm(self, value: str, name: str, width: int, epsilon: float) -> str:
        """``torch.nn.LayerNorm`` over the last axis."""
        scale = self.weight(f"{name}.weight", width, mean=1)
        bias = self.weight(f"{name}.bias", width)
        if self.exporter is Exporter.DYNAMO:
            return self.add(
                "LayerNormalization", value, scale, bias,
                axis=-1, epsilon=epsilon, stash_type=1,
            )  # fmt: skip
        mean = self.add("ReduceMean", value, axes=[-1])
        centred = self.add("Sub", value, mean)
        square = self.add("Pow", centred, self.scalar(2))
        variance = self.add("ReduceMean", square, axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.scalar(epsilon)))
        value = self.add("Mul", self.add("Div", centred, root), scale)
        return self.add("Add", value, bias)

    def gelu(self, value: str) -> str:
        """``torch.nn.GELU()``: exact, by erf."""
        ratio = self.add("Div", value, self.scalar(2**0.5))
        gate = self.add("Add", self.add("Erf", ratio), self.scalar(1))
        if self.exporter is Exporter.DYNAMO:
            gate = self.add("Mul", self.scalar(0.5), gate)
            return self.add("Mul", value, gate)
        return self.add("Mul", self.add("Mul", value, gate), self.scalar(0.5))

    def attention(
        self,
        query: str,
        key: str,
        value: str,
        mask: str | None,
        shape: tuple[int, int, int, int],
    ) -> str:
        """``scaled_dot_product_attention`` as the newer exporter spells it out.

        Args:
            query: ``[batch, heads, rows, width]``.
            key, value: ``[batch, heads, columns, width]``.
            mask: added to the scores; zeros are if there is none.
            shape: batch, heads, columns, width.

        Returns:
            ``[batch, heads, rows, width]``.
        """
        batch, heads, columns, width = shape
        key = self.add("Reshape", key, self.integers(batch * heads, columns, width))
        key = self.transpose(key, 0, 2, 1)
        key = self.add("Reshape", key, self.integers(batch, heads, width, columns))
        scale = self.scalar(width**-0.25)
        scores = self.add(
            "MatMul", self.add("Mul", query, scale), self.add("Mul", key, scale)
        )
        if mask:
            scores = self.add("Add", scores, mask)
        weights = self.add("Softmax", scores, axis=-1)
        wrong = self.add("IsNaN", weights)
        weights = self.add("Where", wrong, self.scalar(0), weights)
        return self.add("MatMul", weights, value)

    def body(self, name: str, outputs: Sequence[str]) -> onnx.GraphProto:
        """The body of a node of control flow that has no inputs, such as ``If``."""
        found = [helper.make_empty_tensor_value_info(output) for output in outputs]
        weights = list(self._weights.values())
        return helper.make_graph(self._nodes, name, [], found, weights)

    def finish(
        self, name: str, feeds: Mapping[str, Array], outputs: Sequence[str]
    ) -> Case:
        """The model, with static shapes, and its inputs."""
        inputs = [
            helper.make_tensor_value_info(
                key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for key, array in feeds.items()
        ]
        found = [helper.make_empty_tensor_value_info(output) for output in outputs]
        opset = self.exporter.value
        graph = helper.make_graph(self._nodes, name, inputs, found)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=7 if opset == 13 else 10,
            producer_name="onnxplug-benchmarks",
        )
        _declare_outputs(model, self._weights.values())
        model.graph.initializer.extend(self._weights.values())
        return Case(model, dict(feeds))

    def finish_varying(
        self,
        name: str,
        inputs: Mapping[str, tuple[int, Sequence[str | int]]],
        outputs: Mapping[str, Sequence[str | int]],
    ) -> onnx.ModelProto:
        """The model with sizes that have names.

        Args:
            inputs: of each the element type and the shape.
            outputs: the shapes of what is given out, all of float32.
        """
        found = [
            helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape)
            for key, shape in outputs.items()
        ]
        fed = [
            helper.make_tensor_value_info(key, element, shape)
            for key, (element, shape) in inputs.items()
        ]
        graph = helper.make_graph(self._nodes, name, fed, found)
        graph.initializer.extend(self._weights.values())
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.exporter.value)],
            ir_version=10,
            producer_name="onnxplug-benchmarks",
        )


def _declare_outputs(model: onnx.ModelProto, weights: Any) -> None:
    """Give outputs their inferred types, without copying large weights."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    for weight in weights:
        if len(weight.raw_data) <= 1024:
            small.graph.initializer.append(weight)
        else:
            small.graph.input.append(
                helper.make_tensor_value_info(
                    weight.name, weight.data_type, weight.dims
                )
            )
    inferred = onnx.shape_inference.infer_shapes(small, strict_mode=True)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
