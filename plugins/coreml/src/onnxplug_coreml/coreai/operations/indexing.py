"""Primitives that gather and scatter.  Their indices are in range."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer
from onnxplug_coreml.lowering.program import Operation


@emits("gather")
def _gather(
    writer: Writer, operation: Operation, x: Any, indices: Any, *, axis: int
) -> Any:
    rank, depth = writer.kind(operation).rank, writer.kind(operation, 1).rank
    return taken(writer, x, indices, rank, depth, axis)


def taken(
    writer: Writer, x: Any, indices: Any, rank: int, depth: int, axis: int
) -> Any:
    """numpy.take of *x* of a rank and *indices* of rank *depth*."""
    a = writer.authoring
    if axis:
        front = [axis, *(each for each in range(rank) if each != axis)]
        x = a.transpose(x, writer.counts(front))
    found = a.gather_nd(x, a.expand_dims(indices, writer.indices([depth])))
    if not axis:
        return found
    before = range(depth, depth + axis)
    after = range(depth + axis, depth + rank - 1)
    return a.transpose(found, writer.counts([*before, *range(depth), *after]))


@emits("gather_along_axis")
def _gather_along_axis(
    writer: Writer, operation: Operation, x: Any, indices: Any, *, axis: int
) -> Any:
    return writer.authoring.gather_along_axis(
        x, indices, writer.constant(np.int32(axis))
    )


@emits("gather_nd", "scatter_nd")
def _by_position(writer: Writer, operation: Operation, *operands: Any) -> Any:
    return getattr(writer.authoring, operation.primitive)(*operands)
