"""Small networks of operators that an EP takes, whatever these are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.survey import ask

WIDTH: Final = 4
"""All values are [n, WIDTH]."""

_UNARY: Final = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Identity", "Softmax")
_BINARY: Final = ("Add", "Sub", "Mul", "Max", "Min")
_PRODUCT: Final = "MatMul"
_OPSET: Final = 21

PLAIN, NAMELESS, ALIKE = NAMES = "plain", "nameless", "alike"
"""How nodes and values are called: each in its own way; nodes in none; nodes in one,
and values so that they differ in what is no letter."""

_ODD: Final = (
    "v/1", "v.1", "v_1", "v 1", "v-1", "v:1", "V_1", "1", "class", "v'1", 'v"1', "é",
    "v__1", "None",
)  # fmt: skip

DTYPES: Final = ("float32", "float16", "float64", "int32", "int64")


class Vocabulary(Record):
    """What networks are made of.

    Attributes:
        dtype: of all values.
        operators: those that the EP claims of it.
    """

    dtype: str
    operators: Sequence[str]

    @property
    def element(self) -> int:
        """ONNX's number of the element type."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))


class Network(Record):
    """A model whose inputs are [n, WIDTH], and what it is fed.

    Attributes:
        model: serialized.
        inputs: their names.
        dtype: of all values.
        operators: of its nodes.
    """

    model: bytes
    inputs: Sequence[str]
    dtype: str
    operators: Sequence[str]

    def case(self, numbers: np.random.Generator, rows: int, name: str = "") -> Case:
        """What it is fed, with *rows* in each input."""
        feeds = {name: _values(numbers, rows, self.dtype) for name in self.inputs}
        return Case(self.model, feeds, name or f"a network, {rows} rows")


def _values(numbers: np.random.Generator, rows: int, dtype: str) -> Any:
    if np.dtype(dtype).kind == "f":
        return numbers.uniform(-1, 1, (rows, WIDTH)).astype(dtype)
    return numbers.integers(-4, 5, (rows, WIDTH)).astype(dtype)


def vocabulary(subject: Subject) -> Vocabulary | None:
    """The first element type of which the EP takes one of the operators, and those;
    ``None`` if it takes none."""
    for dtype in DTYPES:
        asked = ask(subject, _all_operators(np.dtype(dtype)))
        if asked is None:
            continue
        reasons = asked.reasons()
        taken = [
            node.op_type
            for index, node in asked.nodes.items()
            if reasons.get(index, node) is None
        ]
        if any(operator != _PRODUCT for operator in taken):
            return Vocabulary(dtype, taken)
    return None


def _all_operators(dtype: np.dtype[Any]) -> bytes:
    """A model of one node of each operator that takes *dtype*, of unknown rows."""
    element = int(helper.np_dtype_to_tensor_dtype(dtype))
    operators = [
        operator
        for operator in (*_BINARY, *_UNARY, _PRODUCT)
        if dtype.kind == "f" or operator not in ("Sigmoid", "Tanh", "Softmax")
    ]
    nodes = []
    for operator in operators:
        second = ["w"] if operator == _PRODUCT else ["x"] * (operator in _BINARY)
        nodes.append(helper.make_node(operator, ["x", *second], [operator]))
    values = [
        helper.make_tensor_value_info(name, element, ["n", WIDTH])
        for name in ("x", *operators)
    ]
    weight = numpy_helper.from_array(np.eye(WIDTH, dtype=dtype), "w")
    return _serialized(nodes, values[:1], values[1:], [weight])


def _serialized(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto],
) -> bytes:
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    imports = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def draw_network(
    words: Vocabulary,
    draw: random.Random,
    *,
    nodes: int = 6,
    rows: int | str = "n",
    foreign: Sequence[str] = (),
    names: str = PLAIN,
    seen: float = 0.0,
) -> Network:
    """A network of about *nodes* nodes.

    Args:
        rows: of the inputs; text for any number.
        foreign: unary operators that are mixed in, which the EP need not take.
        names: one of :data:`NAMES`.
        seen: how likely a value that others read is a result, too.
    """
    inputs = ["a", "b"]
    values, made, weights = list(inputs), list[onnx.NodeProto](), []
    called, of_nodes = _names(names, nodes)
    for number in range(nodes):
        pool = [*words.operators, *foreign] if number else list(words.operators)
        operator = draw.choice(pool)
        source = [draw.choice(values[-3:])]
        if operator in _BINARY:
            if draw.random() < 0.3:
                weights.append(_weight(draw, words.dtype, (WIDTH,), f"w{number}"))
                source.append(f"w{number}")
            else:
                source.append(draw.choice(values))
        elif operator == _PRODUCT:
            weights.append(_weight(draw, words.dtype, (WIDTH, WIDTH), f"w{number}"))
            source.append(f"w{number}")
        made.append(
            helper.make_node(operator, source, [called[number]], name=of_nodes[number])
        )
        values.append(called[number])
    used = {name for node in made for name in node.input}
    ends = [n for n in called if n not in used or (seen and draw.random() < seen)]
    fed = [name for name in inputs if name in used]
    model = _serialized(
        made,
        [helper.make_tensor_value_info(n, words.element, [rows, WIDTH]) for n in fed],
        [helper.make_tensor_value_info(n, words.element, [rows, WIDTH]) for n in ends],
        weights,
    )
    return Network(model, fed, words.dtype, [node.op_type for node in made])


def _names(how: str, count: int) -> tuple[list[str], list[str]]:
    """What *count* values are called, and the nodes that make them."""
    odd = [_ODD[n] if n < len(_ODD) else f"v/{n}" for n in range(count)]
    values = odd if how == ALIKE else [f"v{n}" for n in range(count)]
    nodes = {PLAIN: [f"node{n}" for n in range(count)], ALIKE: ["node"] * count}
    return values, nodes.get(how, [""] * count)


def _weight(
    draw: random.Random, dtype: str, shape: tuple[int, ...], name: str
) -> onnx.TensorProto:
    numbers = np.random.default_rng(draw.getrandbits(64))
    if np.dtype(dtype).kind == "f":
        array = numbers.uniform(-0.5, 0.5, shape).astype(dtype)
    else:
        array = numbers.integers(-1, 2, shape).astype(dtype)
    return numpy_helper.from_array(array, name)


NO_WORDS: Final = (
    "the EP takes none of the operators that networks are made of: "
    f"{', '.join((*_BINARY, *_UNARY, _PRODUCT))}"
)
