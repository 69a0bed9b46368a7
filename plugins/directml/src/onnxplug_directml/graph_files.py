"""Graphs of DirectML as files, to look at what is compiled.

ONNX Runtime's ``ep.dml.enable_graph_serialization`` writes the graph of each partition
beside the model, as ``Partition_<n>.bin`` in a format of its own; here it is JSON, with
the constants beside it in numpy's format.  Nothing reads them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug_directml.lowering.graph import Graph, Node, Operator, TensorDesc


class GraphFiles:
    """Writes the graphs of a session.

    Args:
        model_path: beside which; ``None``: in the current directory.
    """

    def __init__(self, model_path: Path | None) -> None:
        self._folder = Path.cwd() if model_path is None else model_path.parent
        self._stem = "" if model_path is None else f"{model_path.stem}."
        self._count = 0

    def write(self, graph: Graph) -> Path:
        """Write *graph*; the file of what it says.

        Raises:
            OSError: it cannot be written.
        """
        name = f"{self._stem}Partition_{self._count}"
        self._count += 1
        constants = {
            f"input_{place}": each.constant
            for place, each in enumerate(graph.inputs)
            if each.constant is not None
        }
        if constants:
            np.savez(self._folder / f"{name}.npz", **constants)
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(described(graph), indent=1) + "\n", "utf-8")
        return path


def described(graph: Graph) -> Mapping[str, Any]:
    """*graph* as JSON has it; constants are named, not contained."""
    return {
        "inputs": [
            {
                "name": each.name,
                "tensor": _value(each.tensor),
                "constant": each.constant is not None,
            }
            for each in graph.inputs
        ],
        "outputs": [
            {"name": each.name, "tensor": _value(each.tensor)} for each in graph.outputs
        ],
        "nodes": [_node(each) for each in graph.nodes],
        "input_edges": _edges(graph.input_edges),
        "intermediate_edges": _edges(graph.intermediate_edges),
        "output_edges": _edges(graph.output_edges),
    }


def _node(node: Node) -> Mapping[str, Any]:
    return {"name": node.name, **_operator(node.operator)}


def _operator(operator: Operator) -> dict[str, Any]:
    written = {name: _value(value) for name, value in operator.fields.items()}
    return {"type": operator.type.name, "fields": written}


def _value(value: Any) -> Any:
    match value:
        case TensorDesc():
            strides = None if value.strides is None else list(value.strides)
            return {
                "data_type": value.data_type.name,
                "sizes": list(value.sizes),
                "strides": strides,
            }
        case Operator():
            return _operator(value)
        case tuple():
            return [_value(each) for each in value]
    return value


def _edges(edges: Sequence[Any]) -> list[dict[str, int]]:
    return [
        {field.name: getattr(edge, field.name) for field in fields(edge)}
        for edge in edges
    ]
