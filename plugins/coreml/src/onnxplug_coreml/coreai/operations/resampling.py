"""Primitives that sample between elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_coreml.coreai.operations.indexing import taken
from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer
from onnxplug_coreml.lowering.positions import nearest
from onnxplug_coreml.lowering.program import Operation


@emits("resize")
def _resize(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    shape: Sequence[int],
    mode: str,
    coordinates: str,
    rounding: str,
    scales: Sequence[float],
) -> Any:
    sizes = writer.kind(operation).numbers[2:]
    if mode == "nearest":
        positions = [
            nearest(*each, coordinates, rounding)
            for each in zip(sizes, shape, scales, strict=True)
        ]
        found = [_rounded(*each) for each in zip(sizes, shape, scales, strict=True)]
        if not all(map(np.array_equal, positions, found)):
            for axis, wanted in enumerate(positions, start=2):
                x = taken(writer, x, writer.indices(wanted), 4, 1, axis)
            return x
        coordinates = "half_pixel"
    # the engine finds what is at (i + 0.5 - offset) / factor - 0.5
    factors, offsets = [1.0, 1.0], [0.0, 0.0]
    for size, wanted, scale in zip(sizes, shape, scales, strict=True):
        if coordinates == "align_corners":
            # of one position only the first is asked for
            scale = (wanted - 1) / (size - 1) if min(size, wanted) > 1 else wanted
        factors.append(scale)
        offsets.append(0.0 if coordinates == "half_pixel" else 0.5 * (1 - scale))
    return writer.authoring.interpolate(
        x,
        writer.indices(operation.outputs[0].numbers),
        writer.constant(np.asarray(factors, np.float32)),
        writer.constant(np.asarray(offsets, np.float32)),
        "linear" if mode == "linear" else "nearest_neighbor",
    )


def _rounded(size: int, wanted: int, scale: float) -> Any:
    """The positions that the engine takes for half pixels: ties go to even ones."""
    there = np.arange(wanted, dtype=np.float32) + np.float32(0.5)
    here = there / np.float32(scale) - np.float32(0.5)
    return np.clip(np.rint(here), 0, size - 1)
