"""Names of sizes at a model's inputs, and runs in which they do not mean one size.

ONNX gives no force to a name that several dimensions of inputs have: what is fed is
taken.  Yet most models keep to their names, and much follows from that.  So a graph is
read as if they did, and read anew without those names that a run's shapes belie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.authoring.sizes import Size, names_in
from onnxplug.ep import TensorType, ValueType
from onnxplug.shapes.stated import (
    merged,
    names_of_sizes,
    without_names,
    without_sizes,
)

if TYPE_CHECKING:
    from onnxplug.ep import Size
    from onnxplug.graph import Function, Graph

Symbol: TypeAlias = tuple[str, str]
"""An input, and what its type states of the size of a dimension, such as a name."""

_Axis: TypeAlias = tuple[str, int]
"""An input, and the number of one of its dimensions."""


def sizes_in_words(symbols: Iterable[Symbol]) -> str:
    """What of which inputs *symbols* are, to be read by users."""
    return ", ".join(f"{text!r} of input {name!r}" for name, text in sorted(symbols))


class BeliedSymbols(Exception):
    """What is fed has not the sizes that a graph was read for.

    Attributes:
        symbols: what is not so.
    """

    def __init__(self, symbols: frozenset[Symbol]) -> None:
        super().__init__(symbols)
        self.symbols = symbols


class SharedSymbols:
    """The sizes that a model's inputs have in common, or that follow from one another.

    Args:
        types: those of the inputs.
        defaults: the shapes of inputs that need not be fed.
    """

    def __init__(
        self,
        types: Mapping[str, ValueType | None],
        defaults: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self._defaults = defaults
        axes: dict[str, list[_Axis]] = {}
        for name, type in types.items():
            for axis, text in _texts(type):
                if text.isidentifier() or _size(text) is not None:
                    axes.setdefault(text, []).append((name, axis))
        self._expressions = [
            (text, size, stated)
            for text, stated in axes.items()
            if (size := _expression(text)) is not None
        ]
        computed = {text for text, *_ in self._expressions}
        needed = {name for _, size, _ in self._expressions for name in _names(size)}
        self._names = [
            (text, stated)
            for text, stated in axes.items()
            if text not in computed and (len(stated) > 1 or text in needed)
        ]

    @classmethod
    def of(cls, graph: Graph) -> SharedSymbols:
        """Those of a main graph."""
        shapes = {name: weight.shape for name, weight in graph.defaults.items()}
        return cls(graph.input_types(), shapes)

    def __bool__(self) -> bool:
        return bool(self._names)

    def every(self) -> frozenset[Symbol]:
        """All that shapes could belie."""
        repeated = [(text, axes[1:]) for text, axes in self._names]
        computed = [(text, axes) for text, _, axes in self._expressions]
        return frozenset(
            (name, text) for text, axes in repeated + computed for name, _ in axes
        )

    def check(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Check the *shapes* of inputs, which have the ranks that are stated.

        Raises:
            BeliedSymbols: sizes that are stated alike differ.
        """
        belied = self.belied(shapes)
        if belied:
            raise BeliedSymbols(belied)

    def belied(self, shapes: Mapping[str, Sequence[int]]) -> frozenset[Symbol]:
        """What is not so where inputs have *shapes*, of the ranks that are stated.

        Of a name's sizes the first counts; inputs that are left out have the shapes of
        their defaults, or belie nothing.
        """
        shapes = {**self._defaults, **shapes}
        belied = set()
        sizes: dict[str, int] = {}
        for text, axes in self._names:
            for name, axis in axes:
                if name in shapes:
                    found = shapes[name][axis]
                    if sizes.setdefault(text, found) != found:
                        belied.add((name, text))
        for text, size, axes in self._expressions:
            expected = size.evaluate(sizes)
            for name, axis in axes:
                if name in shapes and expected not in (None, shapes[name][axis]):
                    belied.add((name, text))
        return frozenset(belied)


def forget_all(
    graph: Graph, functions: Iterable[Function] = ()
) -> dict[str, ValueType | None]:
    """As :func:`forget`, with all that shapes could belie: no shapes do afterwards."""
    return forget(graph, SharedSymbols.of(graph).every(), functions)


def forget(
    graph: Graph, belied: Collection[Symbol], functions: Iterable[Function] = ()
) -> dict[str, ValueType | None]:
    """Take from a graph's types what is not sure to mean one size in one run.

    Of inputs that is what is *belied*; what is no expression of names, such as ``?``;
    what is computed of a name that no input has by itself; and names in sequences,
    optionals and sparse tensors.  Of all other values it is every name: what follows
    from the inputs has their names, and nobody keeps the model to the others.

    Args:
        graph: a main graph, just loaded.
        functions: those of its model.

    Returns:
        The types of inputs and outputs that were changed, as declared.
    """
    from onnxplug.graph.scopes import all_graphs  # checks of feeds need no graph

    types = graph.input_types()
    alone = {text for type in types.values() for _, text in _texts(type)}
    declared = {}
    for name, type in types.items():
        forgotten = {
            text
            for text in names_of_sizes(type)
            if (name, text) in belied or not _has_force(type, text, alone)
        }
        if forgotten:
            declared[name] = type
            graph.types[name] = without_sizes(type, forgotten)
    for root in (graph, *(function.body for function in functions)):
        for each in all_graphs(root):
            fed = types if each is graph else ()
            for name, type in each.types.items():
                if name not in fed and names_of_sizes(type):
                    if each is graph and name in graph.outputs:
                        declared[name] = type
                    each.types[name] = without_names(type)
    return declared


@contextmanager
def stated_as(declared: Mapping[str, ValueType | None], graph: Graph) -> Iterator[None]:
    """Have in the types of *graph*, meanwhile, what :func:`forget` took from them."""
    without = {name: graph.types.get(name) for name in declared}
    graph.types.update(
        {name: merged(type, without[name]) for name, type in declared.items()}
    )
    try:
        yield
    finally:
        graph.types.update(without)


def _texts(type: ValueType | None) -> Sequence[tuple[int, str]]:
    """The axes of a tensor whose sizes are no numbers, and what is stated of these."""
    if not isinstance(type, TensorType) or type.shape is None:
        return ()
    return [(i, size) for i, size in enumerate(type.shape) if isinstance(size, str)]


def _has_force(type: ValueType | None, text: str, alone: Collection[str]) -> bool:
    """Whether *text*, in the type of a value, is sure to mean one size in one run."""
    if not isinstance(type, TensorType):
        return False
    if text.isidentifier():
        return True
    size = _size(text)
    return size is not None and all(name in alone for name in _names(size))


def _expression(text: str) -> Size | None:
    """The size that *text* computes of names; ``None`` if it is a name itself."""
    if text.isidentifier():
        return None
    size = _size(text)
    return None if size is None or _names(size) == {text} else size


def _size(text: str) -> Size | None:
    return Size.parse(text)


def _names(size: Size) -> set[str]:
    return names_in(size)
