"""Segments that compute values of which only a run knows the sizes.

Of a detector's boxes there are as many as there are: a plan for each number of them
would take a thousand times as long as what is planned.  So the calls of such a segment
are computed on arrays until the same sizes have come often.  And where each box is
computed by itself, plans are for powers of two, and boxes are added.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.bounds import MOST_AXES, normal_axis
from onnxplug.authoring.kernels import KernelSequence
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule.operations.registry import OPERATORS
from onnxplug_compiler.segmentation import Unit, sizes_depend
from onnxplug_cpu.compiler.segment import Segment, Shapes

_EXACT: Final = frozenset(
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike "
    "Ceil Clip Div Equal Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual "
    "Max Min Mod Mul Neg Not Or ReduceMax ReduceMin Relu Sign Sqrt Sub Where "
    "Xor".split()
).union(
    *(
        OPERATORS[module].split()
        for module in ("indexing", "kept", "movement", "one_hot", "selection", "views")
    )
)
"""What gives the same bits on arrays, and is not much work for an element."""

_MOST_ELEMENTS: Final = 1 << 16
"""Of varying values: what more take on arrays is no less than a plan takes."""

_OFTEN: Final = 8
"""Runs with the same sizes for which a plan pays."""

_AGAIN: Final = 1
"""The same of sizes that others are rounded up to."""

_BLANKS: Final[Mapping[str, tuple[tuple[int, float | None], ...]]] = MappingProxyType(
    {
        "NonMaxSuppression": ((1, None), (2, math.nan)),
        "NonZero": ((0, 0.0),),
        "Compress": ((0, None), (0, 0.0)),
    }
)
"""For each input of what keeps nothing of blank places their axis, and what is blank:
a score of NaN is above no limit."""

_FEWEST: Final = 16
"""Places that are planned for at least."""

_SETTLED: Final = 64
"""Runs of the same sizes after which these have a plan of their own."""

_MOST_SHAPES: Final = 64
"""Sizes without a plan, of which the latest are known."""


def varying_values(units: Sequence[Unit]) -> frozenset[str]:
    """The values whose sizes depend on elements of others, or may."""
    varying: set[str] = set()
    for unit in units:
        follows = not varying.isdisjoint(unit.inputs) or (
            not unit.compiled and sizes_depend(unit.calls[0])
        )
        varying.update(unit.outputs if follows else unit.counted)
    return frozenset(varying)


def is_simple(calls: Sequence[Call]) -> bool:
    """Whether these may as well be computed on arrays, as long as they are few."""
    return all(
        call.domain == ""
        and call.function is not None
        and (call.traits.of_shapes or call.op_type in _EXACT)
        for call in calls
    )


class VaryingSegment:
    """A segment as a function of arrays, some of which have other sizes in each run.

    Args:
        segment: computes sizes that come often, and those up to them where it computes
            each place of what varies by itself.
        on_arrays: computes others.
        varying: names of its inputs that vary.
        axes: along which axis values have other sizes, as far as that is known; grows.
        calls: of the segment, as they are on arrays.
    """

    takes_context = True

    def __init__(
        self,
        segment: Segment,
        on_arrays: KernelSequence,
        varying: Collection[str],
        axes: dict[str, int],
        calls: Sequence[Call],
    ) -> None:
        self._segment, self._on_arrays = segment, on_arrays
        self._calls = calls
        self._varying = [
            position for position, name in enumerate(segment.inputs) if name in varying
        ]
        self._axes = axes
        self._unbound = (None,) * len(segment.outputs)
        self._rows: _Rows | None = None
        self._met: dict[Shapes, int] = {}
        # for sizes the planned ones that they are run as, and how many more runs so
        self._run_as: dict[Shapes, tuple[Shapes, int, int]] = {}
        self._lock = new_lock()

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        shapes = tuple([array.shape for array in arrays])
        segment = self._segment
        known = self._run_as.get(shapes)
        if known is not None:
            wanted, count, left = known
            if left:
                self._run_as[shapes] = wanted, count, left - 1
                return self._run_padded(arrays, wanted, count, context)
            self._run_as.pop(shapes, None)
            return tuple(segment.run(arrays, self._unbound, context))
        if (
            segment.is_planned(shapes)
            or sum(arrays[at].size for at in self._varying) > _MOST_ELEMENTS
        ):
            return tuple(segment.run(arrays, self._unbound, context))
        if self._rows is None:
            self._rows = self._find_rows(shapes)
        rows, wanted = self._rows, shapes
        count = rows.places(shapes)
        if count:
            wanted = rows.resized(shapes, _rounded(count))
        often = _AGAIN if count else _OFTEN
        if not segment.is_planned(wanted) and self._met_of(wanted) <= often:
            return tuple(self._on_arrays.run(arrays, self._unbound, context))
        if not count or wanted == shapes:
            return tuple(segment.run(arrays, self._unbound, context))
        if len(self._run_as) >= _MOST_SHAPES:
            self._run_as.clear()
        self._run_as[shapes] = wanted, count, _SETTLED
        return self._run_padded(arrays, wanted, count, context)

    def _run_padded(
        self,
        arrays: Sequence[Any],
        wanted: Shapes,
        count: int,
        context: ep.RunContext | None,
    ) -> tuple[Any, ...]:
        """The first *count* places of what the segment gives for these shapes."""
        rows = self._rows
        assert rows is not None
        padded = rows.padded(arrays, wanted)
        return rows.cut(self._segment.run(padded, self._unbound, context), count)

    def _find_rows(self, shapes: Shapes) -> _Rows:
        segment = self._segment
        inputs: dict[int, int] = {}
        for at in self._varying:
            axis = self._axes.get(segment.inputs[at])
            if axis is None:
                return _Rows({}, {})
            inputs[at] = normal_axis(axis, len(shapes[at]))
        rows = _Rows(inputs, {})
        if len(self._calls) == 1 and self._calls[0].op_type in _BLANKS:
            return self._blank(self._calls[0], inputs, shapes)
        axes = {segment.inputs[at]: axis for at, axis in inputs.items()}
        few, many = (rows.resized(shapes, _FEWEST * by) for by in (1, 2))
        found = segment.row_axes(few, many, axes)
        if found is None:
            return _Rows({}, {})
        outputs = {
            number: found[name]
            for number, name in enumerate(segment.outputs)
            if name in found
        }
        self._axes.update({segment.outputs[at]: axis for at, axis in outputs.items()})
        return _Rows(inputs, outputs)

    def _blank(self, call: Call, inputs: Mapping[int, int], shapes: Shapes) -> _Rows:
        """Of a call that keeps nothing of blank places."""
        blanks, names = _BLANKS[call.op_type], self._segment.inputs
        if call.attributes.get("axis"):  # of Compress: places are of another one
            return _Rows({}, {})
        for at, axis in inputs.items():
            wanted = [
                blanks[n][0] for n, name in enumerate(call.inputs) if name == names[at]
            ]
            if wanted != [axis]:
                return _Rows({}, {})
        numbers = {at: call.inputs.index(names[at]) for at in inputs}
        return _Rows(inputs, {}, {at: blanks[n][1] for at, n in numbers.items()})

    def _met_of(self, shapes: Shapes) -> int:
        """How many of the latest runs, with this one, wanted these shapes."""
        with self._lock:
            met = self._met[shapes] = self._met.pop(shapes, 0) + 1
            if len(self._met) > _MOST_SHAPES:
                del self._met[next(iter(self._met))]
        return met


_ALL: Final = (slice(None),) * MOST_AXES
"""Of each axis."""


class _Rows(Record):
    """Which axes of inputs and outputs, by position, have the places that vary; none
    where not each place is computed by itself.

    Attributes:
        blanks: what inputs have in places that are added; like the last one if nothing.
    """

    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    blanks: Mapping[int, float | None] = MappingProxyType({})

    def places(self, shapes: Shapes) -> int:
        """How many places inputs have; 0 if not all have as many, or none has any."""
        counts = {shapes[at][axis] for at, axis in self.inputs.items()}
        return counts.pop() if len(counts) == 1 else 0

    def resized(self, shapes: Shapes, count: int) -> Shapes:
        """The shapes with *count* places."""
        found = list(shapes)
        for at, axis in self.inputs.items():
            found[at] = (*found[at][:axis], count, *found[at][axis + 1 :])
        return tuple(found)

    def padded(self, arrays: Sequence[Any], shapes: Shapes) -> list[Any]:
        """The arrays with more places, which are like the last one: so they give no
        error that it does not."""
        found = list(arrays)
        for at, axis in self.inputs.items():
            array = arrays[at]
            more = found[at] = np.empty(shapes[at], array.dtype)
            count, before = array.shape[axis], _ALL[:axis]
            more[(*before, slice(count))] = array
            blank = self.blanks.get(at)
            if blank is None:
                blank = array[(*before, slice(count - 1, count))]
            more[(*before, slice(count, None))] = blank
        return found

    def cut(self, results: Sequence[Any], count: int) -> tuple[Any, ...]:
        """The results of so many places."""
        found = list(results)
        for at, axis in self.outputs.items():
            part = found[at][(*_ALL[:axis], slice(count))]
            found[at] = part if part.flags.c_contiguous else part.copy()
        return tuple(found)


def _rounded(count: int) -> int:
    """The next power of two, for a few plans to be enough."""
    return max(_FEWEST, 1 << (count - 1).bit_length())
