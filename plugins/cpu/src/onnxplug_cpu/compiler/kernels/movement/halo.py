"""Copies with zeros around them, for windows that reach beyond an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.horizontal_fusion import record_together
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy, record_fill


def record_padded(
    recorder: Recorder,
    source: View,
    target: View,
    starts: Sequence[int],
    *,
    label: str = "Pad",
) -> None:
    """Copy *source* into *target*, from the place *starts* on, and zeros around it.

    Args:
        source: any strides.
        target: the same dtype, at least as large along each axis; any strides, but no
            element twice, and no byte of the source.

    Raises:
        OutOfBounds: the source does not fit there.
    """

    def record(inner: Recorder) -> None:
        record_copy(inner, source, target.slice(starts, source.shape))
        zero = np.zeros((), target.dtype)
        for border in _borders(source.shape, target, starts):
            record_fill(inner, zero, border)

    shape = "×".join(map(str, target.shape))
    record_together(recorder, record, label=f"{label} {shape}")


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
