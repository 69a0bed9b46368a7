"""Contents of which plans are made for no more than what they are beyond a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule.operations.registry import find_operation


class Floors:
    """What calls need of numbers that are fed; see ``registry.Operation.floors``.

    Args:
        calls: those of a segment.
        inputs: names of what is fed.
    """

    def __init__(self, calls: Sequence[Call], inputs: Sequence[str]) -> None:
        places = {name: position for position, name in enumerate(inputs)}
        self._sizes: dict[int, set[tuple[int, int]]] = {}
        exact: set[int] = set()
        for call in calls:
            operation = find_operation(call)
            floors = {} if operation is None else operation.floors
            for position, name in enumerate(call.inputs):
                if name not in places:
                    continue
                place = places[name]
                found = floors.get(position)
                of = None if found is None else places.get(call.input(found[0]) or "")
                if found is None or of is None:
                    exact.add(place)
                else:
                    self._sizes.setdefault(place, set()).add((of, found[1]))
        for place in exact & self._sizes.keys():
            del self._sizes[place]

    def raised(
        self, place: int, content: np.ndarray[Any, Any], shapes: Sequence[Any]
    ) -> np.ndarray[Any, Any]:
        """The content of an input that stands for *content*: the number itself, or the
        size that it is not beyond.

        Args:
            place: of the input.
            shapes: of all inputs.
        """
        named = self._sizes.get(place, ())
        sizes = {shapes[of][axis] for of, axis in named if axis < len(shapes[of])}
        # where calls differ, each has to know the number
        if content.size != 1 or len(sizes) != 1:
            return content
        floor = np.full(content.shape, sizes.pop(), content.dtype)
        return floor if (content < floor).all() else content
