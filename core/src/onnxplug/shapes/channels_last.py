"""Types of operators with channels last, by the rules of those with channels first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from onnxplug.layout import (
    NHWC_OPERATORS,
    PER_AXIS,
    channels_first,
    channels_last,
    permuted,
)
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import Content, Fact, NodeCall, Scope, Value
from onnxplug.shapes.rules import find_rule

if TYPE_CHECKING:
    import numpy as np


class _ChannelsFirst(NodeCall):
    """A call with channels last as ONNX's rules see it."""

    __slots__ = ("_call",)

    def __init__(self, call: NodeCall) -> None:
        # no call to the base class: the facts are asked for by way of *call*
        self.node = call.node
        self.opset = call.opset
        self._call = call

    @property
    def scope(self) -> Scope:
        """Where sizes get names."""
        return self._call.scope

    def value(self, position: int = 0) -> Value:
        """What is known of an input, the first one transposed."""
        dtype, shape = self._call.value(position)
        if position or shape is None:
            return Value(dtype, shape)
        return Value(dtype, permuted(shape, channels_first(len(shape))))

    def fact(self, position: int = 0) -> Fact:
        """As :meth:`value`, of what need not be a tensor."""
        fact = self._call.fact(position)
        return self.value(position) if isinstance(fact, Value) else fact

    def values(self) -> list[Value]:
        """What is known of the inputs that are there."""
        inputs = self.node.inputs
        return [self.value(at) for at, name in enumerate(inputs) if name is not None]

    def content(self, position: int = 0) -> Content | None:
        """The elements of an input, those for each axis in the order of ONNX's axes."""
        content = self._call.content(position)
        order = self._order(position)
        if content is None or order is None or len(content.elements) != len(order):
            return content
        return content._replace(elements=permuted(content.elements, order))

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """As :meth:`content`, of a constant of any kind."""
        constant = self._call.constant(position)
        order = self._order(position)
        if constant is None or order is None or constant.shape != (len(order),):
            return constant
        return constant[list(order)]

    def _order(self, position: int) -> tuple[int, ...] | None:
        shape = self._call.value().shape
        if shape is None or position not in PER_AXIS.get(self.node.op_type, ()):
            return None
        return channels_first(len(shape))


def _channels_last(call: NodeCall, op_type: str) -> Sequence[Fact] | None:
    """What ONNX's rule says of all outputs, the first of which is transposed."""
    rule = find_rule("", op_type)
    assert rule is not None
    found = rule(_ChannelsFirst(call))
    if isinstance(found, Value):
        found = [found]
    if not isinstance(found, list):  # nothing: all other rules of these give lists
        return None
    first, *others = found
    if isinstance(first, Value) and first.shape is not None:
        shape = permuted(first.shape, channels_last(len(first.shape)))
        first = Value(first.dtype, shape)
    return [first, *others]


RULES: Final[dict[str, Rule]] = {
    op_type: partial(_channels_last, op_type=op_type) for op_type in NHWC_OPERATORS
}
