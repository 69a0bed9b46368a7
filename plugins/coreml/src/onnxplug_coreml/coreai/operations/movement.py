"""Primitives that say where elements are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer
from onnxplug_coreml.lowering.program import Operation

_END: Final = 2**31 - 1


@emits("reshape")
def _reshape(writer: Writer, operation: Operation, x: Any, *, shape: Any) -> Any:
    return writer.authoring.reshape(x, writer.sizes(shape))


@emits("transpose")
def _transpose(
    writer: Writer, operation: Operation, x: Any, *, permutation: Sequence[int]
) -> Any:
    return writer.authoring.transpose(x, writer.counts(permutation))


@emits("broadcast_to")
def _broadcast_to(writer: Writer, operation: Operation, x: Any, *, shape: Any) -> Any:
    return writer.authoring.broadcast_to(x, writer.counts(shape))


@emits("tile")
def _tile(
    writer: Writer, operation: Operation, x: Any, *, repeats: Sequence[int]
) -> Any:
    return writer.authoring.tile(x, writer.counts(repeats))


@emits("concat")
def _concat(writer: Writer, operation: Operation, *operands: Any, axis: int) -> Any:
    return writer.authoring.concat(writer.constant(np.int32(axis)), list(operands))


@emits("split")
def _split(
    writer: Writer, operation: Operation, x: Any, *, axis: int, sizes: Sequence[int]
) -> Any:
    pieces = [piece(writer, operation, x, axis, *ends) for ends in _ends(sizes)]
    return pieces if len(pieces) > 1 else pieces[0]


def _ends(sizes: Sequence[int]) -> list[tuple[int, int]]:
    stops = [int(stop) for stop in np.cumsum(sizes)]
    return list(zip([0, *stops], stops, strict=False))


def piece(
    writer: Writer, operation: Operation, x: Any, axis: int, start: int, stop: int
) -> Any:
    """The elements of *x*, the operation's first operand, between two positions."""
    rank = writer.kind(operation).rank
    starts, stops = [0] * rank, [_END] * rank
    starts[axis], stops[axis] = start, stop
    return _cut(writer, x, starts, stops, [1] * rank)


def _cut(
    writer: Writer, x: Any, starts: Sequence[int], stops: Sequence[int], steps: Any
) -> Any:
    return writer.authoring.slice_(
        x, writer.indices(starts), writer.indices(stops), writer.indices(steps)
    )


@emits("slice")
def _slice(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    starts: Sequence[int],
    stops: Sequence[int | None],
    steps: Sequence[int],
) -> Any:
    ends = [_END if stop is None else stop for stop in stops]
    return _cut(writer, x, starts, ends, steps)


@emits("reverse")
def _reverse(
    writer: Writer, operation: Operation, x: Any, *, axes: Sequence[int]
) -> Any:
    return writer.authoring.reverse(x, writer.indices(axes))


_PADDING: Final = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@emits("pad")
def pad(
    writer: Writer, operation: Operation, x: Any, *, mode: str, pads: Any, value: Any
) -> Any:
    """With elements around; those of *value* are of the first operand's type."""
    flat = [number for pair in pads for number in pair]
    return writer.authoring.pad(
        x, writer.counts(flat), writer.like(operation, value), _PADDING[mode]
    )
