"""Primitives that gather and scatter.  Their indices are in range."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug_coreml.mlprogram.registry import emits


def _as_number(writer: Any, operation: Any, x: Any) -> Any:
    """*x* as numbers: MIL moves no bools by indices."""
    if writer.kind(operation).dtype is ep.DataType.BOOL:
        return writer.mb.cast(x=x, dtype="int32")
    return x


def _restored(writer: Any, operation: Any, result: Any) -> Any:
    if writer.dtype(operation) is ep.DataType.BOOL:
        return writer.mb.cast(x=result, dtype="bool")
    return result


@emits("gather", "gather_along_axis")
def _gather(writer: Any, operation: Any, x: Any, indices: Any, *, axis: int) -> Any:
    found = getattr(writer.mb, operation.primitive)(
        x=_as_number(writer, operation, x), indices=indices, axis=axis
    )
    return _restored(writer, operation, found)


@emits("gather_nd")
def _gather_nd(writer: Any, operation: Any, x: Any, indices: Any) -> Any:
    numbers = _as_number(writer, operation, x)
    found = writer.mb.gather_nd(x=numbers, indices=indices)
    return _restored(writer, operation, found)


@emits("scatter_nd")
def _scatter_nd(writer: Any, operation: Any, x: Any, indices: Any, updates: Any) -> Any:
    made = writer.mb.scatter_nd(
        data=_as_number(writer, operation, x),
        indices=indices,
        updates=_as_number(writer, operation, updates),
        mode="update",
    )
    return _restored(writer, operation, made)
