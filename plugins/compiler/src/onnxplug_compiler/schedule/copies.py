"""What is put together from copies between views: fills, concatenations, borders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View


def record_copy(
    recorder: Recorder[Target], source: View, target: View, *, label: str = "Copy"
) -> None:
    """Copy *source* to *target*, of the same shape and dtype, no element twice."""
    recorder.target.movement.record_copy(recorder, source, target, label=label)


def record_fill(
    recorder: Recorder[Target],
    value: np.ndarray[Any, Any],
    target: View,
    *,
    label: str = "Fill",
) -> None:
    """Write *value*, an array of one element of the target's dtype, everywhere.

    Args:
        target: any strides, but no element twice.
    """
    record_copy(recorder, _filled(recorder, value, target), target, label=label)


def _filled(
    recorder: Recorder[Target], value: np.ndarray[Any, Any], target: View
) -> View:
    return recorder.constant(value.reshape(())).broadcast_to(target.shape)


def record_concat(
    recorder: Recorder[Target],
    sources: Sequence[View],
    target: View,
    axis: int,
    *,
    label: str = "Concat",
) -> None:
    """Write *sources* one after another along *axis* of *target*.

    Args:
        sources: any strides; of the target's dtype, and of its shape except along
            *axis*, where their sizes add up to its size.
        target: any strides, but no element twice, and no byte of a source.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    axis %= len(target.shape)
    if sum(source.shape[axis] for source in sources) != target.shape[axis]:
        raise ValueError(
            f"sources of sizes {[source.shape[axis] for source in sources]} along "
            f"axis {axis} do not fill a target of size {target.shape[axis]}"
        )
    pairs = []
    start = 0
    for source in sources:
        starts = [0] * len(target.shape)
        sizes = list(target.shape)
        starts[axis], sizes[axis] = start, source.shape[axis]
        pairs.append((source, target.slice(starts, sizes)))
        start += source.shape[axis]
    record_copies(recorder, pairs, f"{label} {_sizes(target)}")


def record_copies(
    recorder: Recorder[Target], pairs: Sequence[tuple[View, View]], label: str
) -> None:
    """Copy the first view of each pair to the second; no target is in what others read
    or write."""
    recorder.target.movement.record_copies(recorder, pairs, label=label)


def record_padded(
    recorder: Recorder[Target],
    source: View,
    target: View,
    starts: Sequence[int],
    *,
    value: View | None = None,
    label: str = "Pad",
) -> None:
    """Copy *source* into *target*, from the place *starts* on, and *value* around it.

    Args:
        source: any strides.
        target: the same dtype, at least as large along each axis; any strides, but no
            element twice, and no byte of the source.
        value: a scalar of that dtype; ``None``: zero.

    Raises:
        OutOfBounds: the source does not fit there.
    """
    inside = source, target.slice(starts, source.shape)
    if value is None:
        around = _zeros(recorder, target, starts, source.shape)
    else:
        borders = _borders(source.shape, target, starts)
        around = [(value.broadcast_to(border.shape), border) for border in borders]
    record_copies(recorder, [inside, *around], f"{label} {_sizes(target)}")


def record_border(
    recorder: Recorder[Target],
    target: View,
    starts: Sequence[int],
    shape: Sequence[int],
    value: View,
) -> None:
    """Write *value*, an element without axes, where :func:`record_zeros` writes
    zeros."""
    around = [
        (value.broadcast_to(border.shape), border)
        for border in _borders(shape, target, starts)
    ]
    record_copies(recorder, around, f"Pad {_sizes(target)}")


def record_zeros(
    recorder: Recorder[Target],
    target: View,
    starts: Sequence[int],
    shape: Sequence[int],
    *,
    label: str = "Zeros",
) -> None:
    """Write zeros around the elements of *target* that a value of *shape* has, from the
    place *starts* on.

    Args:
        target: any strides, but no element twice.
    """
    around = _zeros(recorder, target, starts, shape)
    record_copies(recorder, around, f"{label} {_sizes(target)}")


def _zeros(
    recorder: Recorder[Target],
    target: View,
    starts: Sequence[int],
    shape: Sequence[int],
) -> list[tuple[View, View]]:
    zero = np.zeros((), target.dtype)
    return [
        (_filled(recorder, zero, border), border)
        for border in _borders(shape, target, starts)
    ]


def _sizes(view: View) -> str:
    return "×".join(map(str, view.shape))


def _borders(
    shape: Sequence[int], target: View, starts: Sequence[int]
) -> Iterator[View]:
    """What lies around the middle, axis by axis, each element once."""
    first, size = [0] * len(shape), list(target.shape)
    for axis, (start, middle) in enumerate(zip(starts, shape, strict=True)):
        end = start + middle
        for begin, count in ((0, start), (end, target.shape[axis] - end)):
            if count:
                first[axis], size[axis] = begin, count
                yield target.slice(first, size)
        first[axis], size[axis] = start, middle
