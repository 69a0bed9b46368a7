"""The rules for one node whose inputs have sizes in numbers, without a graph.

What EPs ask while they plan, once for each node, so it has to be quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.bounds import MOST_ELEMENTS
from onnxplug.ep import TensorFacts
from onnxplug.graph import Node
from onnxplug.shapes.facts import (
    COUNTS,
    FEW,
    UNKNOWN,
    Content,
    Fact,
    NodeCall,
    Scope,
    Value,
    array_of,
    elements_of,
)
from onnxplug.shapes.rules import find_rule, followed

if TYPE_CHECKING:
    import numpy as np

MOST_READ: Final = 1 << 12
"""Elements of an input that a rule reads; there may be as many pieces of a Split."""

Given = Sequence[TensorFacts | None]


def infer(node: Node, inputs: Given, opset: int) -> Given:
    """What follows for the outputs of *node*; see :meth:`onnxplug.ep.Partition.infer`.

    Args:
        opset: version of ONNX's operators in the graph.

    Raises:
        OutOfBounds: the node cannot run; the error names it.
    """
    rule = find_rule(node.domain, node.op_type)
    if rule is None and node.graph is not None:
        from onnxplug.shapes.inference import rule_of

        rule = rule_of(node.graph, node)
    if rule is None:
        return ()
    call = _ConcreteCall(node, inputs, opset)
    found = [_in_numbers(fact) for fact in followed(call, rule)]
    if not node.domain and _all_few(found):
        from onnxplug.shapes.values import contents  # of shapes, which few nodes give

        follow = contents(call) or ()
        for position, content in enumerate(follow[: len(found)]):
            value = found[position]
            if value is not None:
                found[position] = value._replace(content=array_of(content))
    return found


class _ConcreteCall(NodeCall):
    """A node, and what is said of its inputs by position."""

    __slots__ = ("_given", "_scope", "_values")

    def __init__(self, node: Node, given: Given, opset: int) -> None:
        # no call to the base class, which keeps what a graph knows instead
        self.node = node
        self.opset = opset
        self._given = given
        self._values = [
            UNKNOWN if each is None else Value(each.dtype, each.shape) for each in given
        ]
        self._scope: Scope | None = None

    @property
    def scope(self) -> Scope:
        """Where sizes that do not follow get names, which are nobody else's."""
        if self._scope is None:
            self._scope = Scope()
        return self._scope

    def _at(self, position: int) -> TensorFacts | None:
        return self._given[position] if position < len(self._given) else None

    def value(self, position: int = 0) -> Value:
        """What is known of an input; of one that is not there, nothing."""
        return self._values[position] if position < len(self._values) else UNKNOWN

    def fact(self, position: int = 0) -> Fact:
        """As :meth:`value`: nothing is said of what is no tensor."""
        return self.value(position)

    def values(self) -> list[Value]:
        """What is known of the inputs that are there."""
        inputs = self.node.inputs
        if None not in inputs and len(inputs) == len(self._values):
            return self._values
        return [self.value(at) for at, name in enumerate(inputs) if name is not None]

    def content(self, position: int = 0) -> Content | None:
        """The elements of an input of integers, if it is given, and not too large."""
        given = self._at(position)
        if given is None or given.content is None or given.dtype is None:
            return None
        if given.dtype not in COUNTS or len(given.shape) > 1:
            return None
        if given.shape and given.shape[0] > MOST_READ:
            return None
        return elements_of(given.content, given.dtype)

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """The elements of an input of any kind, if they are given."""
        given = self._at(position)
        return None if given is None else given.content


def _in_numbers(fact: Fact) -> TensorFacts | None:
    if type(fact) is not Value or fact.shape is None:
        return None
    for size in fact.shape:
        if not isinstance(size, int) or size < 0 or size > MOST_ELEMENTS:
            return None
    return TensorFacts(fact.dtype, fact.shape)  # type: ignore[arg-type]


def _all_few(found: Given) -> bool:
    """Whether all outputs are tensors that are followed element by element."""
    for value in found:
        if value is None or len(value.shape) > 1 or value.dtype not in COUNTS:
            return False
        if value.shape and value.shape[0] > FEW:
            return False
    return True
