"""Nodes whose results do not depend on what is fed become constants.

Core has no arithmetic: an :data:`Evaluate` computes.  Sizes of values are the
exception; what an inferred shape says is only written down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.ep import DataType, Dimension, TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.prepare.constants import make_constant
from onnxplug.prepare.instantiate import describe
from onnxplug.prepare.scopes import all_graphs

Evaluate: TypeAlias = Callable[[Graph, Node], "Sequence[np.ndarray[Any, Any]] | None"]
"""Computes one node whose inputs are all constants; None if it cannot.

One array per output of the node; what it returns for an output that nobody wants is
not looked at.
"""

LARGE: Final = 1 << 20
"""Bytes above which a result has to be no larger than what it is made from."""

RANDOM: Final = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""ONNX's operators that need not give the same result twice; see also
:func:`is_random`."""

_KEPT: Final = RANDOM | {
    # integer weights and their scale are a pattern that EPs run as integers
    "DequantizeLinear",
    # constants are tensors, whatever kind of array an EP makes of these
    "Optional",
    "SequenceConstruct",
    "SplitToSequence",
    "ZipMap",
}

PURE_DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
"""Domains whose operators are known to have no effect but their outputs."""


def is_random(graph: Graph, node: Node) -> bool:
    """Whether *node* may give another result each time; a training Dropout may."""
    if node.op_type != "Dropout":
        return node.op_type in RANDOM
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        training = graph.constant(node.inputs[2])
        return training is None or bool(training.any())
    return graph.opset() < 7 and not node.attributes.get("is_test", 0)


def fold(graph: Graph, evaluate: Evaluate | None) -> list[str]:
    """Replace nodes of *graph* and of bodies within by constants.

    Args:
        evaluate: ``None`` folds only what follows from shapes.

    Returns:
        The nodes that were replaced, described in words.
    """
    folded: list[str] = []
    for each in all_graphs(graph):
        folded += _fold(each, evaluate)
    return folded


def _fold(graph: Graph, evaluate: Evaluate | None) -> list[str]:
    kept: list[Node] = []
    folded: list[str] = []
    sizes: dict[str, tuple[Dimension, ...]] = {}
    for node in (_settled(graph, node) for node in graph.nodes):
        results = _from_sizes(graph, node, sizes)
        if results is None and evaluate is not None and _may_compute(graph, node):
            results = _accepted(graph, node, evaluate(graph, node))
        if results is None:
            kept.append(node)
            continue
        for name, array in zip(node.outputs, results, strict=True):
            if name is not None:
                make_constant(graph, name, Weight.from_array(array))
        folded.append(describe(node))
    if folded or kept != graph.nodes:
        graph.replace_nodes(kept)
    return folded


# results that an EP computes


def _may_compute(graph: Graph, node: Node) -> bool:
    if node.op_type in _KEPT or node.domain not in PURE_DOMAINS or node.subgraphs:
        return False
    weights = [graph.weight(name) for name in node.inputs if name is not None]
    if not weights or any(weight is None for weight in weights):
        return False
    if is_random(graph, node):
        return False
    expected = 0
    for name in filter(None, node.outputs):
        type = graph.value(name).type
        if type is not None and not isinstance(type, TensorType):
            return False
        expected += _nbytes(type)
    return not _is_too_large(graph, node, expected)


def _settled(graph: Graph, node: Node) -> Node:
    """A Cast in place of a CastLike of a constant, if the element type is known.

    The bodies of ONNX's own functions cast their constants to the type of an input.
    """
    if node.op_type != "CastLike" or node.domain or len(node.inputs) != 2:
        return node
    source, like = (name or "" for name in node.inputs)
    dtype = graph.value(like).dtype
    if dtype is None or graph.weight(source) is None:
        return node
    to = Attribute(AttributeType.INT, dtype.onnx)
    attributes = {**node.typed_attributes, "to": to}
    cast = Node("Cast", (source,), node.outputs, attributes, name=node.name)
    cast.graph, cast.index = graph, node.index
    return cast


def _nbytes(type: TensorType | None) -> int:
    """Bytes that a value takes; 0 when that is not known."""
    if type is None or type.dtype is None or type.shape is None:
        return 0
    sizes = [size for size in type.shape if isinstance(size, int)]
    if len(sizes) != len(type.shape):
        return 0
    return (math.prod(sizes) * type.dtype.bits + 7) // 8


def _is_too_large(graph: Graph, node: Node, nbytes: int) -> bool:
    if nbytes <= LARGE:
        return False
    weights = (graph.weight(name) for name in dict.fromkeys(node.inputs) if name)
    return nbytes > sum(weight.nbytes for weight in weights if weight is not None)


def _accepted(
    graph: Graph, node: Node, results: Sequence[Any] | None
) -> list[np.ndarray[Any, Any]] | None:
    """*results* as arrays of our own, one per output, or None if unsuitable."""
    if results is None or len(results) < len(node.outputs):
        return None
    wanted = [
        (name, result)
        for name, result in zip(node.outputs, results, strict=False)
        if name is not None
    ]
    if not all(isinstance(result, np.ndarray) for _, result in wanted):
        return None  # a sequence, a map or an absent optional
    if _is_too_large(graph, node, sum(result.nbytes for _, result in wanted)):
        return None
    # results may share memory with inputs or each other, which the weights then keep
    return [
        np.array(result) if name is not None else np.empty(0)
        for name, result in zip(node.outputs, results, strict=False)
    ]


# results that shapes tell


def _from_sizes(
    graph: Graph, node: Node, sizes: dict[str, tuple[Dimension, ...]]
) -> list[np.ndarray[Any, Any]] | None:
    """The result of *node* if it is numbers that shapes tell.

    Args:
        sizes: what is known of values that hold sizes, some of which may have a name
            only; grows.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain or len(node.outputs) != 1:
        return None
    content = rule(graph, node, sizes)
    if content is None or node.outputs[0] is None:
        return None
    if isinstance(content, tuple):
        sizes[node.outputs[0]] = content
        if not all(isinstance(size, int) for size in content):
            return None
    elif not isinstance(content, int):
        return None
    return [np.array(content, np.int64)]


_Content: TypeAlias = "tuple[Dimension, ...] | Dimension"
_Sizes: TypeAlias = dict[str, tuple[Dimension, ...]]


def _shape(graph: Graph, node: Node, sizes: _Sizes) -> _Content:
    shape = graph.value(node.inputs[0] or "").shape
    if shape is None:
        return None
    # start and end count from the back when negative and are clamped, as slices are
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return shape[start:end]


def _size(graph: Graph, node: Node, sizes: _Sizes) -> _Content:
    shape = graph.value(node.inputs[0] or "").shape
    if shape is None:
        return None
    known = [size for size in shape if isinstance(size, int)]
    return math.prod(known) if len(known) == len(shape) else None


def _cast(graph: Graph, node: Node, sizes: _Sizes) -> _Content:
    if node.attributes.get("to") != DataType.INT64.onnx:
        return None
    return sizes.get(node.inputs[0] or "")


def _gather(graph: Graph, node: Node, sizes: _Sizes) -> _Content:
    content = sizes.get(node.inputs[0] or "")
    indices = graph.constant(node.inputs[1] or "")
    if content is None or indices is None or indices.ndim > 1:
        return None
    chosen = indices.reshape(-1).tolist()
    if not all(-len(content) <= index < len(content) for index in chosen):
        return None
    picked = tuple(content[index] for index in chosen)
    return picked if indices.ndim else picked[0]


def _slice(graph: Graph, node: Node, sizes: _Sizes) -> _Content:
    content = sizes.get(node.inputs[0] or "")
    if content is None or graph.opset() < 10:
        return None
    bounds: list[int] = []
    for position, default in ((1, None), (2, None), (3, 0), (4, 1)):
        name = node.inputs[position] if position < len(node.inputs) else None
        value = default if name is None else _single(graph, name)
        if value is None:
            return None
        bounds.append(value)
    start, end, _, step = bounds  # there is but one axis
    return content[start:end:step] if step > 0 else None


def _single(graph: Graph, name: str) -> int | None:
    value = graph.constant(name)
    return int(value[0]) if value is not None and value.shape == (1,) else None


_RULES: Final[dict[str, Callable[[Graph, Node, _Sizes], _Content]]] = {
    "Cast": _cast,
    "Gather": _gather,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
}
