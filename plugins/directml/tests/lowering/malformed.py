"""Nodes that no exporter writes: of sizes, types and attributes that do not fit."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxplug_directml.lowering.attributes import KINDS

from .nodes.attention import ATTENTION, CONTRIBUTED
from .nodes.indices import INDICES
from .nodes.movement import BORDERS, PIECES, VIEWS
from .nodes.networks import NETWORKS
from .nodes.pictures import PICTURES
from .single_node import SingleNode, model_of

Array = np.ndarray[Any, Any]
Operator = tuple[str, str]

_TYPES: Final = [
    np.dtype(name)
    for name in "float32 float32 float32 float32 float16 int64 int64 int32 uint8 int8 "
    "bool float64".split()
]
_INTEGERS: Final = (0, 1, 1, 2, 3, 4, -1, -2, 5, 100, 2**31 - 1, 2**40, 2**62, -(2**63))
_FLOATS: Final = (0.0, 1.0, -1.0, 0.5, 1e30, float("nan"), float("inf"))
_TEXTS: Final = (
    "linear", "nearest", "cubic", "NOTSET", "SAME_UPPER", "reflect", "wrap", "",
    "forward", "RIGHT", "ij,jk->ii", "ij,ij->ij", "add", "CRD", "zeros", "Tanh", "é",
)  # fmt: skip
_OPSETS: Final = (1, 6, 7, 9, 10, 11, 12, 13, 16, 18, 19, 20, 21, 22, 23, 24)


def _right_ones() -> Mapping[Operator, list[SingleNode]]:
    found: dict[Operator, list[SingleNode]] = defaultdict(list)
    for table in (
        VIEWS, PIECES, BORDERS, INDICES, PICTURES, NETWORKS, ATTENTION, CONTRIBUTED
    ):  # fmt: skip
        for node in table.values():
            found[node.domain, node.op_type].append(node)
    return found


RIGHT: Final = _right_ones()
"""By operator, nodes that are as they should be."""


def _attributes() -> Mapping[Operator, list[str]]:
    """The attributes that any version of an operator has."""
    found: dict[Operator, set[str]] = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain, schema.name] |= set(schema.attributes)
    return {operator: sorted(names) for operator, names in found.items()}


_NAMES: Final = _attributes()
_ALL_NAMES: Final = sorted({name.rpartition(".")[2] for name in KINDS})


class MalformedNode:
    """One node of an operator, in a model of its own; the same seed makes the same."""

    def __init__(self, operator: Operator, seed: int) -> None:
        self._draw = random.Random(f"{operator} {seed}")
        self._numbers = np.random.default_rng(self._draw.randrange(2**32))
        self._names = _NAMES.get(operator, _ALL_NAMES)
        self._inputs: list[Array | None] = []
        self._constant: set[int] = set()
        self._fields: dict[str, Any] = {}
        self._opset = self._draw.choice(_OPSETS)
        self._outputs = self._draw.choice((1, 1, 1, 2, 3))
        self._types: Sequence[onnx.TypeProto] = ()
        if operator in RIGHT and self._draw.random() < 0.75:
            self._spoil(self._draw.choice(RIGHT[operator]))
        else:
            self._invent()
        self.model = self._made(operator)

    # what it is made of

    def _shape(self) -> tuple[int, ...]:
        rank = self._draw.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6))
        return tuple(
            self._draw.choice((0, 1, 1, 2, 2, 3, 4, 4, 6)) for _ in range(rank)
        )

    def _array(
        self, shape: tuple[int, ...] | None = None, dtype: np.dtype[Any] | None = None
    ) -> Array:
        shape = self._shape() if shape is None else shape
        dtype = self._draw.choice(_TYPES) if dtype is None else dtype
        if dtype.kind not in "iu":
            return np.asarray(self._numbers.normal(size=shape)).astype(dtype)
        limits = np.iinfo(dtype)
        drawn = [
            min(max(self._draw.choice(_INTEGERS), limits.min), limits.max)
            for _ in range(int(np.prod(shape)))
        ]
        return np.array(drawn, dtype).reshape(shape)

    def _value(self) -> Any:
        """An attribute of any kind."""
        count = self._draw.randrange(7)
        several = [self._draw.choice(_INTEGERS[:8]) for _ in range(count)]
        numbers = [self._draw.choice(_FLOATS) for _ in range(count)]
        return self._draw.choice(
            (
                self._draw.choice(_INTEGERS), self._draw.choice(_INTEGERS[:8]),
                self._draw.choice(_FLOATS), several, several, numbers,
                self._draw.choice(_TEXTS), self._draw.sample(_TEXTS, count),
                numpy_helper.from_array(self._array()),
            )
        )  # fmt: skip

    def _invent(self) -> None:
        for _ in range(self._draw.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8))):
            first = self._inputs[0] if self._inputs else None
            if first is not None and self._draw.random() < 0.4:
                self._inputs.append(self._array(first.shape, first.dtype))
            elif self._draw.random() < 0.9:
                self._inputs.append(self._array())
            else:
                self._inputs.append(None)
        places = range(len(self._inputs))
        self._constant = {i for i in places if self._draw.random() < 0.3}
        for name in self._names:
            if self._draw.random() < 0.35:
                self._fields[name] = self._value()

    def _spoil(self, node: SingleNode) -> None:
        """Take a node that is right, and change a few things."""
        self._inputs = [None if x is None else np.asarray(x) for x in node.inputs]
        self._constant, self._fields = set(node.constant), dict(node.attributes)
        if self._draw.random() < 0.8:
            self._opset = node.opset
        asked = node.outputs
        self._outputs = asked if isinstance(asked, int) else len(asked)
        made = model_of({"node": node}).graph.output
        self._types = [output.type for output in made]
        for _ in range(self._draw.choice((1, 1, 1, 2, 3))):
            self._draw.choice(
                (
                    self._spoil_input, self._spoil_input, self._spoil_input,
                    self._spoil_attribute, self._spoil_attribute, self._drop_attribute,
                    self._spoil_count,
                )
            )()  # fmt: skip

    def _spoil_input(self) -> None:
        if not self._inputs:
            return
        place = self._draw.randrange(len(self._inputs))
        found = self._inputs[place]
        match self._draw.randrange(4):
            case 0:
                self._inputs[place] = None
            case 1:
                self._inputs[place] = self._array()
            case 2 if found is not None:
                self._inputs[place] = self._array(found.shape, found.dtype)
            case _:
                self._constant ^= {place}

    def _spoil_attribute(self) -> None:
        if self._names:
            self._fields[self._draw.choice(self._names)] = self._value()

    def _drop_attribute(self) -> None:
        if self._fields:
            self._fields.pop(self._draw.choice([*self._fields]))

    def _spoil_count(self) -> None:
        match self._draw.randrange(3):
            case 0:
                self._outputs = self._draw.randrange(1, 5)
            case 1:
                self._inputs = self._inputs[: self._draw.randrange(4)]
            case _:
                self._inputs.append(self._array())

    # the model

    def _made(self, operator: Operator) -> onnx.ModelProto:
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self._inputs)]
        results = [f"y{i}" for i in range(self._outputs)]
        domain, op_type = operator
        node = helper.make_node(op_type, names, results, domain=domain)
        for name, value in self._fields.items():
            if value != []:  # of which onnx does not know the kind
                node.attribute.append(helper.make_attribute(name, value))
        graph = onnx.GraphProto(name="malformed", node=[node])
        for i, x in enumerate(self._inputs):
            if x is not None and i in self._constant:
                graph.initializer.append(numpy_helper.from_array(x, names[i]))
            elif x is not None:
                graph.input.append(_typed(names[i], x.dtype, x.shape))
        given = [x for x in self._inputs if x is not None] or [self._array()]
        for i, name in enumerate(results):
            if i < len(self._types) and self._draw.random() < 0.97:
                graph.output.add(name=name, type=self._types[i])
                continue
            like = self._draw.choice(given)
            shape = self._shape() if self._draw.random() < 0.1 else like.shape
            graph.output.append(_typed(name, like.dtype, shape))
        imports = [helper.make_opsetid("", self._opset)]
        imports.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _typed(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, element, shape)
