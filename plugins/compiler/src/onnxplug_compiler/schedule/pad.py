"""Padding: what lies around an array is constant, or copied from what is within.

Nothing is computed: each mode is a few copies between views for each side of an axis,
however much is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copies, record_copy

MODES = ("constant", "edge", "reflect", "wrap")
"""The modes of :func:`record_pad`."""


def record_pad(
    recorder: Recorder[Target],
    x: View,
    out: View,
    before: Sequence[int],
    after: Sequence[int],
    *,
    mode: str = "constant",
    value: np.ndarray[Any, Any] | None = None,
    label: str = "Pad",
) -> None:
    """Write *x* to *out* with more elements around it, or fewer.

    Args:
        x: any strides and dtype of a fixed size.
        out: of x's dtype; any strides, but no element twice.
        before, after: how many elements are added to each axis; negative numbers take
            away, before anything is added.
        mode: of :data:`MODES`; ``reflect`` does not repeat the outermost element.
        value: what is added in mode ``constant``, one element of x's dtype.

    Raises:
        ValueError: shapes or dtypes do not fit, an axis has nothing to be copied from,
            or there is no value.
    """
    sizes = [b + n + a for b, n, a in zip(before, x.shape, after, strict=True)]
    if tuple(sizes) != out.shape or x.dtype != out.dtype or mode not in MODES:
        raise ValueError(
            f"{x.dtype} {x.shape} with {list(before)} before and {list(after)} after "
            f"it, in mode {mode}, is not {out.dtype} {out.shape}"
        )
    starts, kept, added = [], [], []
    for b, n, a, size in zip(before, x.shape, after, sizes, strict=True):
        start, stop = max(0, -b), n - max(0, -a)
        starts.append(min(start, n))
        kept.append(max(0, stop - start))
        # what is taken away beyond the elements is taken from what is added
        added.append(max(0, b) if stop >= start else size)
        if mode != "constant" and not kept[-1] and size:
            raise ValueError(f"an axis without elements is padded in mode {mode}")
    if not out.size:
        return
    source = x.slice(starts, kept)
    if mode == "constant":
        if value is None or value.size != 1 or value.dtype != out.dtype:
            raise ValueError(f"what is padded with is not one {x.dtype}")
        one = value.reshape(())
        pairs = [(source, out.slice(added, source.shape))]
        filled = recorder.constant(one)
        for border in _borders(source, out, added):
            pairs.append((filled.broadcast_to(border.shape), border))
        record_copies(recorder, pairs, f"{label} {'×'.join(map(str, out.shape))}")
        return
    begin, extent = list(added), list(kept)
    record_copy(recorder, source, out.slice(begin, extent), label=label)
    for axis, size in enumerate(sizes):
        pieces = list(_pieces(mode, kept[axis], added[axis], size))
        if pieces:
            known = out.slice(begin, extent)
            pairs = [_copied(known, axis, piece) for piece in pieces]
            record_copies(recorder, pairs, label)
        begin[axis], extent[axis] = 0, size


def _borders(source: View, out: View, begin: Sequence[int]) -> Iterator[View]:
    """What lies around *source* in *out*: of each later axis only where no earlier
    one's border reaches."""
    starts, extent = [0] * len(out.shape), list(out.shape)
    for axis, (start, size) in enumerate(zip(begin, source.shape, strict=True)):
        for first, stop in ((0, start), (start + size, out.shape[axis])):
            starts[axis], extent[axis] = first, stop - first
            yield out.slice(starts, extent)
        starts[axis], extent[axis] = start, size


class _Piece(Record):
    """A part of an axis's border that is copied at once, *repeats* times.

    Attributes:
        start: of the first copy, counted from the first element that is known.
        distance: from one copy to the next.
        length: elements of a copy.
        source: the first element that is copied.
        step: from one to the next.
    """

    start: int
    repeats: int
    distance: int
    length: int
    source: int
    step: int


def _pieces(mode: str, kept: int, before: int, size: int) -> Iterator[_Piece]:
    """The pieces of an axis of *size*, of which *kept* elements behind *before* are
    known."""
    for first, stop in ((-before, 0), (kept, size - before)):
        if first == stop:
            continue
        if mode == "edge" or (mode == "reflect" and kept == 1):
            near = 0 if first < 0 or mode == "reflect" else kept - 1
            yield _Piece(first, 1, 0, stop - first, near, 0)
            continue
        # segments that are copied forwards or, when reflecting, in turn backwards
        length = kept if mode == "wrap" else kept - 1
        turns = 1 if mode == "wrap" else 2
        head = min(stop, -(-first // length) * length)
        if head > first:
            yield _piece(mode, first, head - first, length)
        whole = (stop - head) // length
        for turn in range(min(turns, whole)):
            piece = _piece(mode, head + turn * length, length, length)
            repeats = -(-(whole - turn) // turns)
            yield piece._replace(repeats=repeats, distance=turns * length)
        tail = head + whole * length
        if tail < stop:
            yield _piece(mode, tail, stop - tail, length)


def _piece(mode: str, start: int, count: int, length: int) -> _Piece:
    """A piece within one segment."""
    segment, place = divmod(start, length)
    if mode == "reflect" and segment % 2:
        return _Piece(start, 1, 0, count, length - place, -1)
    return _Piece(start, 1, 0, count, place, 1)


def _copied(known: View, axis: int, piece: _Piece) -> tuple[View, View]:
    """What a piece is copied from, and to."""
    stride, itemsize = known.strides[axis], known.dtype.itemsize

    def along(start: int, distance: int, step: int) -> View:
        return View(
            known.buffer,
            known.offset + start * stride * itemsize,
            known.dtype,
            (
                *known.shape[:axis],
                piece.repeats,
                piece.length,
                *known.shape[axis + 1 :],
            ),
            (
                *known.strides[:axis],
                distance * stride,
                step * stride,
                *known.strides[axis + 1 :],
            ),
        )

    source = along(piece.source, 0, piece.step)
    return source, along(piece.start, piece.distance, 1)
