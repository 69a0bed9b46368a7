"""Contractions of which one tile would take too long: sums of several, or one of what
is only repeated along K."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.kernels.reduction.commands import record_reduce
from onnxplug_cpu.compiler.kernels.rows import element_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder

_LEAD: Final = 4
"""Axes of A before those of K; B has two."""


def record_repeated_sum(
    recorder: Recorder,
    record: Callable[[View, View, View], None],
    axes: Sequence[int],
    a: View,
    b: View,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a contraction of which all terms along *axes* are the same.

    Args:
        record: as :func:`record_long_sum` takes it, and the others but *axes*.
    """
    count = math.prod(a.shape[axis] for axis in axes)
    for axis in axes:
        a, b = _part(a, axis, 0, 1), _part(b, axis - 2, 0, 1)
    total = out if epilogue is None else recorder.temporary(out.dtype, out.shape)
    record(a, b, total)
    formula = Formula(element_of(total))
    if total.dtype.kind in "iu":  # which wrap
        count %= 1 << 8 * total.dtype.itemsize
        by = recorder.constant(np.array(count, np.uint64).astype(total.dtype))
    else:
        by = recorder.constant(np.array(count, total.dtype))
    value = formula.step("Mul", formula.read(total), formula.read(by))
    formula.record(recorder, value, total, label)
    _record_behind(recorder, total, epilogue, label)


def record_long_sum(
    recorder: Recorder,
    record: Callable[[View, View, View], None],
    parts: int,
    a: View,
    b: View,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a contraction as the sum of some over parts of K.

    Args:
        record: records the contraction of two parts to a third view.
        parts: of the longest axis of K.
        a, b, out, epilogue: as :func:`~.commands.record_contraction` takes them.
        label: for profiles.
    """
    axis = max(range(_LEAD, len(a.shape)), key=lambda axis: a.shape[axis])
    size = a.shape[axis]
    each = -(-size // parts)
    starts = range(0, size, each)
    sums = recorder.temporary(out.dtype, (len(starts), *out.shape))
    for number, start in enumerate(starts):
        count = min(each, size - start)
        within = sums.place(number)
        record(
            _part(a, axis, start, count),
            _part(b, axis - 2, start, count),
            within,
        )
    total = out if epilogue is None else recorder.temporary(out.dtype, out.shape)
    record_reduce(recorder, "ReduceSum", sums, total, (0,))
    _record_behind(recorder, total, epilogue, label)


def _record_behind(
    recorder: Recorder, total: View, epilogue: Epilogue | None, label: str
) -> None:
    if epilogue is not None:
        views = [total, *epilogue.operands]
        record_chain(recorder, epilogue.chain, views, epilogue.outputs, label=label)


def _part(view: View, axis: int, start: int, count: int) -> View:
    starts, sizes = [0] * len(view.shape), list(view.shape)
    starts[axis], sizes[axis] = start, count
    return view.slice(starts, sizes)
