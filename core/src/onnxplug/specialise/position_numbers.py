"""Numbers of positions, 0 1 2 …, with which models look up what each position has.

Exporters write ``mask[arange(batch), …]``: positions by their own numbers, which is
what was there.  A number by itself is another one where positions are joined with
others, so nothing else may be computed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import normal_axis
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.shapes.facts import Content
from onnxplug.specialise.position_call import Call, Mixed

WHOLE: Final = -1
"""A value is of numbers, in place of: at a place along its last axis it has them."""

_COMPUTED: Final = -2
"""A value was computed of numbers: only its shape is good for anything."""

_MOVED: Final = frozenset(
    {"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators whose results have the numbers that they are given, by the rules for axes
of positions."""

Rule: TypeAlias = "Callable[[Call], int]"


class PositionNumbers:
    """Which values are numbers of positions, or were computed of them.

    Args:
        dimension: whose positions they are.
        contents: elements of small tensors of sizes.
    """

    def __init__(self, dimension: str, contents: Mapping[str, Content | None]) -> None:
        self._dimension = dimension
        self._contents = contents
        self._places: dict[str, int] = {}
        self._origins: dict[str, str] = {}

    def check(self, output: str) -> None:
        """Check that *output* is computed of no number.

        Raises:
            Mixed: it is.
        """
        if output in self._places:
            origin = self._origins.get(output, "Range")
            raise Mixed(f"{origin}: it computes with the numbers of positions")

    def state(self, call: Call, rule: Rule | None) -> int | None:
        """The state of the outputs of a node that makes or is given numbers; ``None``
        if it does not, and *rule* alone tells.

        Raises:
            Mixed: it may compute positions from each other.
        """
        node = call.node
        if node.op_type == "Range" and not node.domain:
            self._check_range(call)
            return self._enter(call, WHOLE, 0)
        given = {
            at: self._places[name]
            for at, name in enumerate(node.inputs)
            if name in self._places
        }
        if not given or rule is None or node.op_type in having("shape_only"):
            return self._looked_up(call, given)
        place = _COMPUTED
        if not node.domain:
            if node.op_type in _MOVED and given == {0: WHOLE}:
                place = WHOLE
            elif node.op_type == "Concat":
                place = _place_in(call, given)
            elif (found := self._looked_up(call, given)) is not None:
                return found
        if place == _COMPUTED:
            origins = [self._origins.get(name or "") for name in node.inputs]
            origin = next(filter(None, origins), describe(node))
            self._origins |= {name: origin for name in node.outputs if name}
        return self._enter(call, place, rule(call))

    def _looked_up(self, call: Call, given: Mapping[int, int]) -> int | None:
        """The state of what has positions looked up by their numbers; ``None`` if the
        node does not."""
        node = call.node
        if not node.domain and node.op_type == "Gather" and given == {1: WHOLE}:
            return _gathered(call)
        if not node.domain and node.op_type == "GatherND" and given == {1: 0}:
            return _gathered_by_points(call)
        return None

    def _check_range(self, call: Call) -> None:
        name = call.node.inputs[1]
        content = None if name is None else self._contents.get(name)
        limit = () if content is None else content.elements
        start, step = call.constant(0), call.constant(2)
        counts = len(limit) == 1 and str(limit[0]) == self._dimension
        if (
            start is None
            or step is None
            or (int(start), int(step)) != (0, 1)
            or not counts
        ):
            raise Mixed("it may compute positions from each other")

    def _enter(self, call: Call, place: int, state: int) -> int:
        for name in call.node.outputs:
            if name:
                self._places[name] = place
        return state


def _place_in(call: Call, given: Mapping[int, int]) -> int:
    """Where along the last axis a ``Concat`` has numbers."""
    rank = len(call.shape())
    first = min(given)
    sizes = [call.shape(position)[-1] for position in range(first + 1)]
    is_followed = (
        normal_axis(call.attribute("axis", 1), rank) == rank - 1
        and given[first] == WHOLE
        and sizes[-1] == 1
        and all(isinstance(size, int) for size in sizes)
    )
    if not is_followed or _COMPUTED in given.values():
        return _COMPUTED
    return sum(size for size in sizes[:-1] if isinstance(size, int))


def _gathered(call: Call) -> int | None:
    """``data[numbers]``, along the axis of the positions."""
    shape = call.shape()
    along = call.axis(0, len(shape))
    if call.state(0) != along or shape[along] != call.dimension:
        return None
    return along + call.positions(1)


def _gathered_by_points(call: Call) -> int | None:
    """``data[numbers, …]``, where the positions are along the data's first axis."""
    if call.attribute("batch_dims", 0) or call.state(0) != 0:
        return None
    if call.shape()[0] != call.dimension:
        return None
    axis = call.positions(1)
    return axis if axis < len(call.shape(1)) - 1 else None
