"""What is known of values while a graph is read, and a node's call as rules see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.bounds import (
    MOST_ELEMENTS,
    OutOfBounds,
    at_least,
    normal_axis,
    sizes,
)
from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.record import Record
from onnxplug.authoring.sizes import (
    MOST_FOLLOWED,
    MOST_TEXT,
    Extent,
    Size,
    named,
)
from onnxplug.ep import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from onnxplug.graph import Graph, Node, Weight
from onnxplug.graph.scopes import made_in

Shape: TypeAlias = tuple[Extent, ...]

FEW: Final = 64
"""Elements of a tensor that are followed one by one."""

COUNTS: Final = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL})
"""Element types of tensors that are followed element by element."""


class Value(Record):
    """A tensor's element type and shape, ``None`` where unknown."""

    dtype: DataType | None = None
    shape: Shape | None = None


UNKNOWN: Final = Value()

WRONG: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule raises for a node that is wrong, of which its EP says more: sizes, say,
that do not go together."""

Fact: TypeAlias = Value | SequenceType | OptionalType | MapType
"""What is known of a value: of all but dense tensors the type, as a graph states it.

Sizes within such types are text; ``None`` is a size that may be another each time.
"""


class Content(Record):
    """The elements of an integer tensor of rank 0 or 1, ``None`` where unknown."""

    elements: tuple[Extent | None, ...]
    is_scalar: bool
    dtype: DataType


def content_of(weight: Weight) -> Content | None:
    """The elements of a constant, if it is small and an integer tensor."""
    if (
        weight.dtype not in COUNTS
        or len(weight.shape) > 1
        or (weight.shape and weight.shape[0] > FEW)
    ):
        return None
    return elements_of(weight.array, weight.dtype)


def elements_of(array: np.ndarray[Any, Any], dtype: DataType) -> Content:
    """The elements of an array of integers of rank 0 or 1."""
    numbers = array.reshape(-1).tolist()
    elements = map(int, numbers) if dtype is DataType.BOOL else numbers
    return Content(tuple(elements), not array.shape, dtype)


def array_of(content: Content) -> np.ndarray[Any, Any] | None:
    """The array that *content* is, if all elements are numbers."""
    if not all(isinstance(element, int) for element in content.elements):
        return None
    if all(type(element) is int for element in content.elements):
        array = np.array(content.elements, content.dtype.numpy)
    else:  # what an EP puts in the place of numbers while it plans
        array = np.array(content.elements, np.object_)
    return array.reshape(()) if content.is_scalar else array


class Scope:
    """What a model's graphs have in common while they are read.

    Args:
        first: number of the first name to make up.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._read: dict[str, Size] = {}
        self._short: dict[str, Size] = {}

    def fresh(self) -> Size:
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
            found = Size.parse(dimension)
            if found is None:  # such as "?", which may stand for anything
                return self.fresh()
            self._read[dimension] = found
        return found

    def write(self, size: Extent) -> int | str:
        """*size* as a type states it."""
        if isinstance(size, int):
            return size
        text = str(size)
        return text if len(text) <= MOST_TEXT else str(self._shortened(text))

    def _shortened(self, text: str) -> Size:
        """A name for the size that *text* says, the same each time."""
        short = self._short.get(text)
        if short is None:
            short = self._short[text] = self.fresh()
        return short

    def kept(self, fact: Fact) -> Fact:
        """*fact* with names for sizes that are not worth following any further.

        Operators that are repeated make sizes of any length; no tensor has a size
        that is negative, or that int64 does not hold.
        """
        if type(fact) is not Value or fact.shape is None:
            return fact
        for size in fact.shape:  # of every value, so it calls nothing of ours
            if isinstance(size, int):
                if 0 <= size <= MOST_ELEMENTS:
                    continue
            elif len(str(size)) <= MOST_FOLLOWED:
                continue
            return Value(fact.dtype, tuple(map(self._kept, fact.shape)))
        return fact

    def _kept(self, size: Extent) -> Extent:
        if isinstance(size, int):
            return size if 0 <= size <= MOST_ELEMENTS else self.fresh()
        text = str(size)
        return size if len(text) <= MOST_FOLLOWED else self._shortened(text)

    def stated(self, fact: Fact) -> ValueType:
        """*fact* as a graph states it."""
        if not isinstance(fact, Value):
            return fact
        if fact.shape is None:
            return TensorType(fact.dtype)
        return TensorType(fact.dtype, tuple(map(self.write, fact.shape)))

    def fact(self, type: ValueType | None) -> Fact:
        """What *type*, as a graph states it, says."""
        match type:
            case TensorType(dtype, None):
                return Value(dtype)
            case TensorType(dtype, shape):
                return Value(dtype, tuple(map(self.read, shape or ())))
            case SequenceType() | OptionalType() | MapType():
                return type
        return UNKNOWN

    def is_made_up(self, size: Extent) -> bool:
        """Whether *size* depends on one that only inference has a name for."""
        return isinstance(size, Size) and GENERATED in str(self.write(size))


class Facts:
    """What is known of the values of one graph, and of the graphs around.

    Attributes:
        values: of the graph itself, as far as found out; others are as the graph
            states them.
        contents: of the graph itself.
        believed: values of the graph of which something is only declared, or follows
            from what is.
    """

    def __init__(self, graph: Graph, scope: Scope, around: Facts | None = None) -> None:
        self.graph = graph
        self.scope = scope
        self.around = around
        self.values: dict[str, Fact] = {}
        self.contents: dict[str, Content | None] = {}
        self.believed: set[str] = set()
        # they hide those around, although ONNX forbids that
        self._own = frozenset() if around is None else frozenset(made_in(graph))
        self._places: dict[str, int] = {}
        if graph.parent is None:
            self._places = {name: at for at, name in enumerate(graph.inputs)}

    def value(self, name: str) -> Value:
        """What is known of the tensor *name*; nothing if it is no dense tensor."""
        found = self.values.get(name)
        if found is None:
            found = self.fact(name)
        return found if type(found) is Value else UNKNOWN

    def fact(self, name: str) -> Fact:
        """What is known of *name*."""
        found = self.values.get(name)
        if found is not None:
            return found
        weight = self.graph.constants.get(name)
        if weight is not None:
            found = Value(weight.dtype, weight.shape)
        elif name in self.graph.types:
            found = self.stated(name)
        elif self.around is not None and name not in self._own:
            return self.around.fact(name)
        else:
            return UNKNOWN
        self.values[name] = found
        return found

    def stated(self, name: str) -> Fact:
        """What the graph states of its own value *name*, the unknown given names."""
        type = self.graph.types.get(name)
        if not isinstance(type, TensorType) or type.shape is None:
            return self.scope.fact(type)
        shape = type.shape
        place = self._places.get(name)
        if place is not None and None in shape:
            # named by the place, to be the same each time
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
            found = self.contents[name] = content_of(weight)
            return found
        if self.around is None or name in self._own:
            return None
        return self.around.content(name)


class NodeCall:
    """One node, and what is known of what it is given: all that a rule asks.

    Attributes:
        opset: version of ONNX's operators in the graph.
    """

    __slots__ = ("facts", "node", "opset")

    def __init__(self, node: Node, facts: Facts, opset: int) -> None:
        self.node = node
        self.facts = facts
        self.opset = opset

    @property
    def scope(self) -> Scope:
        """Where sizes get names."""
        return self.facts.scope

    def has(self, position: int) -> bool:
        """Whether there is such an input."""
        inputs = self.node.inputs
        return position < len(inputs) and inputs[position] is not None

    def value(self, position: int = 0) -> Value:
        """What is known of an input; of one that is not there, nothing."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return UNKNOWN if name is None else self.facts.value(name)

    def fact(self, position: int = 0) -> Fact:
        """What is known of an input, which need not be a tensor."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return UNKNOWN if name is None else self.facts.fact(name)

    def type(self, position: int = 0) -> ValueType | None:
        """As :meth:`fact`, as a graph states it; None if nothing is known."""
        fact = self.fact(position)
        return None if fact == UNKNOWN else self.scope.stated(fact)

    def values(self) -> list[Value]:
        """What is known of the inputs that are there."""
        return [self.facts.value(name) for name in self.node.inputs if name is not None]

    def content(self, position: int = 0) -> Content | None:
        """The elements of an input, if it is a small tensor."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return None if name is None else self.facts.content(name)

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """The elements of an input of any kind, if it is a constant."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return None if name is None else self.facts.graph.constant(name)

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

    def axis(self, rank: int, default: int, name: str = "axis") -> int:
        """The axis that an attribute names, counted from the front.

        Raises:
            OutOfBounds: a tensor of *rank* has no such axis.
        """
        return normal_axis(self.attribute(name, default), rank, name)

    def dtype(self, name: str, default: int = 0) -> DataType | None:
        """The element type that an attribute names; None for ONNX's "undefined".

        Raises:
            OutOfBounds: ONNX has no such element type.
        """
        number = self.attribute(name, default)
        if not number:
            return None
        try:
            return DataType.from_onnx(number)
        except ValueError as error:
            raise OutOfBounds(f"{name}: {error}") from None

    def fresh(self) -> Extent:
        """A size of which nothing is known."""
        return self.scope.fresh()

    def fresh_shape(self, rank: Extent | None) -> Shape | None:
        """A shape of *rank*, if that is a number, of which nothing else is known."""
        if not isinstance(rank, int) or rank < 0:
            return None
        return tuple(self.fresh() for _ in range(rank))

    def length(self, position: int) -> int | None:
        """How many elements a vector that is an input has, if they are known and few.

        No tensor has so many axes, whatever the length of an input is.
        """
        shape = self.value(position).shape
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            return None
        return shape[0] if shape[0] <= FEW else None


def check_known(minimum: int, elements: Iterable[Extent | None], what: str) -> None:
    """Check those of *elements* that are numbers.

    Raises:
        OutOfBounds: one is less than *minimum*, or beyond int64.
    """
    at_least(minimum, (e for e in elements if isinstance(e, int)), what)


def countable(shape: Shape, what: str) -> Shape:
    """*shape*, of which an operator's attributes or constants are the cause.

    Raises:
        OutOfBounds: the sizes that are numbers are beyond int64 when multiplied.
    """
    sizes((size for size in shape if isinstance(size, int)), what=what)
    return shape
