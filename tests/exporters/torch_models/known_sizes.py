"""How many sizes of a model's values are known before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx

import onnxplug

MADE_UP: Final = "unk__"
"""In names of sizes of which nothing is known."""


def known_sizes(path: Path) -> tuple[int, int]:
    """How many sizes of values between nodes are numbers or follow from the inputs'
    sizes, and how many there are, when the model at *path* is prepared to run.

    What the exporter has declared of these values is left out.  A value of unknown
    rank counts as one size.
    """
    model = onnx.load(path)
    for holder in (*graphs(model.graph), *model.functions):
        del holder.value_info[:]
    options = onnxplug.SessionOptions()
    prepared = path.with_name("prepared.onnx")
    options.optimized_model_filepath = str(prepared)
    onnxplug.InferenceSession(model, options)
    known = total = 0
    for graph in graphs(onnx.load(prepared).graph):
        types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        for name in (name for node in graph.node for name in node.output if name):
            type = types.get(name, onnx.TypeProto())
            if type.WhichOneof("value") not in (None, "tensor_type"):
                continue  # a sequence, say, whose elements may have any size
            if not type.tensor_type.HasField("shape"):
                total += 1
                continue
            sizes = type.tensor_type.shape.dim
            total += len(sizes)
            known += sum(
                size.HasField("dim_value")
                or (size.dim_param != "" and MADE_UP not in size.dim_param)
                for size in sizes
            )
    return known, total


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """*graph* and the bodies within."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)
