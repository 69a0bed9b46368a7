"""A node that is asked what it does to the positions of a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from onnxplug.authoring.bounds import normal_axis
from onnxplug.authoring.sizes import Size, exact_quotient, named, names_in
from onnxplug.ep import Dimension
from onnxplug.graph import Graph, Node

COUNT: Final = -1
"""In place of an axis: sizes that depend on how many positions there are."""

State: TypeAlias = int | None
"""The axis of the positions, or :data:`COUNT`; ``None``: it depends on neither."""


class Mixed(Exception):
    """Positions depend on each other, or may; the text says where."""


def is_multiple(size: Dimension, dimension: str) -> bool:
    """Whether *size* is *dimension*, times what has nothing to do with it."""
    if size == dimension:
        return True
    parsed = Size.parse(size) if isinstance(size, str) else None
    if parsed is None:
        return False
    times = exact_quotient(parsed, named(dimension))
    return times is not None and dimension not in names_in(times)


class Call:
    """A node, and what is known of its inputs."""

    def __init__(
        self, graph: Graph, node: Node, states: Mapping[str, int], dimension: str
    ) -> None:
        self.graph = graph
        self.dimension = dimension
        self.node = node
        self.states: list[State] = [
            None if name is None else states.get(name) for name in node.inputs
        ]
        captured = [states.get(name) for name in node.captures]
        self.depends = any(state is not None for state in (*self.states, *captured))

    def state(self, position: int) -> State:
        return self.states[position] if position < len(self.states) else None

    def shape(self, position: int = 0) -> tuple[Dimension, ...]:
        """The shape of an input.

        Raises:
            Mixed: its rank is not known.
        """
        name = self.node.inputs[position]
        shape = None if name is None else self.graph.value(name).shape
        if shape is None:
            raise Mixed(f"the rank of {name!r} is not known")
        return shape

    def has(self, position: int) -> bool:
        inputs = self.node.inputs
        return position < len(inputs) and inputs[position] is not None

    def constant(self, position: int) -> Any | None:
        name = self.node.inputs[position] if self.has(position) else None
        return None if name is None else self.graph.constant(name)

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        return normal_axis(self.attribute(name, default), rank)

    def only(self, *positions: int) -> None:
        """Check that only these inputs depend on positions or their number.

        Raises:
            Mixed: another one does.
        """
        for position, state in enumerate(self.states):
            if state is not None and position not in positions:
                raise Mixed(f"its input {position} depends on it")

    def positions(self, position: int = 0) -> int:
        """The axis of an input.

        Raises:
            Mixed: it has none.
        """
        state = self.state(position)
        if state is None or state == COUNT:
            raise Mixed("it computes with sizes")
        return state

    def axes(self, position: int) -> list[int] | None:
        """Axes of the first input that an attribute or an input names; ``None``: all.

        Raises:
            Mixed: they are not known.
        """
        stated = self.attribute("axes")
        if stated is None and self.has(position):
            stated = self.constant(position)
            if stated is None:
                raise Mixed("its axes are not known")
        if stated is None:
            return None
        rank = len(self.shape())
        return [normal_axis(int(axis), rank) for axis in stated]
