"""Primitives along axes, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_coreml.coreai.operations.elementwise import neg
from onnxplug_coreml.coreai.operations.movement import pad, piece
from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer
from onnxplug_coreml.lowering.program import Operation


@emits("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(
    writer: Writer, operation: Operation, x: Any, *, axes: Sequence[int], keep: bool
) -> Any:
    name = operation.primitive.replace("prod", "product")
    reduced = getattr(writer.authoring, name)(x, writer.indices(axes))
    return _dropped(writer, reduced, axes, keep)


def _dropped(writer: Writer, x: Any, axes: Sequence[int], keep: bool) -> Any:
    return x if keep else writer.authoring.shrink_dims(x, writer.indices(axes))


@emits("argmax")
def _argmax(
    writer: Writer, operation: Operation, x: Any, *, axis: int, keep: bool
) -> Any:
    a = writer.authoring
    found = a.cast(a.argmax(x, writer.constant(np.int32(axis))), np.int32)
    return _dropped(writer, found, (axis,), keep)


@emits("argmin")
def _argmin(
    writer: Writer, operation: Operation, x: Any, *, axis: int, keep: bool
) -> Any:
    opposite = neg(writer, operation, x)
    return _argmax(writer, operation, opposite, axis=axis, keep=keep)


@emits("topk")
def _topk(
    writer: Writer, operation: Operation, x: Any, *, k: int, axis: int, largest: bool
) -> Any:
    a = writer.authoring
    order = a.argsort(
        x,
        writer.constant(np.int32(axis)),
        writer.constant(np.bool_(largest)),
        writer.constant(np.bool_(True)),
    )
    where = a.cast(piece(writer, operation, order, axis, 0, k), np.int32)
    return a.gather_along_axis(x, where, writer.constant(np.int32(axis))), where


@emits("cumsum")
def _cumsum(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    axis: int,
    exclusive: bool,
    backward: bool,
) -> Any:
    a = writer.authoring
    sums = a.scan(x, writer.counts(axis), writer.constant(np.bool_(backward)), "sum")
    if not exclusive:
        return sums
    kind = operation.outputs[0]
    pads = [[0, 0] for _ in range(kind.rank)]
    pads[axis][1 if backward else 0] = 1
    padded = pad(writer, operation, sums, mode="constant", pads=pads, value=0)
    size = kind.numbers[axis]
    start = 1 if backward else 0
    return piece(writer, operation, padded, axis, start, start + size)


@emits("softmax")
def _softmax(writer: Writer, operation: Operation, x: Any, *, axis: int) -> Any:
    return writer.authoring.softmax(x, writer.constant(np.int32(axis)))


@emits("matmul")
def _matmul(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    return writer.authoring.broadcasting_batch_matmul(x, y)
