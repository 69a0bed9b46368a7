"""Segments that are fed sizes as numbers, such as the length of a sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.schedule.floors import Floors
from onnxplug_compiler.schedule.operations.registry import find_operation
from onnxplug_cpu.compiler.segment import Array, Segment, Shapes


def floored_inputs(partition: ep.Partition, calls: Sequence[Call]) -> frozenset[str]:
    """Inputs that calls read as sizes, and that nothing else reads.

    Bodies of control flow have none, as these could have others in each run of the
    body.
    """
    if partition.graph.parent is not None:
        return frozenset()
    sizes: set[str | None] = set()
    others: set[str | None] = set(partition.outputs)
    for call in calls:
        operation = find_operation(call)
        floors = {} if operation is None else operation.floors
        for position, name in enumerate(call.inputs):
            (sizes if position in floors else others).add(name)
    return frozenset(name for name in partition.inputs if name in sizes - others)


class FlooredSegment(Segment):
    """A segment whose plans are made for numbers that are fed, too, as far as these are
    beyond sizes of other inputs: a token more in a cache that has room needs no plan.

    Args:
        read: names of these inputs.
        given: as of :class:`Segment`.
    """

    def __init__(self, *args: Any, read: Collection[str], **given: Any) -> None:
        super().__init__(*args, **given)
        self.read = tuple(at for at, name in enumerate(self.inputs) if name in read)
        self._floors = Floors(self.calls, self.inputs)

    def _shapes_of(self, arrays: Sequence[Array]) -> Shapes:
        """The shapes, of inputs that are read with their number as one more size."""
        shapes = [array.shape for array in arrays]
        found = list(shapes)
        for at in self.read:
            content = self._floors.raised(at, arrays[at], shapes)
            number = int(content.reshape(-1)[0]) if content.size == 1 else 0
            found[at] = (*shapes[at], number)
        return tuple(found)

    def _abstract(self, shapes: Shapes) -> list[Abstract]:
        """What is known of inputs of these shapes, and of these numbers."""
        found = super()._abstract(shapes)
        for at in self.read:
            *shape, number = shapes[at]
            value = found[at] = Abstract(found[at].dtype, tuple(shape))
            if value.size == 1:  # else there is no plan
                content = np.full(value.shape, number, value.dtype)
                found[at] = Abstract.known(content, varies=True)
        return found
