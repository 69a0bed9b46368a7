"""Contractions of which one tile would take too long: sums of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.kernels.reduction.commands import record_reduce

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_cpu.compiler.ir.recorder import Recorder
    from onnxplug_cpu.compiler.kernels.contraction.epilogue import Epilogue

_LEAD: Final = 4
"""Axes of A before those of K; B has two."""


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
            _part(b, axis - _LEAD + 2, start, count),
            within,
        )
    total = out if epilogue is None else recorder.temporary(out.dtype, out.shape)
    record_reduce(recorder, "ReduceSum", sums, total, (0,))
    if epilogue is not None:
        views = [total, *epilogue.operands]
        record_chain(recorder, epilogue.chain, views, epilogue.outputs, label=label)


def _part(view: View, axis: int, start: int, count: int) -> View:
    starts, sizes = [0] * len(view.shape), list(view.shape)
    starts[axis], sizes[axis] = start, count
    return view.slice(starts, sizes)
