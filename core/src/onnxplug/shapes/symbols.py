"""Names of sizes at a model's inputs, and runs in which they do not mean one size.

ONNX gives no force to a name that several dimensions of inputs have: what is fed is
taken.  Yet most models keep to their names, and much follows from that.  So a graph is
read as if they did, and read anew without those names that a run's shapes belie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.ep import TensorType, ValueType
from onnxplug.graph import Graph
from onnxplug.graph.scopes import all_graphs
from onnxplug.shapes.stated import (
    merged,
    names_of_sizes,
    without_names,
    without_sizes,
)

if TYPE_CHECKING:
    from onnxplug.ep import Size

Symbol: TypeAlias = tuple[str, str]
"""An input, and what its type states of the size of a dimension, such as a name."""


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
    """

    def __init__(self, types: Mapping[str, ValueType | None]) -> None:
        places: dict[str, list[tuple[str, int]]] = {}
        for name, type in types.items():
            for axis, text in _texts(type):
                if text.isidentifier() or _size(text) is not None:
                    places.setdefault(text, []).append((name, axis))
        self._expressions = [
            (text, size, where)
            for text, where in places.items()
            if (size := _expression(text)) is not None
        ]
        computed = {text for text, *_ in self._expressions}
        needed = {name for _, size, _ in self._expressions for name in _names(size)}
        self._names = [
            (text, where)
            for text, where in places.items()
            if text not in computed and (len(where) > 1 or text in needed)
        ]

    def __bool__(self) -> bool:
        return bool(self._names)

    def every(self) -> frozenset[Symbol]:
        """All that shapes could belie."""
        repeated = [(text, where[1:]) for text, where in self._names]
        computed = [(text, where) for text, _, where in self._expressions]
        return frozenset(
            (name, text) for text, where in repeated + computed for name, _ in where
        )

    def belied(self, shapes: Mapping[str, Sequence[int]]) -> frozenset[Symbol]:
        """What is not so where inputs have *shapes*, of the ranks that are stated.

        Of a name's sizes the first counts; inputs that are left out belie nothing.
        """
        belied = set()
        sizes: dict[str, int] = {}
        for text, where in self._names:
            for name, axis in where:
                if name in shapes:
                    found = shapes[name][axis]
                    if sizes.setdefault(text, found) != found:
                        belied.add((name, text))
        for text, size, where in self._expressions:
            expected = size.evaluate(sizes)
            for name, axis in where:
                if name in shapes and expected not in (None, shapes[name][axis]):
                    belied.add((name, text))
        return frozenset(belied)


def forget(
    graph: Graph, belied: Collection[Symbol], named: Collection[str]
) -> dict[str, ValueType | None]:
    """Take from a graph's types what is not sure to mean one size in one run.

    That is what is *belied*; what is no expression of names, such as ``?``; what is
    computed of a name that no input has by itself; and names in sequences, optionals
    and sparse tensors.  With anything *belied*, what is declared of values that nodes
    make has no names any more, as it may mean by them a size that is another now.

    Args:
        graph: a main graph, just loaded.
        named: names that are replaced by numbers later.

    Returns:
        The types of inputs and outputs that were changed, as declared.
    """
    alone = {*named}
    for name in (*graph.inputs, *graph.defaults):
        alone.update(text for _, text in _texts(graph.types.get(name)))
    declared = {}
    for name in (*graph.inputs, *graph.defaults, *graph.outputs):
        type = graph.types.get(name)
        forgotten = {
            text
            for text in names_of_sizes(type)
            if (name, text) in belied
            or not (text in named or _has_force(type, text, alone))
        }
        if forgotten:
            declared[name] = type
            graph.types[name] = without_sizes(type, forgotten)
    if belied:
        for each in all_graphs(graph):
            for made in {name for node in each.nodes for name in node.outputs if name}:
                type = each.types.get(made)
                if names_of_sizes(type):
                    if each is graph and made in graph.outputs:
                        declared.setdefault(made, type)
                    each.types[made] = without_names(type)
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
    from onnxplug.ep.size import Size  # which few models need so early

    return Size.parse(text)


def _names(size: Size) -> set[str]:
    from onnxplug.ep.size import names_in

    return names_in(size)
