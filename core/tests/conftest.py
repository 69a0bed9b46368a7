"""Models from ONNX's text form, and what they compute by ONNX's reference evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Graph, Model, Node, Weight
from onnxplug.graph.export import export_graph, node_to_proto
from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition

HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]>\n'


@pytest.fixture(scope="session")
def parse() -> Callable[..., Model]:
    """Loads a model from its text, whose header may be left out."""

    def parse(text: str, opset: int = 21) -> Model:
        if not text.lstrip().startswith("<"):
            text = HEADER.format(opset=opset) + text
        return load_model(onnx.parser.parse_model(text))

    return parse


@pytest.fixture(scope="session")
def run() -> Callable[..., list[Any]]:
    """Computes a graph's outputs by the reference evaluator."""

    def run(graph: Graph, *inputs: Any) -> list[Any]:
        feeds = dict(zip(graph.inputs, inputs, strict=False))
        results: list[Any] = ReferenceEvaluator(export_graph(graph).model).run(
            None, feeds
        )
        return results

    return run


@pytest.fixture(scope="session")
def evaluate() -> Callable[[Graph, Node], Sequence[np.ndarray] | None]:
    """Computes one node of constants, as a session's host EP would."""
    return reference_evaluate


def reference_evaluate(graph: Graph, node: Node) -> Sequence[np.ndarray] | None:
    inputs = dict.fromkeys(filter(None, node.inputs))
    model = onnx.ModelProto(ir_version=10)
    for domain, version in graph.opset_imports.items():
        model.opset_import.add(domain=domain, version=version)
    model.graph.name = "one"
    model.graph.node.append(node_to_proto(node))
    for name in inputs:
        model.graph.input.add(name=name)
    for name in filter(None, node.outputs):
        model.graph.output.add(name=name)
    feeds: Mapping[str, Any] = {name: graph.constant(name) for name in inputs}
    try:
        results = iter(ReferenceEvaluator(model).run(None, feeds))
    except Exception:  # noqa: BLE001  the evaluator raises anything for what it cannot compute
        return None
    return [np.asarray(next(results)) if name else None for name in node.outputs]


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """Whether two results are equal to the bit, sequences and strings included."""
    return equal


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(map(equal, one, other))
        )
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "OUS":
        return bool(one.tolist() == other.tolist())
    return one.tobytes() == other.tobytes() or bool((one == other).all())


@pytest.fixture(scope="session")
def ops() -> Callable[[Graph], list[str]]:
    """The operators of a graph's nodes, in order."""
    return lambda graph: [node.op_type for node in graph.nodes]


@pytest.fixture(scope="session")
def suite() -> Sequence[Any]:
    """ONNX's own test cases of single operators and their expansions."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases: Sequence[Any] = load_model_tests(kind="node")
    return cases


@pytest.fixture
def make_partition() -> Callable[..., GraphPartition]:
    """All of a graph of float32 values of a shape, as one partition.

    Each node is ``(operator, inputs, outputs)``, with ``None`` for what is left out.
    """

    def make(
        nodes: Sequence[tuple[str, tuple[str | None, ...], tuple[str | None, ...]],],
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, np.ndarray] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> GraphPartition:
        made = [name for _, _, names in nodes for name in names if name]
        graph = Graph(
            "test",
            inputs=inputs,
            outputs=outputs,
            nodes=[
                Node(op, takes, gives, name=f"node{index}")
                for index, (op, takes, gives) in enumerate(nodes)
            ],
            constants={
                name: Weight.from_array(array)
                for name, array in (constants or {}).items()
            },
            types=dict.fromkeys([*inputs, *made], TensorType(DataType.FLOAT32, shape)),
            opset_imports={"": 21},
        )
        return GraphPartition(graph, graph.nodes)

    return make
