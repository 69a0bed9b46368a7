"""Whether a whole model computes each position of a dimension by itself."""

from __future__ import annotations

import os
from typing import Any

from onnxplug.graph import Graph
from onnxplug.graph.load import load_model
from onnxplug.options import SessionOptions
from onnxplug.partition import GraphPartition
from onnxplug.plugins import registry
from onnxplug.prepare import prepare
from onnxplug.shapes.symbols import forget
from onnxplug.specialise.positions import Mixed, axes_of_positions

__all__ = ["IndependentPositions", "Mixed"]


class IndependentPositions:
    """Asks a model which of its dimensions may be longer or shorter, or several joined,
    without another result for any position.

    Args:
        model: a path, bytes, or an ``onnx.ModelProto``.

    Raises:
        ModelError: it cannot be loaded.
    """

    def __init__(self, model: str | os.PathLike[str] | bytes | Any) -> None:
        options = SessionOptions()
        loaded = load_model(model)
        # a name is one size in a run: who joins feeds has to see to that
        forget(loaded.graph, (), loaded.functions.values())
        loaded.graph.plugins = registry
        loaded.graph.domains = options.domains
        loaded.graph.entries = options.config
        prepare(loaded, evaluate=None)
        self._graph = _with_types(loaded.graph)

    def axes(self, dimension: str) -> dict[str, int]:
        """The axis that *dimension* is in each input and output that has it.

        Raises:
            Mixed: it is not proven that positions are computed by themselves; the text
                says why.
        """
        graph = self._graph
        return axes_of_positions(graph, graph.inputs, graph.outputs, dimension)


def _with_types(graph: Graph) -> Graph:
    """*graph* with types that follow from operators, whatever the model declares."""
    return GraphPartition(graph, graph.nodes).for_shapes({}).graph
