"""Nodes whose results do not depend on what is fed become constants.

Core has no arithmetic: an :data:`Evaluate` computes.  Sizes of values are the
exception: what shapes tell is followed by :mod:`~onnxplug.shapes.values`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.ep import DataType, TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.graph.scopes import Names, all_graphs
from onnxplug.prepare.budget import Budget
from onnxplug.prepare.constants import make_constant
from onnxplug.prepare.report import Skipped
from onnxplug.shapes.facts import Facts, NodeCall, Scope, array_of
from onnxplug.shapes.target import target_in_numbers
from onnxplug.shapes.values import contents

Evaluate: TypeAlias = Callable[[Graph, Node], "Sequence[np.ndarray[Any, Any]] | None"]
"""Computes one node whose inputs are all constants; None if it cannot.

One array per output of the node; what it returns for an output that nobody wants is
not looked at.  It may raise :class:`NotFolded`.
"""


class NotFolded(Exception):
    """Why a node of constants is not computed ahead; it never leaves this pass."""


LARGE: Final = 1 << 20
"""Bytes above which a result has to be no larger than what it is made from."""

_KEPT: Final = (
    having("random")
    | having("dequantize")
    # constants are tensors, whatever kind of array an EP makes of these
    | having("container")
    | having("container", "ai.onnx.ml")
)

PURE_DOMAINS: Final = frozenset({"", "ai.onnx.ml"})
"""Domains whose operators are known to have no effect but their outputs."""


def is_random(graph: Graph, node: Node) -> bool:
    """Whether *node* may give another result each time; a training Dropout may."""
    if node.op_type != "Dropout":
        return node.op_type in having("random")
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        training = graph.constant(node.inputs[2])
        return training is None or bool(training.any())
    return graph.opset() < 7 and not node.attributes.get("is_test", 0)


def fold(
    graph: Graph, evaluate: Evaluate | None, budget: Budget | None = None
) -> list[str]:
    """Replace nodes of *graph* and of bodies within by constants.

    Args:
        evaluate: ``None`` folds only what follows from shapes.
        budget: what computing constants may cost; it records what is left as it is.

    Returns:
        The nodes that were replaced, described in words.
    """
    budget = budget or Budget()
    budget.measure(graph)
    budget.skipped.clear()
    folded: list[str] = []
    scope = Scope(_NEVER_WRITTEN)
    names = _NewNames(graph)
    facts: dict[int, Facts] = {}
    for each in all_graphs(graph):
        around = facts.get(id(each.parent))
        facts[id(each)] = Facts(each, scope, around)
        folded += _Folding(facts[id(each)], evaluate, budget, names).fold()
    return folded


_NEVER_WRITTEN: Final = 1 << 32
"""Number of the first made-up name, above those that types have."""


class _NewNames:
    """Names for new values of *graph*, which is read when the first is asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: Names | None = None

    def fresh(self, name: str) -> str:
        if self._names is None:
            self._names = Names(self._graph)
        return self._names.fresh(name)


class _Folding:
    """The folding of one graph, without the bodies within."""

    def __init__(
        self,
        facts: Facts,
        evaluate: Evaluate | None,
        budget: Budget,
        names: _NewNames,
    ) -> None:
        self._facts = facts
        self._graph = facts.graph
        self._evaluate = evaluate
        self._budget = budget
        self._names = names
        # names of values whose contents shapes tell, at least in part
        self._told: set[str] = set()
        # how often what was computed here is still to be read; of outputs once more
        self._reads: Counter[str] | None = None
        self._made: set[str] = set()

    def fold(self) -> list[str]:
        """Replace what can be; the nodes replaced, in words."""
        graph = self._graph
        opset = graph.opset()
        kept: list[Node] = []
        folded: list[str] = []
        for node in (_cast_if_known(graph, node) for node in graph.nodes):
            call = NodeCall(node, self._facts, opset)
            results = _from_shapes(call, self._told)
            if results is None and self._evaluate is not None:
                results = self._computed(call, self._evaluate)
            if results is None:
                kept.append(node)
                changed = _with_numbers(call, self._names)
                if changed is not None:
                    folded.append(changed)
                continue
            for name, array in zip(node.outputs, results, strict=True):
                if name is not None:
                    make_constant(graph, name, Weight.from_array(array))
                    self._facts.values.pop(name, None)
            folded.append(describe(node))
        if folded or kept != graph.nodes:
            graph.replace_nodes(kept)
        return folded

    def _computed(
        self, call: NodeCall, evaluate: Evaluate
    ) -> list[np.ndarray[Any, Any]] | None:
        """What an EP computes, if it can and may."""
        node, budget = call.node, self._budget
        if not _may_compute(self._graph, node):
            return None
        budget.check()
        try:
            if node in budget.failed:
                raise NotFolded(budget.failed[node])
            _check_cost(call, budget)
            try:
                with budget.timed():
                    results = _accepted(self._graph, node, evaluate(self._graph, node))
            except NotFolded as error:
                budget.failed[node] = str(error)
                raise
        except NotFolded as error:
            budget.skipped.append(Skipped(describe(node), str(error)))
            return None
        self._keep(node, results)
        return results

    def _keep(self, node: Node, results: Sequence[np.ndarray[Any, Any]]) -> None:
        """Note what is kept, and drop what was computed only to compute this."""
        graph = self._graph
        if self._reads is None:
            self._reads = Counter(graph.outputs)
            for name, users in graph.uses().items():
                self._reads[name] += len(users)
        for made, array in zip(node.outputs, results, strict=True):
            if made is not None:
                self._made.add(made)
                self._budget.keep(array.nbytes)
        for read in {name for name in node.inputs if name}:
            self._reads[read] -= 1
            if read in self._made and not self._reads[read]:
                self._budget.keep(-graph.constants.pop(read).array.nbytes)
                del graph.types[read]


# results that an EP computes


def _may_compute(graph: Graph, node: Node) -> bool:
    """Whether *node* gives the same tensors each time, from constants."""
    if node.op_type in _KEPT or node.domain not in PURE_DOMAINS or node.subgraphs:
        return False
    weights = [graph.weight(name) for name in node.inputs if name is not None]
    if not weights or any(weight is None for weight in weights):
        return False
    if is_random(graph, node):
        return False
    types = (graph.value(name).type for name in node.outputs if name)
    return all(type is None or isinstance(type, TensorType) for type in types)


def _check_cost(call: NodeCall, budget: Budget) -> None:
    """Check that the node of *call* may be computed.

    Raises:
        NotFolded: it would take too much memory or time, or nobody knows.
    """
    from onnxplug.prepare.estimate import expected, work

    limits = budget.limits
    if not budget.has_time():
        raise NotFolded("the time for computing constants was spent")
    text = _text_read(call, limits.text)
    if text > limits.text:
        raise NotFolded(
            f"it reads texts of more than {limits.text} characters and elements"
        )
    found = expected(call)
    if found is None:
        if text and call.node.op_type in having("text"):
            return
        raise NotFolded("the size of its result is not known before it is computed")
    _check_room(call.facts.graph, call.node, found.nbytes, budget)
    needed = work(call, found.size, limits.work)
    if needed > limits.work:
        raise NotFolded(f"it may take {needed:,} multiplications")


def _text_read(call: NodeCall, enough: int) -> int:
    """Characters and elements of the texts that are read; 0 if none are."""
    total = 0
    for name in filter(None, call.node.inputs):
        weight = call.facts.graph.weight(name)
        if weight is not None and weight.dtype is DataType.STRING:
            total += weight.size
            if total <= enough:
                total += sum(map(len, weight.array.flat))
    return total


def _check_room(graph: Graph, node: Node, nbytes: int, budget: Budget) -> None:
    if _is_too_large(graph, node, nbytes):
        raise NotFolded(f"its result has {nbytes:,} bytes, more than what it reads")
    if not budget.has_room(nbytes):
        raise NotFolded("the memory for computed constants was used up")


def _cast_if_known(graph: Graph, node: Node) -> Node:
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
    cast = Node(
        "Cast",
        (source,),
        node.outputs,
        attributes,
        name=node.name,
        made_of=(node,),
    )
    cast.graph, cast.index = graph, node.index
    return cast


def _is_too_large(graph: Graph, node: Node, nbytes: int) -> bool:
    if nbytes <= LARGE:
        return False
    weights = (graph.weight(name) for name in dict.fromkeys(node.inputs) if name)
    return nbytes > sum(weight.nbytes for weight in weights if weight is not None)


def _accepted(
    graph: Graph, node: Node, results: Sequence[Any] | None
) -> list[np.ndarray[Any, Any]]:
    """*results* as arrays of our own, one per output.

    Raises:
        NotFolded: they are unsuitable.
    """
    if results is None:
        raise NotFolded("no EP on the host computes it")
    if len(results) < len(node.outputs):
        raise NotFolded(f"it gave {len(results)} results of {len(node.outputs)}")
    wanted = [
        (name, result)
        for name, result in zip(node.outputs, results, strict=False)
        if name is not None
    ]
    if not all(isinstance(result, np.ndarray) for _, result in wanted):
        # a sequence, a map or an absent optional
        raise NotFolded("its result is no tensor")
    nbytes = sum(result.nbytes for _, result in wanted)
    if _is_too_large(graph, node, nbytes):
        raise NotFolded(f"its result has {nbytes:,} bytes, more than what it reads")
    # results may share memory with inputs or each other, which the weights then keep
    return [
        np.array(result) if name is not None else np.empty(0)
        for name, result in zip(node.outputs, results, strict=False)
    ]


# results that shapes tell


def _from_shapes(call: NodeCall, known: set[str]) -> list[np.ndarray[Any, Any]] | None:
    """The results of a node if they are numbers that shapes tell.

    Args:
        known: names of values whose contents shapes tell, at least in part; grows.
    """
    node = call.node
    if node.op_type not in having("shape_only") and known.isdisjoint(node.inputs):
        return None
    found = contents(call)
    if found is None or len(found) != len(node.outputs):
        return None
    for name, content in zip(node.outputs, found, strict=True):
        if name is not None:
            call.facts.contents[name] = content
            known.add(name)
    arrays = [array for array in map(array_of, found) if array is not None]
    return arrays if len(arrays) == len(found) else None


def _with_numbers(call: NodeCall, names: _NewNames) -> str | None:
    """Let a Reshape have a constant for a target of which shapes tell enough.

    Args:
        names: where a new name is to be had.

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
    target = names.fresh(f"{node.outputs[0]}_target")
    graph.add_constant(target, Weight.from_array(np.array(numbers, np.int64)))
    node.inputs = (node.inputs[0], target)
    return f"target of {describe(node)}"
