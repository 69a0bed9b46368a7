"""Segments that compute values of which only a run knows the sizes.

Of a detector's boxes there are as many as there are: a plan for each number of them
would take a thousand times as long as what is planned.  So the calls of such a segment
are computed on arrays until the same sizes have come often.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug.authoring.locks import new_lock
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule.operations.registry import OPERATORS
from onnxplug_compiler.segmentation import Unit
from onnxplug_cpu.compiler.segment import Segment, Shapes
from onnxplug_kernels import find_kernel

_EXACT: Final = frozenset(
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike "
    "Ceil Clip Div Equal Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual "
    "Max Min Mod Mul Neg Not Or ReduceMax ReduceMin Relu Sign Sqrt Sub Where "
    "Xor".split()
).union(*(OPERATORS[module].split() for module in ("indexing", "movement", "views")))
"""What gives the same bits on arrays, and is not much work for an element."""

_MOST_ELEMENTS: Final = 1 << 16
"""Of varying values: what more take on arrays is no less than a plan takes."""

_OFTEN: Final = 8
"""Runs with the same sizes for which a plan pays."""

_MOST_SHAPES: Final = 64
"""Sizes without a plan, of which the latest are known."""


def varying_values(units: Sequence[Unit]) -> frozenset[str]:
    """The values whose sizes depend on elements of others, or may."""
    varying: set[str] = set()
    for unit in units:
        follows = not varying.isdisjoint(unit.inputs) or _depends(unit)
        varying.update(unit.outputs if follows else unit.counted)
    return frozenset(varying)


def _depends(unit: Unit) -> bool:
    """Whether a call on arrays says how large its outputs are."""
    if unit.compiled:
        return False
    (call,) = unit.calls
    kernel = find_kernel(call.domain, call.op_type, call.version)
    return kernel is None or kernel.data_dependent


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
        segment: computes sizes that come often.
        on_arrays: computes others.
        varying: names of its inputs that vary.
    """

    def __init__(
        self, segment: Segment, on_arrays: KernelSequence, varying: Collection[str]
    ) -> None:
        self._segment, self._on_arrays = segment, on_arrays
        self._varying = [
            position for position, name in enumerate(segment.inputs) if name in varying
        ]
        self._unbound = (None,) * len(segment.outputs)
        self._met: dict[Shapes, int] = {}
        self._lock = new_lock()

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        shapes = tuple([array.shape for array in arrays])
        runner: Segment | KernelSequence = self._segment
        if (
            not self._segment.is_planned(shapes)
            and sum(arrays[at].size for at in self._varying) <= _MOST_ELEMENTS
            and not self._come_often(shapes)
        ):
            runner = self._on_arrays
        return tuple(runner.run(arrays, self._unbound, context))

    def _come_often(self, shapes: Shapes) -> bool:
        """Whether many of the latest runs were of these shapes."""
        with self._lock:
            met = self._met[shapes] = self._met.pop(shapes, 0) + 1
            if len(self._met) > _MOST_SHAPES:
                del self._met[next(iter(self._met))]
        return met > _OFTEN
