"""Primitives on windows: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_coreml.coreai.operations.movement import pad
from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer, tensor_type
from onnxplug_coreml.lowering.program import Operation


def _surrounded(
    writer: Writer, operation: Operation, x: Any, pads: Any, value: float
) -> Any:
    """With *value* around; windows are not padded by the engine."""
    if not any(map(any, pads)):
        return x
    full = ((0, 0), (0, 0), *pads)
    return pad(writer, operation, x, mode="constant", pads=full, value=value)


def _in_two(numbers: Sequence[Any], other: Any) -> list[Any]:
    """What there is for each spatial dimension, with one more if there is just one."""
    return [*numbers, other] if len(numbers) == 1 else list(numbers)


def _widened(writer: Writer, x: Any, spatial: int) -> Any:
    """[N, C, L] as [N, C, L, 1]; the engine's windows have 2 or 3 dimensions."""
    if spatial > 1:
        return x
    return writer.authoring.expand_dims(x, writer.indices([3]))


def _narrowed(writer: Writer, x: Any, spatial: int) -> Any:
    if spatial > 1:
        return x
    return writer.authoring.shrink_dims(x, writer.indices([3]))


def _biased(writer: Writer, x: Any, bias: Any, spatial: int) -> Any:
    if bias is None:
        return x
    a = writer.authoring
    axes = list(range(1, max(spatial, 2) + 1))
    return a.broadcasting_add(x, a.expand_dims(bias, writer.indices(axes)))


@emits("conv")
def _conv(
    writer: Writer,
    operation: Operation,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
    groups: int,
) -> Any:
    spatial = len(strides)
    convolve = getattr(writer.authoring, f"conv{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, 0)
    found = convolve(
        _widened(writer, x, spatial),
        _widened(writer, weight, spatial),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two(dilations, 1)),
        writer.counts(groups),
    )
    return _narrowed(writer, _biased(writer, found, bias, spatial), spatial)


@emits("conv_transpose")
def _conv_transpose(
    writer: Writer,
    operation: Operation,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
    output_pads: Sequence[int],
    groups: int,
) -> Any:
    spatial = len(strides)
    convolve = getattr(writer.authoring, f"conv_transpose{max(spatial, 2)}d")
    found = convolve(
        _widened(writer, x, spatial),
        _widened(writer, weight, spatial),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two([before for before, _ in pads], 0)),
        writer.counts(_in_two(dilations, 1)),
        writer.counts(_in_two(output_pads, 0)),
        writer.counts(groups),
    )
    return _narrowed(writer, _biased(writer, found, bias, spatial), spatial)


@emits("max_pool")
def _max_pool(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
) -> Any:
    spatial = len(kernel)
    pool = getattr(writer.authoring, f"maxpool{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, -np.inf)
    kind = operation.outputs[0]
    shape = [*kind.shape[:2], *_in_two(kind.shape[2:], 1)]
    found = pool(
        tensor_type(writer.authoring, kind.dtype, shape),
        _widened(writer, x, spatial),
        writer.counts(_in_two(kernel, 1)),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two(dilations, 1)),
        writer.constant(np.bool_(False)),
    )
    return _narrowed(writer, found, spatial)


@emits("avg_pool")
def _avg_pool(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    count_pads: bool,
) -> Any:
    a = writer.authoring
    spatial = len(kernel)
    pool = getattr(a, f"sumpool{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, 0)
    total = pool(
        _widened(writer, x, spatial),
        writer.counts(_in_two(kernel, 1)),
        writer.counts(_in_two(strides, 1)),
        writer.counts((1,) * max(spatial, 2)),
    )
    total = _narrowed(writer, total, spatial)
    if count_pads or not any(map(any, pads)):
        return a.broadcasting_mul(total, writer.like(operation, 1 / np.prod(kernel)))
    sizes = writer.kind(operation).numbers[2:]
    dtype = operation.outputs[0].dtype.numpy
    counts = _inside(sizes, kernel, strides, pads, operation.outputs[0].numbers[2:])
    return a.broadcasting_divide(total, writer.constant(counts.astype(dtype)))


def _inside(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    windows: Sequence[int],
) -> Any:
    """How many elements of each window are not padding."""
    counts: Any = np.ones((), np.int64)
    for size, width, stride, (before, _), count in zip(
        sizes, kernel, strides, pads, windows, strict=True
    ):
        starts = np.arange(count) * stride - before
        here = np.minimum(starts + width, size) - np.maximum(starts, 0)
        counts = np.multiply.outer(counts, here)
    return counts
