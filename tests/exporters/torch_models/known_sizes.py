"""How many sizes of a model's values are known before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

import onnxplug
from onnxplug.authoring.generated import GENERATED
from onnxplug.ep import DataType, TensorType
from onnxplug.graph.scopes import all_graphs


def known_sizes(path: Path) -> tuple[int, int]:
    """How many sizes of values between nodes are numbers or follow from the inputs'
    sizes, and how many there are, when the model at *path* is prepared to run.

    What the exporter has declared of these values is left out.  A value of unknown
    rank counts as one size.  A file that is written tells less: where it is run later,
    sizes of inputs need not be equal because their names are.
    """
    model = onnx.load(path)
    for holder in (*graphs(model.graph), *model.functions):
        del holder.value_info[:]
    session = onnxplug.InferenceSession(model)
    known = total = 0
    for graph in all_graphs(session._built.graph):
        for name in (name for node in graph.nodes for name in node.outputs if name):
            type_ = graph.value(name).type
            if type_ is None:
                type_ = TensorType(DataType.FLOAT32, None)
            if not isinstance(type_, TensorType):
                continue  # a sequence, say, whose elements may have any size
            if type_.shape is None:
                total += 1
                continue
            total += len(type_.shape)
            known += sum(
                size is not None and GENERATED not in str(size) for size in type_.shape
            )
    return known, total


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """*graph* and the bodies within."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)
