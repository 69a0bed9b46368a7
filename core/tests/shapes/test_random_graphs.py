"""Random graphs of what exporters write: the shapes inferred are those of a run."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.sizes import Extent, Size, names_in, substituted
from onnxplug.graph import Graph
from onnxplug.graph.export import export_graph, node_to_proto
from onnxplug.graph.load import load_model
from onnxplug.prepare import prepare
from onnxplug.prepare.infer import infer_types

INPUTS = {"x": ("N", "S", 4), "z": ("N", 3, "P", 4), "v": ("S",), "u": ("M", 4)}
SIZES = (
    {"N": 3, "S": 5, "P": 2, "M": 7},
    {"N": 2, "S": 8, "P": 4, "M": 2},
    {"N": 1, "S": 1, "P": 1, "M": 1},
    {"N": 4, "S": 0, "P": 3, "M": 5},
    {"N": 0, "S": 3, "P": 0, "M": 0},
)


class Draft:
    """A graph as it grows; ranks are those that nodes have if they run at all."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.ranks = {name: len(shape) for name, shape in INPUTS.items()}
        self.counts: list[str] = []  # int64 scalars

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def number(self, value: Any) -> str:
        array = np.array(value, np.int64)
        name = f"k{'_'.join(map(str, array.reshape(-1)))}r{array.ndim}"
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def tensor(self, lowest: int = 0) -> str:
        names = [name for name, rank in self.ranks.items() if rank >= lowest]
        return self.choose.choice(names)

    def keep(self, name: str, rank: int) -> None:
        if rank <= 5:
            self.ranks[name] = rank

    def size(self) -> str:
        """A size of a tensor as a scalar, as PyTorch asks for it."""
        tensor = self.tensor(1)
        axis = self.choose.randrange(self.ranks[tensor])
        shape = self.add("Shape", tensor)
        return self.add("Gather", shape, self.number(axis), axis=0)

    def count(self) -> str:
        """A scalar made of sizes."""
        if not self.counts or self.choose.random() < 0.5:
            made = self.size()
        else:
            operator = self.choose.choice(
                ["Add", "Mul", "Sub", "Div", "Mod", "Max", "Min"]
            )
            one = self.choose.choice(self.counts)
            other = (
                self.number(self.choose.randrange(1, 4))
                if self.choose.random() < 0.6 or operator in ("Div", "Mod")
                else self.choose.choice(self.counts)
            )
            made = self.add(operator, one, other)
        self.counts.append(made)
        return made

    def as_vector(self, scalar: str) -> str:
        return self.add("Unsqueeze", scalar, self.number([0]))

    def target(self, tensor: str) -> tuple[str, int]:
        """What a tensor may be reshaped to: [own sizes, rest, …]."""
        rank = self.ranks[tensor]
        shape = self.add("Shape", tensor)
        parts = []
        for axis in range(rank):
            match self.choose.randrange(5):
                case 0:
                    parts.append(self.number([0]))
                case 1:
                    part = self.add(
                        "Slice", shape, self.number([axis]), self.number([axis + 1])
                    )
                    parts.append(part)
                case _:
                    parts.append(
                        self.as_vector(self.add("Gather", shape, self.number(axis)))
                    )
        match self.choose.randrange(4):
            case 0 if rank > 1:  # join two
                parts[-2:] = [self.add("Mul", *parts[-2:])]
            case 1:
                parts[self.choose.randrange(len(parts))] = self.number([-1])
            case 2 if parts:  # part one
                parts[-1:] = [
                    self.add("Div", parts[-1], self.number([2])),
                    self.number([2]),
                ]
            case _ if rank > 1:
                parts[:2] = [self.number([-1])]
        return self.add("Concat", *parts, axis=0), len(parts)

    def step(self) -> None:
        choose = self.choose
        kind = choose.randrange(15)
        tensor = self.tensor(1)
        rank = self.ranks[tensor]
        axis = choose.randrange(rank)
        match kind:
            case 0:
                self.count()
            case 1 | 2 | 3:
                target, made = self.target(tensor)
                self.keep(self.add("Reshape", tensor, target), made)
            case 4:
                order = list(range(rank))
                choose.shuffle(order)
                self.keep(self.add("Transpose", tensor, perm=order), rank)
            case 5:
                bounds = [
                    self.number([choose.randrange(-3, 4)])
                    if choose.random() < 0.6
                    else self.as_vector(self.count())
                    for _ in range(2)
                ]
                if choose.random() < 0.3:
                    bounds[1] = self.number([2**63 - 1])
                steps = self.number([choose.choice([1, 1, 2, 3])])
                made = self.add("Slice", tensor, *bounds, self.number([axis]), steps)
                self.keep(made, rank)
            case 6:
                other = choose.choice([n for n, r in self.ranks.items() if r == rank])
                self.keep(self.add("Concat", tensor, other, tensor, axis=axis), rank)
            case 7:
                other = self.tensor()
                made = self.add(choose.choice(["Add", "Mul"]), tensor, other)
                self.keep(made, max(rank, self.ranks[other]))
            case 8:
                keeps = choose.randrange(2)
                made = self.add(
                    "ReduceSum", tensor, self.number([axis]), keepdims=keeps
                )
                self.keep(made, rank if keeps else rank - 1)
            case 9:  # as PyTorch's expand
                want = [self.as_vector(self.count()), self.number([-1])]
                want += [self.number([1])] * (rank - 1)
                target = self.add("Concat", *want, axis=0)
                ones = self.add(
                    "ConstantOfShape",
                    self.add("Shape", target),
                    value=numpy_helper.from_array(np.array([1], np.int64)),
                )
                equal = self.add(
                    "Equal", target, self.add("Mul", ones, self.number(-1))
                )
                made = self.add("Where", equal, ones, target)
                self.keep(self.add("Expand", tensor, made), rank + 1)
            case 10:
                zero, one = self.number(0), self.number(choose.choice([1, 1, 2]))
                limit = self.count()
                ints = self.add("Range", zero, limit, one)
                self.keep(self.add("Cast", ints, to=1), 1)
            case 11:
                ends = self.number([choose.randrange(3) for _ in range(2 * rank)])
                self.keep(self.add("Pad", tensor, ends), rank)
            case 12:
                made = self.add("Unsqueeze", tensor, self.number([axis]))
                self.keep(made, rank + 1)
            case 13:
                times = [choose.randrange(1, 3) for _ in range(rank)]
                self.keep(self.add("Tile", tensor, self.number(times)), rank)
            case 14 if rank > 1:
                left = self.add(
                    "Transpose", tensor, perm=[*range(rank - 2), rank - 1, rank - 2]
                )
                self.keep(self.add("MatMul", tensor, left), rank)

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in INPUTS.items()
        ]
        outputs = [onnx.ValueInfoProto(name=self.nodes[-1].output[0])]
        graph = helper.make_graph(
            self.nodes, "g", inputs, outputs, list(self.constants.values())
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )


def _draft(seed: int) -> onnx.ModelProto:
    draft = Draft(seed)
    while len(draft.nodes) < 24:
        draft.step()
    return draft.model()


def _run(graph: Graph, sizes: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """The values of the nodes that run; a failure only stops what follows on it."""
    values: dict[str, np.ndarray[Any, Any]] = {
        name: weight.array for name, weight in graph.constants.items()
    }
    generator = np.random.default_rng(0)
    for name, shape in INPUTS.items():
        numbers = [size if isinstance(size, int) else sizes[size] for size in shape]
        values[name] = generator.standard_normal(numbers).astype(np.float32)
    for node in graph.nodes:
        if not all(name in values for name in node.inputs):
            continue
        if node.op_type == "Reshape" and node.inputs[1] not in graph.constants:
            data, target = (values[name] for name in node.inputs)
            if _copies_for_nothing(data, target):
                continue
        proto = node_to_proto(node)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a division by zero, for one
                results = _evaluator(proto).run(
                    None, {name: values[name] for name in node.inputs}
                )
        except Exception:  # noqa: BLE001  the evaluator raises anything
            continue
        values.update(zip(node.outputs, map(np.asarray, results), strict=True))
    return values


def _copies_for_nothing(
    data: np.ndarray[Any, Any], target: np.ndarray[Any, Any]
) -> bool:
    """Whether a size that happens to be 0 copies another, of which nothing is said."""
    pairs = zip(target.tolist(), data.shape, strict=False)
    return data.size == 0 and any(size == 0 and own for size, own in pairs)


def _evaluator(node: onnx.NodeProto) -> ReferenceEvaluator:
    graph = helper.make_graph(
        [node],
        "one",
        [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.input)],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    opset = [helper.make_opsetid("", 17)]
    return ReferenceEvaluator(
        helper.make_model(graph, opset_imports=opset, ir_version=8)
    )


def _value(
    text: int | str, sizes: dict[str, int], made_up: dict[str, int]
) -> Extent | None:
    if isinstance(text, int):
        return text
    size = Size.parse(text)
    assert size is not None, text
    known = sizes | made_up
    if not names_in(size) <= known.keys():
        return None
    return substituted(size, known)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_inferred_is_what_a_run_gives(seed):
    graph = load_model(_draft(seed)).graph
    infer_types(graph)
    claimed = checked = 0
    for sizes in SIZES:
        values = _run(graph, sizes)
        made_up: dict[str, int] = {}
        for node in graph.nodes:
            (name,) = node.outputs
            if name not in values:
                continue
            type, found = graph.types[name], values[name]
            assert type.dtype.numpy == found.dtype, (node, sizes)
            assert len(type.shape) == found.ndim, (node, sizes)
            for size, actual in zip(type.shape, found.shape, strict=True):
                claimed += 1
                if (
                    isinstance(size, str)
                    and size.startswith(GENERATED)
                    and (size.removeprefix(GENERATED).isdecimal())
                ):
                    # the same made-up name is the same size
                    assert made_up.setdefault(size, actual) == actual, (node, sizes)
                elif size is not None:
                    expected = _value(size, sizes, made_up)
                    checked += expected is not None
                    assert expected in (None, actual), (node, size, sizes, found.shape)
    assert checked > claimed / 3


@pytest.mark.parametrize("seed", range(100, 130))
def test_what_is_folded_gives_the_same(seed, evaluate):
    proto = _draft(seed)
    plain, model = load_model(proto).graph, load_model(proto)
    prepare(model, evaluate=evaluate)
    (output,) = plain.outputs
    for sizes in SIZES:
        before, after = _run(plain, sizes), _run(model.graph, sizes)
        if output in before:
            assert output in after, sizes
            np.testing.assert_array_equal(after[output], before[output])
    assert export_graph(model.graph) is not None
