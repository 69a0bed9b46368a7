"""Operators that place whole blocks of an array: cut, join, pad and permute."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import (
    at_least,
    normal_axes,
    normal_axis,
    permutation,
    sizes,
)
from onnxplug_kernels.arrays import extremes, numbers, require_rank
from onnxplug_kernels.registry import PORTABLE, operator


@operator("Transpose", since=1)
def transpose(xp: Any, x: Any, *, perm: Sequence[int] | None = None) -> Any:
    if perm is None:
        return xp.permute_dims(x, tuple(range(x.ndim))[::-1])
    # numpy itself counts negative axes from the back, and cuts large ones to 32 bits
    return xp.permute_dims(x, permutation(perm, x.ndim))


@operator("Concat", since=4)
def concat(xp: Any, *inputs: Any, axis: int) -> Any:
    rank = inputs[0].ndim
    if not -rank <= axis < rank:
        normal_axis(axis, rank)
    return xp.concat(inputs, axis=axis)


@operator("Concat", since=1, until=3)
def concat_1(xp: Any, *inputs: Any, axis: int = 1) -> Any:
    return concat(xp, *inputs, axis=axis)


@operator("Slice", since=10)
def slice_(
    xp: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    first = numbers(xp, starts, "starts")
    return _slice(
        xp,
        x,
        first,
        numbers(xp, ends, "ends"),
        range(len(first)) if axes is None else numbers(xp, axes, "axes"),
        [1] * len(first) if steps is None else numbers(xp, steps, "steps"),
    )


@operator("Slice", since=1, until=9)
def slice_1(
    xp: Any,
    x: Any,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
) -> Any:
    axes = range(len(starts)) if axes is None else axes
    return _slice(xp, x, starts, ends, axes, [1] * len(starts))


@operator("Split", since=18)
def split(
    xp: Any,
    x: Any,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int = 1,
) -> tuple[Any, ...]:
    axis = normal_axis(axis, x.ndim)
    if split is not None:
        return _split(x, numbers(xp, split, "split"), axis, output_count)
    count = output_count if num_outputs is None else num_outputs
    size = x.shape[axis]
    if not output_count <= count <= max(size, output_count):
        raise ValueError(
            f"Split of axis {axis} of size {size} into {count} parts has "
            f"{output_count} outputs"
        )
    chunk = -(-size // count)
    # no more parts than are asked for: a number may say that there are billions
    ends = [min(i * chunk, size) for i in range(output_count + 1)]
    before = (slice(None),) * axis
    return tuple(x[(*before, slice(*pair))] for pair in itertools.pairwise(ends))


@operator("Split", since=13, until=17)
def split_13(
    xp: Any, x: Any, split: Any = None, *, axis: int = 0, output_count: int = 1
) -> tuple[Any, ...]:
    if split is not None:
        return _split(x, numbers(xp, split, "split"), axis, output_count)
    return _split_equally(x, output_count, axis)


@operator("Split", since=2, until=12)
def split_2(
    xp: Any,
    x: Any,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    output_count: int = 1,
) -> tuple[Any, ...]:
    if split is not None:
        return _split(x, split, axis, output_count)
    return _split_equally(x, output_count, axis)


@operator("Split", since=1, until=1)
def split_1(
    xp: Any,
    x: Any,
    lengths: Any = None,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    output_count: int = 1,
) -> tuple[Any, ...]:
    # the lengths have the type of the input, which is floating
    given = split if lengths is None else [int(n) for n in xp.tolist(lengths)]
    return split_2(xp, x, axis=axis, split=given, output_count=output_count)


@operator("Pad", since=18)
def pad(
    xp: Any,
    x: Any,
    pads: Any,
    constant_value: Any = None,
    axes: Any = None,
    *,
    mode: str = "constant",
) -> Any:
    amounts = numbers(xp, pads, "pads")
    if axes is not None:
        amounts = _for_all_axes(amounts, numbers(xp, axes, "axes"), x.ndim)
    return _pad(xp, x, amounts, mode, constant_value)


@operator("Pad", since=11, until=17)
def pad_11(
    xp: Any, x: Any, pads: Any, constant_value: Any = None, *, mode: str = "constant"
) -> Any:
    return _pad(xp, x, numbers(xp, pads, "pads"), mode, constant_value)


@operator("Pad", since=2, until=10)
def pad_2(
    xp: Any,
    x: Any,
    *,
    pads: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    return _pad(xp, x, pads, mode, value)


@operator("Pad", since=1, until=1)
def pad_1(
    xp: Any,
    x: Any,
    *,
    paddings: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    return _pad(xp, x, paddings, mode, value)


@operator("CenterCropPad", since=18, portable=PORTABLE)
def center_crop_pad(
    xp: Any, x: Any, shape: Any, *, axes: Sequence[int] | None = None
) -> Any:
    amounts = [0] * (2 * x.ndim)
    axes = normal_axes(range(x.ndim) if axes is None else axes, x.ndim)
    wanted_sizes = at_least(0, numbers(xp, shape, "shape"), "shape", count=len(axes))
    for axis, wanted in zip(axes, wanted_sizes, strict=True):
        missing = wanted - x.shape[axis]
        # an odd number leaves the smaller half at the start, cropped or padded
        before = missing // 2 if missing > 0 else -(-missing // 2)
        amounts[axis], amounts[axis + x.ndim] = before, missing - before
    return _pad(xp, x, amounts, "constant", None)


@operator("DepthToSpace", since=11)
def depth_to_space(xp: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    at_least(1, [blocksize], "blocksize")
    require_rank(x, "the input", 4, 4)
    batch, channels, height, width = x.shape
    depth, rest = divmod(channels, blocksize**2)
    if rest:
        raise ValueError(
            f"DepthToSpace of {channels} channels in blocks of {blocksize}: expected a "
            f"multiple of {blocksize**2}"
        )
    if _depth_comes_first(mode):
        blocks = xp.reshape(x, (batch, blocksize, blocksize, depth, height, width))
        placed = xp.permute_dims(blocks, (0, 3, 4, 1, 5, 2))
    else:
        blocks = xp.reshape(x, (batch, depth, blocksize, blocksize, height, width))
        placed = xp.permute_dims(blocks, (0, 1, 4, 2, 5, 3))
    return xp.reshape(placed, (batch, depth, height * blocksize, width * blocksize))


@operator("DepthToSpace", since=1, until=10)
def depth_to_space_1(xp: Any, x: Any, *, blocksize: int) -> Any:
    return depth_to_space(xp, x, blocksize=blocksize)


@operator("SpaceToDepth", since=28)
def space_to_depth(xp: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    at_least(1, [blocksize], "blocksize")
    require_rank(x, "the input", 4, 4)
    batch, channels, height, width = x.shape
    if height % blocksize or width % blocksize:
        raise ValueError(
            f"SpaceToDepth of {height} by {width} elements in blocks of {blocksize}: "
            f"expected multiples"
        )
    rows, columns = height // blocksize, width // blocksize
    blocks = xp.reshape(x, (batch, channels, rows, blocksize, columns, blocksize))
    order = (0, 3, 5, 1, 2, 4) if _depth_comes_first(mode) else (0, 1, 3, 5, 2, 4)
    return xp.reshape(
        xp.permute_dims(blocks, order), (batch, channels * blocksize**2, rows, columns)
    )


@operator("SpaceToDepth", since=1, until=27)
def space_to_depth_1(xp: Any, x: Any, *, blocksize: int) -> Any:
    return space_to_depth(xp, x, blocksize=blocksize)


@operator("Trilu", since=14)
def trilu(xp: Any, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    require_rank(x, "the input", 2)
    rows, columns = x.shape[-2:]
    # beyond the corners nothing changes, and the array library need not count so far
    diagonal = 0 if k is None else max(-rows, min(int(xp.item(k)), columns))
    zero = xp.asarray(_zero(xp, x.dtype), dtype=x.dtype)
    if upper:
        below = xp.tri(rows, columns, diagonal - 1)
        return xp.where(below, zero, x)
    return xp.where(xp.tri(rows, columns, diagonal), x, zero)


@operator("ReverseSequence", since=10)
def reverse_sequence(
    xp: Any, x: Any, sequence_lens: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> Any:
    time_axis, batch_axis = normal_axes(
        (time_axis, batch_axis), x.ndim, "time_axis and batch_axis"
    )
    steps = x.shape[time_axis]
    if sequence_lens.shape != (x.shape[batch_axis],):
        raise ValueError(
            f"ReverseSequence has sequence_lens of shape {sequence_lens.shape}; "
            f"expected {(x.shape[batch_axis],)}"
        )
    shortest, longest = extremes(xp, sequence_lens)
    if shortest < 0 or longest > steps:
        raise ValueError(
            f"ReverseSequence of {shortest if shortest < 0 else longest} elements, but "
            f"axis {time_axis} of the input has {steps}"
        )
    times = xp.arange(steps)[:, None]
    sources = xp.where(times < sequence_lens, sequence_lens - 1 - times, times)
    sequences = xp.moveaxis(x, (time_axis, batch_axis), (0, 1))
    batches = xp.broadcast_to(xp.arange(x.shape[batch_axis]), sources.shape)
    reversed_ = xp.gather(sequences, (sources, batches))
    return xp.moveaxis(reversed_, (0, 1), (time_axis, batch_axis))


_ALL: Final = slice(None)


def _slice(
    xp: Any,
    x: Any,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Any:
    count = len(starts)
    if not count == len(ends) == len(axes) == len(steps):
        raise ValueError(
            f"Slice has {count} starts, {len(ends)} ends, {len(axes)} axes and "
            f"{len(steps)} steps; expected equally many"
        )
    rank = x.ndim
    index = [_ALL] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -rank <= axis < rank or index[axis] is not _ALL:
            normal_axes(axes, rank)
        if step > 0:
            index[axis] = slice(start, end, step)
        else:
            index[axis] = _backward(start, end, step, x.shape[axis])
    return xp.slices(x, tuple(index))


def _backward(start: int, end: int, step: int, size: int) -> slice:
    """A backward slice that, unlike Python's, reads element 0 from a start before it.

    ONNX clamps the start to [0, size - 1] and the end to [-1, size - 1], so that the
    largest int64 as the end, which ONNX Runtime takes for the front, gives nothing.
    """
    first = max(0, min(start + size if start < 0 else start, size - 1))
    last = max(-1, min(end + size if end < 0 else end, size - 1))
    return slice(first, None if last < 0 else last, step)


def _split_equally(x: Any, count: int, axis: int) -> tuple[Any, ...]:
    axis = normal_axis(axis, x.ndim)
    chunk, rest = divmod(x.shape[axis], count)
    if rest:
        raise ValueError(
            f"Split of axis {axis} with size {x.shape[axis]} into {count} equal parts; "
            f"expected a multiple of {count}, or the lengths of the parts"
        )
    return _split(x, [chunk] * count, axis, count)


def _split(
    x: Any, lengths: Sequence[int], axis: int, output_count: int
) -> tuple[Any, ...]:
    axis = normal_axis(axis, x.ndim)
    if len(lengths) < output_count:
        raise ValueError(
            f"Split into lengths {list(lengths)} has {output_count} outputs"
        )
    if sum(lengths) != x.shape[axis] or min(lengths, default=0) < 0:
        raise ValueError(
            f"Split of axis {axis} into lengths {list(lengths)}; expected lengths of "
            f"at least 0 that add up to its size, {x.shape[axis]}"
        )
    index = [slice(None)] * x.ndim
    parts, start = [], 0
    for length in lengths:
        index[axis] = slice(start, start + length)
        parts.append(x[tuple(index)])
        start += length
    return tuple(parts)


def _for_all_axes(amounts: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    """Padding amounts of some axes, as those of every axis."""
    if len(amounts) != 2 * len(axes):
        raise ValueError(
            f"Pad with {len(amounts)} amounts; expected two for each of the "
            f"{len(axes)} axes"
        )
    result = [0] * (2 * rank)
    for position, axis in enumerate(normal_axes(axes, rank)):
        result[axis] = amounts[position]
        result[axis + rank] = amounts[position + len(axes)]
    return result


def _pad(xp: Any, x: Any, amounts: Sequence[int], mode: str, value: Any) -> Any:
    if len(amounts) != 2 * x.ndim:
        raise ValueError(
            f"Pad with {len(amounts)} amounts; expected two for each of "
            f"{x.ndim} axes, {2 * x.ndim}"
        )
    before, after = amounts[: x.ndim], amounts[x.ndim :]
    whole = [sum(size) for size in zip(before, x.shape, after, strict=True)]
    sizes(whole, itemsize=max(xp.itemsize(x), 8), what="the padded shape")
    if min(amounts, default=0) < 0:
        # elements are removed first: what is mirrored or wrapped is what remains
        kept = [
            (max(0, -b), n - max(0, -a))
            for b, a, n in zip(before, after, x.shape, strict=True)
        ]
        x = x[tuple(slice(start, max(start, stop)) for start, stop in kept)]
        before, after = [max(0, b) for b in before], [max(0, a) for a in after]
        for axis, (size, (start, stop)) in enumerate(zip(whole, kept, strict=True)):
            if stop < start:
                # what is removed beyond the elements is removed from the padding
                before[axis], after[axis] = size, 0
    if not any(before) and not any(after):
        return x
    if mode == "constant":
        return _pad_with(xp, x, before, after, value)
    if mode not in _PADDING_SOURCES:
        raise ValueError(
            f"Pad in mode {mode!r}; expected constant, {', '.join(_PADDING_SOURCES)}"
        )
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            if not x.shape[axis]:
                raise ValueError(
                    f"Pad in mode {mode!r} along axis {axis}, which has no elements"
                )
            positions = np.arange(-b, x.shape[axis] + a)
            sources = _PADDING_SOURCES[mode](positions, x.shape[axis])
            x = xp.take(x, xp.from_numpy(sources), axis=axis)
    return x


def _pad_with(
    xp: Any, x: Any, before: Sequence[int], after: Sequence[int], value: Any
) -> Any:
    sizes = list(zip(before, x.shape, after, strict=True))
    result = xp.empty([sum(size) for size in sizes], dtype=x.dtype)
    result[tuple(slice(b, b + n) for b, n, _ in sizes)] = x
    if value is None:
        value = _zero(xp, x.dtype)
    elif not isinstance(value, float):
        if xp.size(value) != 1:
            raise ValueError(
                f"Pad has a constant_value of shape {value.shape}; expected one number"
            )
        value = xp.reshape(value, ())
    # each later axis has its border filled only where no earlier one's reaches
    border = [slice(None)] * x.ndim
    for axis, (b, n, a) in enumerate(sizes):
        if b:
            border[axis] = slice(b)
            result[tuple(border)] = value
        if a:
            border[axis] = slice(b + n, None)
            result[tuple(border)] = value
        border[axis] = slice(b, b + n)
    return result


def _mirrored(positions: Any, size: int) -> Any:
    period = max(1, 2 * (size - 1))
    folded = positions % period
    return np.minimum(folded, period - folded) if size > 1 else folded


# where the element at each padded position comes from, along an axis of some size
_PADDING_SOURCES: Final[Mapping[str, Callable[[Any, int], Any]]] = MappingProxyType(
    {
        "edge": lambda positions, size: np.clip(positions, 0, size - 1),
        "reflect": _mirrored,
        "wrap": lambda positions, size: positions % size,
    }
)


def _depth_comes_first(mode: str) -> bool:
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"depth rearranged in mode {mode!r}; expected DCR or CRD")
    return mode == "DCR"


def _zero(xp: Any, dtype: Any) -> Any:
    return "" if xp.kind(dtype) == "O" else 0
