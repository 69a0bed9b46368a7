"""Selections as commands: where extremes are, and the first elements in order."""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.selection import Limits
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.row_copy import row_class
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Layout, chunks, collapse
from onnxplug_cpu.compiler.kernels.selection.collect import KeptRows, NonZero
from onnxplug_cpu.compiler.kernels.selection.distinct import Distinct
from onnxplug_cpu.compiler.kernels.selection.distinct import (
    scratch_bytes as distinct_bytes,
)
from onnxplug_cpu.compiler.kernels.selection.extremes import (
    COLUMNS,
    ArgAcross,
    ArgAlong,
)
from onnxplug_cpu.compiler.kernels.selection.suppression import (
    SelectedList,
    Suppression,
)
from onnxplug_cpu.compiler.kernels.selection.suppression import (
    scratch_bytes as suppression_bytes,
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


def record_suppression(
    recorder: Recorder,
    boxes: View,
    scores: View,
    limits: Limits,
    out: View,
    count: View,
    *,
    centers: bool,
) -> None:
    """See ``ir.selection.Selection.record_suppression``.

    Raises:
        ValueError: a class takes one chunk too long.
    """
    images, classes, number = scores.shape
    most, tasks = out.shape[0] // max(images * classes, 1), images * classes
    label = f"NonMaxSuppression {'×'.join(map(str, scores.shape))}"
    _require_short(number, 40, label)
    if scores.strides[2] != 1:
        near = recorder.temporary(scores.dtype, scores.shape)
        _record_copy(recorder, scores, near, label)
        scores = near
    chosen = recorder.temporary(np.dtype(np.int32), (tasks, most))
    counts = recorder.temporary(np.dtype(np.int64), (tasks,))
    scratch, distance = worker_memory(recorder, suppression_bytes(number, most))
    chunk_count, each = chunks(recorder, tasks, tasks * (50 + number * 0.5))
    itemsize = boxes.dtype.itemsize
    shared: dict[str, Word] = {
        "classes": classes,
        "tasks": tasks,
        "most": most,
        "chosen": chosen.address,
        "chosen_counts": counts.address,
    }
    words: dict[str, Word] = {
        "boxes": boxes.address,
        "box_image": boxes.strides[0] * itemsize,
        "box_step": boxes.strides[1] * itemsize,
        "box_side": boxes.strides[2] * itemsize,
        "scores": scores.address,
        "score_image": scores.strides[0] * itemsize,
        "score_class": scores.strides[1] * itemsize,
        "count": number,
        "each": each,
        "limit": limits.most.address,
        "overlap": limits.overlap.address,
        "least": limits.least.address,
        "bad_overlap": recorder.check(_bad_overlap),
        "scratch": scratch,
        "distance": distance,
    }
    call(
        recorder,
        Kernel(Suppression(centers)),
        shared | words,
        chunks=chunk_count,
        label=label,
        nbytes=boxes.nbytes + scores.nbytes,
    )
    listed: dict[str, Word] = {"out": out.address, "total": count.address}
    call(recorder, Kernel(SelectedList()), shared | listed, label=label)


def _bad_overlap(bits: int) -> Exception:
    (overlap,) = struct.unpack("<f", struct.pack("<I", bits))
    return ValueError(f"iou_threshold is {overlap}; expected a number from 0 to 1")


def record_non_zero(recorder: Recorder, x: View, out: View, count: View) -> None:
    """See ``ir.selection.Selection.record_non_zero``.

    Raises:
        ValueError: it takes one thread too long, or the elements are no numbers.
    """
    rank = len(x.shape)
    label = f"NonZero {'×'.join(map(str, x.shape))}"
    _require_short(x.size, 1.0 + rank, label)
    itemsize = x.dtype.itemsize
    words: dict[str, Word] = {
        "x": x.address,
        "rows": math.prod(x.shape[:-1]),
        "out": out.address,
        "total": count.address,
    }
    for axis, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        words |= {f"size{axis}": size, f"step{axis}": stride * itemsize}
    strided = x.strides[-1] != 1 and x.shape[-1] > 1
    kernel = NonZero(rank, _element_of(x), strided)
    call(recorder, Kernel(kernel), words, label=label, nbytes=2 * x.nbytes)


def record_compress(
    recorder: Recorder, x: View, condition: View, out: View, count: View
) -> None:
    """See ``ir.selection.Selection.record_compress``.

    Raises:
        ValueError: it takes one thread too long.
    """
    outer, size, inner = x.shape
    nbytes = inner * x.dtype.itemsize
    label = f"Compress {outer}×{size}×{inner}"
    _require_short(outer * size, 2.0 + nbytes / 8, label)
    places = recorder.temporary(np.dtype(np.int64), (1, condition.shape[0]))
    record_non_zero(recorder, condition, places, count)
    if not out.size:
        return
    words: dict[str, Word] = {
        "x": x.address,
        "x_step": x.strides[0] * x.dtype.itemsize,
        "outer": outer,
        "places": places.address,
        "total": count.address,
        "out": out.address,
        "nbytes": nbytes,
    }
    kernel = KeptRows(row_class(nbytes))
    call(recorder, Kernel(kernel), words, label=label, nbytes=2 * x.nbytes)


def record_distinct(
    recorder: Recorder,
    x: View,
    values: View,
    firsts: View,
    inverse: View,
    counts: View,
    count: View,
) -> None:
    """See ``ir.selection.Selection.record_distinct``.

    Raises:
        ValueError: it takes one thread too long, or the elements are no numbers.
    """
    label = f"Unique {x.size}"
    _require_short(x.size, 60.0, label)
    kernel = Distinct(_element_of(x))
    scratch = recorder.temporary(
        np.dtype(np.uint8), (distinct_bytes(kernel.element, x.size),)
    )
    words: dict[str, Word] = {
        "x": x.address,
        "size": x.size,
        "scratch": scratch.address,
        "values": values.address,
        "firsts": firsts.address,
        "inverse": inverse.address,
        "counts": counts.address,
        "total": count.address,
    }
    call(recorder, Kernel(kernel), words, label=label, nbytes=2 * x.nbytes)


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
