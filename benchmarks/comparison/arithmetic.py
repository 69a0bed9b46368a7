"""How much arithmetic the nodes of a model have, and which share an EP computes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import helper

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


def products(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Operations of a node's sums of products, a multiplication and an addition as two;
    0 for other operators, and where a size that it takes is not known."""
    named = [name for name in (*node.input[:2], node.output[0]) if name]
    count = _PRODUCTS.get(node.op_type)
    is_known = all(name in shapes for name in named)
    return 2 * count(node, shapes) if count is not None and is_known else 0


def operations(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Operations of a node: those of its products, or else one for each element of its
    largest result, or of what it reduces to that."""
    is_reducing = node.op_type.startswith(("Reduce", "Arg")) or "Pool" in node.op_type
    named = (*node.output, *node.input[:is_reducing])
    arrays = [shapes[name] for name in named if name in shapes]
    return products(node, shapes) or max(map(math.prod, arrays), default=0)


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    found = [each for each in node.attribute if each.name == name]
    return helper.get_attribute_value(found[0]) if found else default


def _convolution(node: onnx.NodeProto, shapes: Shapes) -> int:
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _transposed_convolution(node: onnx.NodeProto, shapes: Shapes) -> int:
    return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


def _product(node: onnx.NodeProto, shapes: Shapes) -> int:
    given = shapes[node.input[0]]
    depth = given[0] if _attribute(node, "transA") else given[-1]
    return math.prod(shapes[node.output[0]]) * depth


def _attention(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Scores and their sums of values, of all keys: also of those that are masked."""
    query, key = shapes[node.input[0]], shapes[node.input[1]]
    past = node.input[4] if len(node.input) > 4 else ""
    keys = key[-2] + (shapes[past][-2] if past else 0)
    return keys * (math.prod(query) + math.prod(shapes[node.output[0]]))


def _recurrent(node: onnx.NodeProto, shapes: Shapes) -> int:
    given, *weights = (shapes.get(name, (0,)) for name in node.input[:3])
    steps = math.prod(given[:2])  # of all rows, in either layout
    return steps * sum(math.prod(each) for each in weights)


_PRODUCTS: Mapping[str, Any] = {
    "Attention": _attention,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "GRU": _recurrent,
    "Gemm": _product,
    "LSTM": _recurrent,
    "MatMul": _product,
    "MatMulNBits": _product,
    "RNN": _recurrent,
}


def shapes_in_a_run(model: onnx.ModelProto, feeds: Feeds) -> Shapes:
    """The shapes of all values of the main graph, as the CPU EP finds them in a run."""
    import onnxplug

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    names = [name for node in whole.graph.node for name in node.output if name]
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxplug.InferenceSession(
        whole, options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, dict(feeds))
    shapes = {weight.name: tuple(weight.dims) for weight in whole.graph.initializer}
    shapes |= {name: array.shape for name, array in feeds.items()}
    return shapes | {
        name: array.shape
        for name, array in zip(names, found, strict=True)
        if isinstance(array, np.ndarray)
    }


class Shares(NamedTuple):
    """What an EP computes of a model by itself, rather than on the host.

    Attributes:
        nodes: of those whose results do not follow from shapes alone.
        arithmetic: of all nodes' operations.
    """

    nodes: float
    arithmetic: float


def shares(model: Path | onnx.ModelProto, feeds: Feeds, ep: str) -> Shares:
    """The shares of *ep*, with the CPU EP behind it.

    Raises:
        ValueError: the model has bodies of control flow, which are not counted.
    """
    import onnxplug

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prepared.onnx"
        options = onnxplug.SessionOptions()
        options.optimized_model_filepath = str(path)
        session = onnxplug.InferenceSession(
            model, options, providers=[ep, "CPUExecutionProvider"]
        )
        session.run(None, dict(feeds))
        prepared = onnx.load(path)
    return shares_of(session.explain().nodes, prepared, feeds, ep)


def shares_of(
    places: Sequence[Any], prepared: onnx.ModelProto, feeds: Feeds, ep: str
) -> Shares:
    """The same, of the *places* of the nodes of the model that was *prepared*."""
    nodes = prepared.graph.node
    if [each.name for each in places] != [each.name for each in nodes]:
        raise ValueError("the arithmetic of bodies of control flow is not counted")
    shapes = shapes_in_a_run(prepared, feeds)
    by_itself = [each.ep == ep and each.tier == "compiled" for each in places]
    counted = [
        is_there
        for each, is_there in zip(places, by_itself, strict=True)
        if each.ep != ep or "follows from shapes" not in each.note
    ]
    work = [operations(node, shapes) for node in nodes]
    there = sum(n for n, is_there in zip(work, by_itself, strict=True) if is_there)
    return Shares(sum(counted) / len(counted), there / sum(work))
