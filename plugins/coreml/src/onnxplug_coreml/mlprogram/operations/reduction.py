"""Primitives along axes, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_coreml.mlprogram.registry import emits


@emits("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(
    writer: Any, operation: Any, x: Any, *, axes: Sequence[int], keep: bool
) -> Any:
    if not axes:
        return writer.mb.identity(x=x)
    reduce = getattr(writer.mb, operation.primitive)
    return reduce(x=x, axes=list(axes), keep_dims=keep)


@emits("argmax", "argmin")
def _find(writer: Any, operation: Any, x: Any, *, axis: int, keep: bool) -> Any:
    reduce = getattr(writer.mb, f"reduce_{operation.primitive}")
    return reduce(x=x, axis=axis, keep_dims=keep)


@emits("topk")
def _topk(
    writer: Any, operation: Any, x: Any, *, k: int, axis: int, largest: bool
) -> Any:
    return writer.mb.topk(x=x, k=k, axis=axis, ascending=not largest)


@emits("cumsum")
def _cumsum(
    writer: Any, operation: Any, x: Any, *, axis: int, exclusive: bool, backward: bool
) -> Any:
    return writer.mb.cumsum(x=x, axis=axis, exclusive=exclusive, reverse=backward)


@emits("softmax")
def _softmax(writer: Any, operation: Any, x: Any, *, axis: int) -> Any:
    return writer.mb.softmax(x=x, axis=axis)


@emits("matmul")
def _matmul(writer: Any, operation: Any, x: Any, y: Any) -> Any:
    return writer.mb.matmul(x=x, y=y)
