"""Segments that give back outputs which only a run knows the sizes of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound
from onnxplug_compiler.segmentation import Counted
from onnxplug_cpu.compiler.segment import Array, Compiler, Segment

_ROOM: Final = 1 << 12
"""Bytes that are kept with a result in vain at most, unless it is half of them."""


class FilledSegment(Segment):
    """A segment some of whose outputs are filled in part.

    Args:
        outputs: names, in the order of the arrays that :meth:`run` gives.
        counted: those of which a part is filled.
        compiler, given: as of :class:`Segment`.
    """

    def __init__(
        self,
        compiler: Compiler,
        *,
        outputs: Sequence[str],
        counted: Mapping[str, Counted],
        **given: Any,
    ) -> None:
        counts = tuple({each.number: None for each in counted.values()})
        super().__init__(compiler, outputs=(*outputs, *counts), **given)
        self.outputs = tuple(outputs)
        self._parts = tuple(
            (position, len(outputs) + counts.index(found.number), found.axis)
            for position, name in enumerate(outputs)
            if (found := counted.get(name)) is not None
        )
        self._unbound = (None,) * len(self.planned)

    def run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[Array | None],
        context: ep.RunContext | None = None,
    ) -> Sequence[Array]:
        """The outputs; as :meth:`Segment.run`."""
        found = list(super().run(arrays, self._unbound, context))
        for position, count, axis in self._parts:
            found[position] = beginning(found[position], int(found[count][0]), axis)
        del found[len(self.outputs) :]
        for array in bound:
            if array is not None:
                return fill_bound(found, bound)
        return found


def beginning(array: Array, count: int, axis: int) -> Array:
    """The elements that are there: as many places along *axis*, one after another."""
    if axis == 0:
        kept = array[:count]
    else:
        shape = list(array.shape)
        shape[axis] = count
        kept = array.reshape(-1)[: math.prod(shape)].reshape(shape)
    if array.nbytes - kept.nbytes > max(_ROOM, kept.nbytes):
        return kept.copy()  # or the rest would stay in memory
    return kept
