"""Elements that are put where indices say.

Lanes go through all updates of a line, or of an element of a slice, in order.  Where
there are few lanes and many updates, and the last one for a place is kept, a lane has
an update: each place first gets the number of its last update, and then what that has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES, record_chain
from onnxplug_compiler.gpu.families.indices import (
    FLAG,
    Indexed,
    checked_index,
    index_words,
    no_empty_axes,
    raised_flag,
    record_indexed,
)
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.gpu.render.extremes import largest, smallest
from onnxplug_compiler.gpu.render.steps import fitted
from onnxplug_compiler.ir.elements import SUB_BYTE
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_WORD: Final = np.dtype(np.uint32)
_MANY_LANES: Final = 4096
"""From which on it is enough to have as many."""

_FEW_UPDATES: Final = 16
"""Updates of a lane that take no longer than two launches more."""


def _combined(body: Body, reduction: str, value: str, place: str) -> str:
    """What is written to a place of the target, of which it may be a part."""
    if reduction == "none":
        return value
    element = body.element(2)
    kind = KINDS[element]
    known = body.load(2, place)
    if reduction in ("max", "min"):
        extreme = largest if reduction == "max" else smallest
        return body.let(kind, extreme(body, kind, known, value))
    operator = "Mul" if reduction == "mul" else "Add"
    found = f"{known} {'*' if reduction == 'mul' else '+'} {value}"
    return fitted(body, element, operator, found)


class ScatterElementsKernel(Indexed):
    """Writes updates, which are the data, into the target, one line along the axis
    after the other, so that several for one place are combined, or the last is kept.

    The sizes are how many lines there are, how many updates each has, the size of the
    target's axis, and those of the updates' axes but that one.
    """

    axis: int
    index_rank: int
    reduction: str

    @property
    def sizes(self) -> int:
        return 2 + self.data.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            line = body.coordinates(number, range(3, self.sizes))
            with body.loop(body.size(1)) as step:
                at = [*line[: self.axis], step, *line[self.axis :]]
                index = self.checked(body, at[: self.index_rank], body.size(2))
                where = [*at[: self.axis], index, *at[self.axis + 1 :]]
                value = body.load(0, body.place(0, at))
                place = body.place(2, where)
                body.store(2, place, _combined(body, self.reduction, value, place))


class ScatterNDKernel(Indexed):
    """ONNX's ScatterND: invocations share a slice, and go from update to update.

    The sizes are how many elements a slice has, how many updates there are, the
    target's axes that have indices, those of a slice, and those that count updates.
    """

    outer: int
    indexed: int
    reduction: str

    @property
    def sizes(self) -> int:
        return 2 + self.indexed + self.data.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            first = 2 + self.indexed
            inner = self.data.rank - self.outer
            within = body.coordinates(number, range(first, first + inner))
            with body.loop(body.size(1)) as update:
                at = body.coordinates(update, range(first + inner, self.sizes))
                found = [
                    self.checked(body, [*at, f"{axis}u"], body.size(2 + axis))
                    for axis in range(self.indexed)
                ]
                value = body.load(0, body.place(0, [*at, *within]))
                place = body.place(2, [*found, *within])
                body.store(2, place, _combined(body, self.reduction, value, place))


class LastKernel(Parameters):
    """For each place the last update for it, its number and one: a place of elements is
    one of the target's, of slices one of its first axes.

    The arrays are indices, places and a flag; the sizes how many updates there are, the
    sizes of axes that have indices, and those that count updates.

    Attributes:
        axis: which index of an element it is; ``None`` where indices are vectors.
        counting: how many axes count updates.
    """

    indices: Operand
    places: Operand
    axis: int | None
    counting: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.indices, self.places, FLAG

    @property
    def indexed(self) -> int:
        """How many axes have indices."""
        return self.places.rank if self.axis is None else 1

    @property
    def sizes(self) -> int:
        return 1 + self.indexed + self.counting

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(1 + self.indexed, self.sizes))
            if self.axis is None:
                where = [
                    self._index(body, [*at, f"{axis}u"], axis)
                    for axis in range(self.indexed)
                ]
            else:
                index = self._index(body, at, 0)
                where = [*at[: self.axis], index, *at[self.axis + 1 :]]
            body.raise_to(1, body.place(1, where), f"{number} + 1u")

    def _index(self, body: Body, at: Sequence[str], axis: int) -> str:
        return checked_index(body, self.indices, 0, at, body.size(1 + axis), 2)


class LatestKernel(Parameters):
    """Gives each place its last update, if it has one.

    The arrays are updates, places as of :class:`LastKernel` and the target; the sizes
    how many elements there are, the target's, and those of axes that count updates.
    """

    updates: Operand
    places: Operand
    target: Operand
    counting: int

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.updates, self.places, self.target

    @property
    def sizes(self) -> int:
        return 1 + self.target.rank + self.counting

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            first = 1 + self.target.rank
            at = body.coordinates(number, range(1, first))
            lead = self.places.rank
            last = body.load(1, body.place(1, at[:lead]))
            with body.when(f"{last} != 0u"):
                update = body.coordinates(f"({last} - 1u)", range(first, self.sizes))
                value = body.load(0, body.place(0, [*update, *at[lead:]]))
                body.store(2, body.place(2, at), value)


def _are_apart(lanes: int, updates: int) -> bool:
    """Whether a lane has an update, not all of a line."""
    return lanes < _MANY_LANES and updates > _FEW_UPDATES


def _record_last(
    recorder: Recorder[Any],
    indices: View,
    updates: View,
    target: View,
    axis: int | None,
    label: str,
) -> None:
    """Keep the last update of each place; where *axis* is ``None``, indices are vectors
    along their last axis."""
    counted = updates.shape if axis is not None else indices.shape[:-1]
    lead = len(target.shape) if axis is not None else indices.shape[-1]
    indexed = target.shape[:lead] if axis is None else target.shape[axis : axis + 1]
    places = recorder.temporary(_WORD, target.shape[:lead])
    builder = ChainBuilder()
    nothing = builder.build([builder.constant("u32", 0)])
    record_chain(recorder, nothing, [], [places], label=label)
    words = index_words(indices)
    marked = operand(places)._replace(element="flag", written=True)
    count = math.prod(counted)
    launch(
        recorder,
        LastKernel(operand(words), marked, axis, len(counted)),
        [words, places, raised_flag(recorder, label)],
        (count, *indexed, *counted),
        math.ceil(count / LANES),
        label,
    )
    updates, target = as_bits(updates), as_bits(target)
    kernel = LatestKernel(
        operand(updates), operand(places), operand(target, written=True), len(counted)
    )
    launch(
        recorder,
        kernel,
        [updates, places, target],
        (target.size, *target.shape, *counted),
        math.ceil(target.size / LANES),
        label,
    )


def record_scatter_elements(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    updates: View,
    target: View,
    axis: int,
    *,
    reduction: str = "none",
    label: str = "ScatterElements",
) -> None:
    """Write updates along an axis; see ``ir.families.Indexing``."""
    _copied(recorder, data, target, label)
    if not updates.size:
        return
    axis %= len(data.shape)
    no_empty_axes(target.shape, label)
    size, rank = target.shape[axis], len(indices.shape)
    lines = updates.size // updates.shape[axis]
    if reduction == "none" and _are_apart(lines, updates.shape[axis]):
        _record_last(recorder, indices, updates, target, axis, label)
        return
    updates, target = _for(reduction, updates), _for(reduction, target)
    others = [n for each, n in enumerate(updates.shape) if each != axis]
    lines = math.prod(others)
    sizes = (lines, updates.shape[axis], size, *others)
    numbers = (axis, rank, reduction)
    record_indexed(
        recorder, ScatterElementsKernel, updates, indices, target, numbers, sizes,
        lines, label,
    )  # fmt: skip


def record_scatter_nd(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    updates: View,
    target: View,
    *,
    reduction: str = "none",
    label: str = "ScatterND",
) -> None:
    """ONNX's ScatterND; see ``ir.families.Indexing``."""
    _copied(recorder, data, target, label)
    if not updates.size:
        return
    no_empty_axes(target.shape, label)
    count, outer = indices.shape[-1], len(indices.shape) - 1
    known = target.shape[:count]
    lanes, many = math.prod(updates.shape[outer:]), math.prod(updates.shape[:outer])
    if reduction == "none" and _are_apart(lanes, many):
        _record_last(recorder, indices, updates, target, None, label)
        return
    updates, target = _for(reduction, updates), _for(reduction, target)
    inner = updates.shape[outer:]
    sizes = (
        math.prod(inner),
        math.prod(updates.shape[:outer]),
        *known,
        *inner,
        *updates.shape[:outer],
    )
    numbers = (outer, count, reduction)
    record_indexed(
        recorder, ScatterNDKernel, updates, indices, target, numbers, sizes,
        math.prod(inner), label,
    )  # fmt: skip


def _for(reduction: str, view: View) -> View:
    """An array whose elements move, or are combined.

    Raises:
        ValueError: there is no arithmetic of them.
    """
    if reduction == "none":
        return as_bits(view)
    if operand(view).element not in KINDS.keys() - SUB_BYTE - {"i1"}:
        raise ValueError(f"{view.dtype} is not combined")
    return view


def _copied(recorder: Recorder[Any], data: View, target: View, label: str) -> None:
    same = data.buffer is target.buffer and data.offset == target.offset
    if not same:
        record_copy(recorder, data, target, label=label)
