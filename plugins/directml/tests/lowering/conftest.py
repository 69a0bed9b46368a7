"""Graphs of models that are written as text."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition
from onnxplug_directml.lowering.graph import Graph
from onnxplug_directml.lowering.lower import lower
from onnxplug_directml.lowering.target import Target

NEWEST = 0x6400


@pytest.fixture
def graph_of() -> Callable[[onnx.ModelProto], GraphPartition]:
    """All of a model as one partition."""

    def make(model: onnx.ModelProto) -> GraphPartition:
        graph = load_model(model.SerializeToString()).graph
        return GraphPartition(graph, graph.nodes)

    return make


@pytest.fixture
def whole(
    parse: Callable[..., onnx.ModelProto],
    graph_of: Callable[[onnx.ModelProto], GraphPartition],
) -> Callable[..., GraphPartition]:
    """As :func:`graph_of`, of a model's text, with the types that onnx infers."""

    def make(*arguments: str, **more: str | int) -> GraphPartition:
        return graph_of(onnx.shape_inference.infer_shapes(parse(*arguments, **more)))

    return make


@pytest.fixture
def lowered(whole: Callable[..., GraphPartition]) -> Callable[..., Graph]:
    """The graph of a model at a feature level."""

    def make(*arguments: str, level: int = NEWEST, **more: str | int) -> Graph:
        return lower(whole(*arguments, **more), Target(level))

    return make
