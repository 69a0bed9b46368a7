"""Primitives that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.sizes import Extent
from onnxplug_coreml.mlprogram.registry import emits


@emits("identity")
def _identity(writer: Any, operation: Any, x: Any) -> Any:
    return writer.mb.identity(x=x)


@emits("reshape")
def _reshape(writer: Any, operation: Any, x: Any, *, shape: Sequence[Extent]) -> Any:
    return reshape(writer, x, writer.kind(operation).shape, shape)


def reshape(
    writer: Any, x: Any, before: Sequence[Extent], shape: Sequence[Extent]
) -> Any:
    """*x*, of shape *before*, in another shape."""
    if not shape:
        axes = list(range(len(before)))
        return writer.mb.squeeze(x=x, axes=axes) if axes else writer.mb.identity(x=x)
    if not before:
        return writer.mb.expand_dims(x=x, axes=list(range(len(shape))))
    unknown = [at for at, size in enumerate(shape) if not isinstance(size, int)]
    if len(unknown) == 1:
        sizes: Any = np.array(
            [size if isinstance(size, int) else -1 for size in shape], np.int32
        )
    else:
        sizes = writer.sizes(shape)
    return writer.mb.reshape(x=x, shape=sizes)


@emits("transpose")
def _transpose(writer: Any, operation: Any, x: Any, *, permutation: Any) -> Any:
    if len(permutation) < 2:
        return writer.mb.identity(x=x)
    return writer.mb.transpose(x=x, perm=list(permutation))


@emits("broadcast_to")
def _broadcast_to(
    writer: Any, operation: Any, x: Any, *, shape: Sequence[Extent]
) -> Any:
    return broadcast_to(writer, x, writer.kind(operation).shape, shape)


def broadcast_to(
    writer: Any, x: Any, before: Sequence[Extent], shape: Sequence[Extent]
) -> Any:
    """*x*, of shape *before*, repeated to *shape*."""
    if tuple(before) == tuple(shape):
        return writer.mb.identity(x=x)
    added = len(shape) - len(before)
    if added:
        x = writer.mb.expand_dims(x=x, axes=list(range(added)))
    repeats: list[Extent] = []
    for mine, wanted in zip((1,) * added + tuple(before), shape, strict=True):
        if mine == wanted:
            repeats.append(1)
        elif mine == 1:
            repeats.append(wanted)
        else:
            raise NotImplementedError(f"a size of {mine} repeated to {wanted}")
    return writer.mb.tile(x=x, reps=writer.sizes(repeats))


@emits("tile")
def _tile(writer: Any, operation: Any, x: Any, *, repeats: Sequence[int]) -> Any:
    if not repeats:
        return writer.mb.identity(x=x)
    return writer.mb.tile(x=x, reps=list(repeats))


@emits("concat")
def _concat(writer: Any, operation: Any, *operands: Any, axis: int) -> Any:
    return writer.mb.concat(values=list(operands), axis=axis)


@emits("split")
def _split(
    writer: Any, operation: Any, x: Any, *, axis: int, sizes: Sequence[int]
) -> Any:
    if len(sizes) == 1:
        return writer.mb.identity(x=x)
    return writer.mb.split(x=x, split_sizes=list(sizes), axis=axis)


@emits("slice")
def _slice(
    writer: Any, operation: Any, x: Any, *, starts: Any, stops: Any, steps: Any
) -> Any:
    if not starts:
        return writer.mb.identity(x=x)
    sizes = writer.kind(operation).shape
    ends = [
        stop if stop is None or not isinstance(size, int) else min(stop, size)
        for stop, size in zip(stops, sizes, strict=True)
    ]
    return writer.mb.slice_by_index(
        x=x,
        begin=list(starts),
        end=[0 if end is None else end for end in ends],
        stride=list(steps),
        end_mask=[end is None for end in ends],
    )


@emits("reverse")
def _reverse(writer: Any, operation: Any, x: Any, *, axes: Sequence[int]) -> Any:
    if not axes:
        return writer.mb.identity(x=x)
    return writer.mb.reverse(x=x, axes=list(axes))


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@emits("pad")
def _pad(
    writer: Any, operation: Any, x: Any, *, mode: str, pads: Any, value: float
) -> Any:
    kind = writer.kind(operation)
    if not any(map(any, pads)):
        return writer.mb.identity(x=x)
    if kind.dtype not in (ep.DataType.FLOAT32, ep.DataType.FLOAT16):
        return _pad_by_concat(writer, x, kind, mode, pads, value)
    if mode != "constant" and any(map(any, pads[:-2])):
        raise NotImplementedError(f"mode {mode} before the last two dimensions")
    return writer.mb.pad(
        x=x,
        pad=[each for pair in pads for each in pair],
        mode=_MODES[mode],
        constant_val=writer.like(x, value),
    )


def _pad_by_concat(
    writer: Any, x: Any, kind: Any, mode: str, pads: Any, value: float
) -> Any:
    """As ``concat``: MIL pads floats only."""
    if mode != "constant" or not kind.is_static:
        raise NotImplementedError(f"{kind.dtype} in mode {mode}")
    shape = list(kind.numbers)
    for axis, pair in enumerate(pads):
        parts = [x]
        for at, width in enumerate(pair):
            if width:
                block = [*shape[:axis], width, *shape[axis + 1 :]]
                filled = np.full(block, value, kind.dtype.numpy)
                parts.insert(len(parts) if at else 0, filled)
        if len(parts) > 1:
            x = writer.mb.concat(values=parts, axis=axis)
        shape[axis] += sum(pair)
    return x
