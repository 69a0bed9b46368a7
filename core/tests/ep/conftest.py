"""Small graphs, and all of one as a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Graph, Node, Weight
from onnxplug.partition import GraphPartition

MakePartition = Callable[..., GraphPartition]


@pytest.fixture
def make_partition() -> MakePartition:
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
