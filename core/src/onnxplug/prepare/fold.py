"""Nodes whose results do not depend on what is fed become constants.

Core has no arithmetic: an :data:`Evaluate` computes.  Sizes of values are the
exception: what shapes tell is followed by :mod:`~onnxplug.prepare.symbolic.values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.ep import TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.prepare.constants import make_constant
from onnxplug.prepare.instantiate import describe
from onnxplug.prepare.scopes import Names, all_graphs
from onnxplug.prepare.symbolic.facts import Facts, NodeCall, Scope
from onnxplug.prepare.symbolic.target import target_in_numbers
from onnxplug.prepare.symbolic.values import contents

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
    scope = Scope(_NEVER_WRITTEN)
    facts: dict[int, Facts] = {}
    for each in all_graphs(graph):
        around = facts.get(id(each.parent))
        facts[id(each)] = Facts(each, scope, around)
        folded += _fold(facts[id(each)], evaluate)
    return folded


_NEVER_WRITTEN: Final = 1 << 32
"""Number of the first made-up name, above those that types have."""


def _fold(facts: Facts, evaluate: Evaluate | None) -> list[str]:
    graph = facts.graph
    opset = graph.opset()
    kept: list[Node] = []
    folded: list[str] = []
    told: set[str] = set()
    for node in (_settled(graph, node) for node in graph.nodes):
        call = NodeCall(node, facts, opset)
        results = _from_shapes(call, told)
        if results is None and evaluate is not None and _may_compute(graph, node):
            results = _accepted(graph, node, evaluate(graph, node))
        if results is None:
            kept.append(node)
            changed = _with_numbers(call)
            if changed is not None:
                folded.append(changed)
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


def _from_shapes(call: NodeCall, told: set[str]) -> list[np.ndarray[Any, Any]] | None:
    """The results of a node if they are numbers that shapes tell.

    Args:
        told: names of values whose contents shapes tell, at least in part; grows.
    """
    node = call.node
    if node.op_type not in ("Shape", "Size") and told.isdisjoint(node.inputs):
        return None
    found = contents(call)
    if found is None or len(found) != len(node.outputs):
        return None
    for name, content in zip(node.outputs, found, strict=True):
        if name is not None:
            call.facts.contents[name] = content
            told.add(name)
    if not all(
        isinstance(element, int) for content in found for element in content.elements
    ):
        return None
    return [
        np.array(content.elements, content.dtype.numpy).reshape(
            () if content.is_scalar else -1
        )
        for content in found
    ]


def _with_numbers(call: NodeCall) -> str | None:
    """Let a Reshape have a constant for a target of which shapes tell enough.

    Returns:
        What was done, in words.
    """
    node, graph = call.node, call.facts.graph
    if node.op_type != "Reshape" or node.domain or len(node.inputs) != 2:
        return None
    name = node.inputs[1]
    content = call.content(1)
    if content is None or content.is_scalar or name is None or graph.weight(name):
        return None
    numbers = target_in_numbers(
        call.value(0).shape, content.elements, bool(call.attribute("allowzero", 0))
    )
    if numbers is None:
        return None
    target = Names(graph).fresh(f"{node.outputs[0]}_target")
    graph.add_constant(target, Weight.from_array(np.array(numbers, np.int64)))
    node.inputs = (node.inputs[0], target)
    return f"target of {describe(node)}"
