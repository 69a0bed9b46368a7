"""How much work nodes are, in a few kinds of which EPs have rates.

Of nodes whose shapes are not known nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.ep.graph import Graph, Node

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}

_CURVES: Final = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Elu"),
        *("Erf", "Exp", "Gelu", "Log", "LogSoftmax", "Mish", "Pow", "Sigmoid", "Sin"),
        *("Sinh", "Softmax", "Softplus", "Swish", "Tan", "Tanh"),
    }
)
"""Operators that compute a function of each element that is no polynomial."""

_FEW: Final = 16
"""Channels in or out of a group of a convolution that are too few to fill registers."""

_FEWEST: Final = 4
"""Channels of a group that are a handful."""

_INDEXING: Final = frozenset(
    {
        *("CumSum", "Gather", "GatherElements", "GatherND", "GridSample", "Resize"),
        *("RoiAlign", "ScatterElements", "ScatterND", "TopK", "Upsample"),
    }
)
"""Operators that read or write elements one by one, at places that they compute."""


class Work(Record):
    """What nodes have to do.

    Attributes:
        conv, narrow, grouped, depthwise: multiplications and additions of convolutions:
            plain ones, those of few channels in or out, those of a handful in a group,
            and of one.
        product: those of products of matrices, attention included.
        recurrent: those of recurrent layers.
        window: elements that pools and such read, each as often as windows have it.
        curve: elements of which functions such as ``Exp`` are computed.
        indexed: elements that are read or written one by one.
        nbytes: of what all other nodes read and write.
        nodes: how many they are.
    """

    conv: float = 0.0
    narrow: float = 0.0
    grouped: float = 0.0
    depthwise: float = 0.0
    product: float = 0.0
    recurrent: float = 0.0
    window: float = 0.0
    curve: float = 0.0
    indexed: float = 0.0
    nbytes: float = 0.0
    nodes: float = 0.0


def work_of(graph: Graph, node: Node) -> Work | None:
    """The work of *node*; ``None`` if shapes are not known, or it has bodies."""
    if node.subgraphs:
        return None
    taken = [_sizes(graph, name) for name in node.inputs if name]
    made = [_sizes(graph, name) for name in node.outputs if name]
    if any(sizes is None for sizes in (*taken, *made)):
        return None
    inputs = [sizes for sizes in taken if sizes is not None]
    outputs = [sizes for sizes in made if sizes is not None]
    count = sum(map(math.prod, outputs))
    kind = _heavy(node, inputs, outputs)
    if kind is not None:
        return Work(**kind, nodes=1.0)
    if "Pool" in node.op_type:
        kernel = node.attributes.get("kernel_shape")
        each = math.prod(kernel) if kernel else math.prod(inputs[0]) / max(count, 1)
        return Work(window=count * each, nodes=1.0)
    if node.op_type in having("reshapes") or node.op_type in having("shape_only"):
        return Work(nodes=1.0)
    if node.op_type in _INDEXING:
        most = max(math.prod(inputs[-1]) if inputs else 0, count)
        return Work(indexed=float(most), nodes=1.0)
    names = filter(None, (*node.inputs, *node.outputs))
    nbytes = sum(_nbytes(graph, name) for name in names)
    curve = count if node.op_type in _CURVES else 0
    return Work(curve=float(curve), nbytes=float(nbytes), nodes=1.0)


def _heavy(
    node: Node, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> Mapping[str, float] | None:
    """What a heavy node multiplies and adds; ``None`` if it is none, or not known."""
    if not inputs or not outputs:
        return None
    op, count = node.op_type, math.prod(outputs[0])
    if "Conv" in op and len(inputs) > 1 and len(inputs[1]) > 2:
        weight = inputs[1]
        transposed = "Transpose" in op
        each = math.prod(weight[1:])
        operations = 2.0 * (math.prod(inputs[0]) if transposed else count) * each
        groups = node.attributes.get("group", 1)
        summed, given = weight[1], weight[0] // groups
        if transposed:
            summed, given = given, summed
        if min(summed, given) > _FEW:
            return {"conv": operations}
        if groups == 1 or summed > _FEWEST:
            return {"narrow": operations}
        return {"depthwise" if summed == 1 else "grouped": operations}
    if "MatMul" in op or op == "Gemm":
        inner = inputs[0][0 if node.attributes.get("transA", 0) else -1 :][:1]
        return {"product": 2.0 * count * math.prod(inner)}
    if op in _GATES and len(inputs) > 2:
        steps, batch = inputs[0][:2]
        each = math.prod(inputs[1]) + math.prod(inputs[2])
        return {"recurrent": 2.0 * steps * batch * each}
    if "Attention" in op and len(inputs) > 1:
        length = inputs[1][-2] if len(inputs[1]) > 1 else 1
        return {"product": 4.0 * math.prod(inputs[0]) * length}
    return None


def _sizes(graph: Graph, name: str) -> tuple[int, ...] | None:
    shape = graph.value(name).shape
    if shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return tuple(sizes) if len(sizes) == len(shape) else None


def _nbytes(graph: Graph, name: str) -> float:
    value = graph.value(name)
    sizes = _sizes(graph, name)
    bits = 32 if value.dtype is None else value.dtype.bits
    return math.prod(sizes or ()) * bits / 8
