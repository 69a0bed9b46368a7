"""Operators on sequences, which are Python lists of arrays."""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.arrays import element_dtype, numbers
from onnxplug_kernels.registry import operator


@operator("SequenceEmpty", since=11)
def sequence_empty(xp: Any, *, dtype: int = 1) -> list[Any]:
    # a list does not carry the element type; an undefined one is an error all the same
    element_dtype(xp, dtype)
    return []


@operator("SequenceConstruct", since=11)
def sequence_construct(xp: Any, *inputs: Any) -> list[Any]:
    return list(inputs)


@operator("SequenceLength", since=11)
def sequence_length(xp: Any, sequence: list[Any]) -> Any:
    return xp.asarray(len(sequence), dtype=xp.int64)


@operator("SequenceAt", since=11)
def sequence_at(xp: Any, sequence: list[Any], position: Any) -> Any:
    return sequence[_index(xp, position, len(sequence), len(sequence) - 1)]


@operator("SequenceInsert", since=11)
def sequence_insert(
    xp: Any, sequence: list[Any], tensor: Any, position: Any = None
) -> list[Any]:
    if position is None:
        return [*sequence, tensor]
    index = _index(xp, position, len(sequence), len(sequence))
    return [*sequence[:index], tensor, *sequence[index:]]


@operator("SequenceErase", since=11)
def sequence_erase(xp: Any, sequence: list[Any], position: Any = None) -> list[Any]:
    if position is None:
        if not sequence:
            raise IndexError("SequenceErase of the last element of an empty sequence")
        return sequence[:-1]
    index = _index(xp, position, len(sequence), len(sequence) - 1)
    return [*sequence[:index], *sequence[index + 1 :]]


@operator("SplitToSequence", since=11)
def split_to_sequence(
    xp: Any, x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1
) -> list[Any]:
    axis = normal_axis(axis, x.ndim)
    size = x.shape[axis]
    if split is None:
        if not keepdims:
            before = (slice(None),) * axis
            return [x[(*before, place, ...)] for place in range(size)]
        if axis == 0:
            return [x[place : place + 1] for place in range(size)]
        return [_part(x, place, place + 1, axis) for place in range(size)]
    if split.ndim:
        return _parts(x, numbers(xp, split, "split"), axis)
    length = int(xp.item(split))
    if length <= 0:
        raise ValueError(f"SplitToSequence into parts of {length}; expected 1 or more")
    starts = range(0, size, length)
    return [_part(x, start, start + length, axis) for start in starts]


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(
    xp: Any, sequence: list[Any], *, axis: int, new_axis: int = 0
) -> Any:
    if not sequence:
        raise ValueError("ConcatFromSequence of an empty sequence")
    axis = normal_axis(axis, sequence[0].ndim + (1 if new_axis else 0))
    join = xp.stack if new_axis else xp.concat
    return join(sequence, axis=axis)


def _index(xp: Any, position: Any, length: int, last: int) -> int:
    """*position* counted from the front, in a sequence of *length* elements."""
    given = int(xp.item(position))
    if not -length <= given <= last:
        raise IndexError(
            f"position {given} in a sequence of {length} elements; "
            f"expected {-length} to {last}"
        )
    return given + length if given < 0 else given


def _parts(x: Any, lengths: list[int], axis: int) -> list[Any]:
    if sum(lengths) != x.shape[axis] or min(lengths, default=0) < 0:
        raise ValueError(
            f"SplitToSequence of axis {axis} into lengths {lengths}; expected lengths "
            f"of at least 0 that add up to its size, {x.shape[axis]}"
        )
    parts, start = [], 0
    for length in lengths:
        parts.append(_part(x, start, start + length, axis))
        start += length
    return parts


def _part(x: Any, start: int, end: int, axis: int) -> Any:
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, end)
    return x[tuple(index)]
