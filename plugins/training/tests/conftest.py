"""Models from ONNX's text form, and what they compute by ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxplug.graph import Graph, Model
from onnxplug.graph.export import export_graph
from onnxplug.graph.load import load_model


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Model]:
    """Loads a model from its text."""
    return lambda text: load_model(onnx.parser.parse_model(text))


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
def ops() -> Callable[[Graph], list[str]]:
    """The operators of a graph's nodes, in order."""
    return lambda graph: [node.op_type for node in graph.nodes]
