"""What is known of values while a graph is read, and a node's call as rules see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from onnxplug.ep import DataType, Dimension, TensorType
from onnxplug.graph import Graph, Node
from onnxplug.prepare.scopes import made_in
from onnxplug.prepare.symbolic.dimension import (
    MOST_TEXT,
    Extent,
    Size,
    named,
    parse,
)
from onnxplug.prepare.types import GENERATED

Shape: TypeAlias = tuple[Extent, ...]

FEW: Final = 64
"""Elements of a tensor that are followed one by one."""

_COUNTS: Final = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL})


class Value(NamedTuple):
    """A tensor's element type and shape, ``None`` where unknown."""

    dtype: DataType | None = None
    shape: Shape | None = None


UNKNOWN: Final = Value()


class Content(NamedTuple):
    """The elements of an integer tensor of rank 0 or 1, ``None`` where unknown."""

    elements: tuple[Extent | None, ...]
    is_scalar: bool
    dtype: DataType


class Scope:
    """What a model's graphs have in common while they are read.

    Args:
        first: number of the first name to make up.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._read: dict[str, Size] = {}
        self._short: dict[str, str] = {}

    def fresh(self) -> Extent:
        """A size of which nothing is known."""
        self._next += 1
        return named(f"{GENERATED}{self._next - 1}")

    def read(self, dimension: Dimension) -> Extent:
        """The size that a type states."""
        if isinstance(dimension, int):
            return dimension
        if dimension is None:
            return self.fresh()
        found = self._read.get(dimension)
        if found is None:
            found = parse(dimension)
            if found is None:  # such as "?", which may stand for anything
                return self.fresh()
            self._read[dimension] = found
        return found

    def write(self, size: Extent) -> int | str:
        """*size* as a type states it."""
        if isinstance(size, int):
            return size
        text = str(size)
        if len(text) <= MOST_TEXT:
            return text
        short = self._short.get(text)
        if short is None:
            short = self._short[text] = str(self.fresh())
        return short

    def is_made_up(self, size: Extent) -> bool:
        """Whether *size* depends on one that only inference has a name for."""
        return isinstance(size, Size) and GENERATED in str(self.write(size))


class Facts:
    """What is known of the values of one graph, and of the graphs around.

    Attributes:
        values: of the graph itself, as far as found out; others are as the graph
            states them.
        contents: of the graph itself.
    """

    def __init__(self, graph: Graph, scope: Scope, around: Facts | None = None) -> None:
        self.graph = graph
        self.scope = scope
        self.around = around
        self.values: dict[str, Value] = {}
        self.contents: dict[str, Content | None] = {}
        # they hide those around, although ONNX forbids that
        self._own = frozenset() if around is None else frozenset(made_in(graph))

    def value(self, name: str) -> Value:
        """What is known of the tensor *name*."""
        found = self.values.get(name)
        if found is not None:
            return found
        weight = self.graph.constants.get(name)
        if weight is not None:
            found = Value(weight.dtype, weight.shape)
        elif name in self.graph.types:
            found = self.stated(name)
        elif self.around is not None and name not in self._own:
            return self.around.value(name)
        else:
            return UNKNOWN
        self.values[name] = found
        return found

    def stated(self, name: str) -> Value:
        """What the graph states of its own tensor *name*, the unknown given names."""
        type = self.graph.types.get(name)
        if not isinstance(type, TensorType):
            return UNKNOWN
        shape = type.shape
        if shape is None:
            return Value(type.dtype)
        if None in shape and self.graph.parent is None and name in self.graph.inputs:
            # named by the place, to be the same each time
            place = self.graph.inputs.index(name)
            shape = tuple(
                f"{GENERATED}{place}_{axis}" if size is None else size
                for axis, size in enumerate(shape)
            )
        return Value(type.dtype, tuple(map(self.scope.read, shape)))

    def content(self, name: str) -> Content | None:
        """The elements of *name*, if it is a small tensor of which some are known."""
        if name in self.contents:
            return self.contents[name]
        weight = self.graph.constants.get(name)
        if weight is not None:
            found = None
            if (
                weight.dtype in _COUNTS
                and len(weight.shape) < 2
                and (not weight.shape or weight.shape[0] <= FEW)
            ):
                elements = map(int, weight.array.reshape(-1).tolist())
                found = Content(tuple(elements), not weight.shape, weight.dtype)
            self.contents[name] = found
            return found
        if self.around is None or name in self._own:
            return None
        return self.around.content(name)


class NodeCall:
    """One node, and what is known of what it is given.

    Attributes:
        opset: version of ONNX's operators in the graph.
    """

    __slots__ = ("facts", "node", "opset")

    def __init__(self, node: Node, facts: Facts, opset: int) -> None:
        self.node = node
        self.facts = facts
        self.opset = opset

    def has(self, position: int) -> bool:
        """Whether there is such an input."""
        inputs = self.node.inputs
        return position < len(inputs) and inputs[position] is not None

    def value(self, position: int = 0) -> Value:
        """What is known of an input; of one that is not there, nothing."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return UNKNOWN if name is None else self.facts.value(name)

    def values(self) -> list[Value]:
        """What is known of the inputs that are there."""
        return [self.facts.value(name) for name in self.node.inputs if name is not None]

    def content(self, position: int = 0) -> Content | None:
        """The elements of an input, if it is a small tensor."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return None if name is None else self.facts.content(name)

    def numbers(self, position: int) -> tuple[int, ...] | None:
        """The elements of an input, if all are known now."""
        content = self.content(position)
        if content is None:
            return None
        elements = content.elements
        if not all(isinstance(element, int) for element in elements):
            return None
        return elements  # type: ignore[return-value]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        attribute = self.node.typed_attributes.get(name)
        return default if attribute is None else attribute.value

    def axes(self, position: int, default: Any = None) -> Sequence[int] | None:
        """The axes that an attribute ``axes``, or in later versions an input, names.

        Args:
            default: for none; otherwise None if they are not known.
        """
        stated = self.attribute("axes")
        if stated is not None:
            return tuple(stated)
        return self.numbers(position) if self.has(position) else default

    def fresh(self) -> Extent:
        """A size of which nothing is known."""
        return self.facts.scope.fresh()


def normal_axis(axis: int, rank: int) -> int:
    """*axis* counted from the front.

    Raises:
        IndexError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise IndexError(axis)
    return axis % rank


def sliced_range(size: int, start: int, end: int, step: int) -> range:
    """The positions that a Slice takes of an axis of *size* elements.

    As ONNX has it (Slice-13), a slice backwards that begins before the first element
    has that element, where Python's has none.
    """
    if step < 0 and start < -size:
        start = -size
    return range(*slice(start, end, step).indices(size))
