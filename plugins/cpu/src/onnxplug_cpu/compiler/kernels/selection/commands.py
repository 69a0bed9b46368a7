"""Selections as commands: where extremes are, and the first elements in order."""

from __future__ import annotations

from typing import Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, chunks, collapse
from onnxplug_cpu.compiler.kernels.selection.extremes import (
    COLUMNS,
    ArgAcross,
    ArgAlong,
)
from onnxplug_cpu.compiler.kernels.selection.top import (
    FEW,
    TopFew,
    TopMany,
    room_for,
    scratch_bytes,
)

_SIDE_BY_SIDE: Final = 8
"""Columns at least that are looked at side by side."""


def record_arg_extreme(
    recorder: Recorder,
    x: View,
    out: View,
    axis: int,
    *,
    largest: bool,
    last: bool = False,
) -> None:
    """See ``ir.selection.Selection.record_arg_extreme``.

    Raises:
        ValueError: an axis takes one chunk too long, or the elements are no numbers.
    """
    label = f"{'ArgMax' if largest else 'ArgMin'} {'×'.join(map(str, x.shape))}"
    if not out.size:
        return
    if x.strides[axis] == 0:
        _record_place(recorder, x.shape[axis] - 1 if last else 0, out, label)
        return
    once = tuple(
        0 if s == 0 else n - 1 for n, s in zip(x.shape, x.strides, strict=True)
    )
    shape = tuple(n + 1 for n in once)
    if shape != x.shape:
        kept = tuple(1 if a == axis else n for a, n in enumerate(shape))
        places = recorder.temporary(out.dtype, kept)
        some = x.slice((0,) * len(shape), shape)
        record_arg_extreme(recorder, some, places, axis, largest=largest, last=last)
        _record_copy(recorder, places.broadcast_to(out.shape), out, label)
        return
    _require_short(x.shape[axis], x.dtype.itemsize / 16, label)
    element = _element_of(x)
    rows = [_without(view, axis) for view in (x, out)]
    step = x.strides[axis] * x.dtype.itemsize
    words: dict[str, Word] = {"size": x.shape[axis], "step": step}
    layout = collapse(rows)
    axes = layout.axes
    nanoseconds = x.nbytes / 16
    kernel: ArgAlong | ArgAcross
    if step != x.dtype.itemsize and axes and _are_near(axes[-1], x, out):
        *outer, columns = axes
        blocks = -(-columns.size // COLUMNS)
        by = tuple(stride * COLUMNS for stride in columns.strides)
        axes = (*outer, Axis(blocks, by))
        strided = columns.strides[1] != out.dtype.itemsize
        kernel = ArgAcross(len(axes), element, largest, last, strided)
        words |= {"columns": columns.size, "out_step": columns.strides[1]}
    else:
        strided = step != x.dtype.itemsize
        nanoseconds *= 8 if strided else 1
        kernel = ArgAlong(len(axes), element, largest, last, strided)
    items = Layout((), tuple(axes)).size
    count, each = chunks(recorder, items, nanoseconds + 20 * items)
    walked = kernel.walk.values(layout.addresses, axes, each)
    call(
        recorder,
        Kernel(kernel),
        walked | words,
        chunks=count,
        label=label,
        nbytes=x.nbytes + out.nbytes,
    )


def _are_near(columns: Axis, x: View, out: View) -> bool:
    return columns.size >= _SIDE_BY_SIDE and columns.strides[0] == x.dtype.itemsize


def _record_place(recorder: Recorder, place: int, out: View, label: str) -> None:
    constant = recorder.constant(np.full((1,) * len(out.shape), place, np.int64))
    _record_copy(recorder, constant.broadcast_to(out.shape), out, label)


def _record_copy(recorder: Recorder, source: View, target: View, label: str) -> None:
    from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

    record_copy(recorder, source, target, label=label)


def record_top(
    recorder: Recorder,
    x: View,
    values: View,
    indices: View,
    axis: int,
    *,
    largest: bool,
) -> None:
    """See ``ir.selection.Selection.record_top``.

    Raises:
        ValueError: an axis takes one chunk too long, or the elements are no numbers.
    """
    if not values.size:
        return
    size, wanted = x.shape[axis], values.shape[axis]
    label = f"TopK {wanted} of {'×'.join(map(str, x.shape))}"
    # where almost all that comes is better than what was there
    each_row = size * (4 if wanted <= FEW else 20)
    _require_short(1, each_row, label)
    views = x, values, indices
    layout = collapse([_without(view, axis) for view in views])
    steps = [view.strides[axis] * view.dtype.itemsize for view in views]
    words: dict[str, Word] = {
        "size": size,
        "count": wanted,
        "step": steps[0],
        "values_step": steps[1],
        "indices_step": steps[2],
    }
    strided = steps[0] != x.dtype.itemsize
    form = len(layout.axes), _element_of(x), largest, strided
    kernel: TopFew | TopMany = TopFew(*form)
    if wanted > FEW:
        kernel = TopMany(*form)
        room = room_for(wanted, size)
        nbytes = scratch_bytes(kernel.element, room)
        words["scratch"], words["distance"] = worker_memory(recorder, nbytes)
        words["room"] = room
    count, each = chunks(recorder, layout.size, layout.size * (20 + each_row / 8))
    walked = kernel.walk.values(layout.addresses, layout.axes, each)
    call(
        recorder,
        Kernel(kernel),
        walked | words,
        chunks=count,
        label=label,
        nbytes=x.nbytes + values.nbytes + indices.nbytes,
    )


def _require_short(size: int, nanoseconds: float, label: str) -> None:
    """Raise where one row takes long, which is not cut."""
    if fewest_chunks(1e-9 * nanoseconds * size / 2) > 1:
        raise ValueError(f"{label} has rows that take one thread too long")


def _element_of(x: View) -> str:
    element = element_of(x.dtype)
    if element is None:
        raise ValueError(f"no elements of {x.dtype} are selected")
    return element


def _without(view: View, axis: int) -> View:
    shape = (*view.shape[:axis], *view.shape[axis + 1 :])
    strides = (*view.strides[:axis], *view.strides[axis + 1 :])
    return View(view.buffer, view.offset, view.dtype, shape, strides)
