"""What moves elements, or gives an array another shape, and what makes arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.shape import without_zeros
from onnxplug_torch.dtypes import BOOL, NUMBERS, POSITIONS, TENSOR_TYPES
from onnxplug_torch.operators.computing import guarded, moved
from onnxplug_torch.operators.registry import operator


def numbers(value: Any) -> list[Any]:
    """A host argument of one axis; exporters also give a single number."""
    return list(value) if isinstance(value, list | tuple) else [value]


@operator("Identity", types=TENSOR_TYPES)
def identity(torch: Any, x: Any) -> Any:
    return x


@operator("Reshape", since=5, types=TENSOR_TYPES, host=(1,))
def reshape(torch: Any, x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = numbers(shape)
    return x.reshape(sizes if allowzero else without_zeros(tuple(x.shape), sizes))


@operator("Flatten", types=TENSOR_TYPES)
def flatten(torch: Any, x: Any, *, axis: int = 1) -> Any:
    if axis < 0:
        axis += x.ndim
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, math.prod(x.shape[axis:]))


@operator("Squeeze", since=1, until=12, types=TENSOR_TYPES)
def squeeze_by_attribute(
    torch: Any, x: Any, *, axes: Sequence[int] | None = None
) -> Any:
    return squeeze(torch, x, axes)


@operator("Squeeze", since=13, types=TENSOR_TYPES, host=(1,))
def squeeze(torch: Any, x: Any, axes: Any | None = None) -> Any:
    if axes is None:
        return torch.squeeze(x)
    dropped = {axis % x.ndim for axis in _axes(numbers(axes), x.ndim)}
    for axis in dropped:
        if x.shape[axis] != 1:
            raise ValueError(f"axis {axis} of {list(x.shape)} is not of size 1")
    return x.reshape([size for n, size in enumerate(x.shape) if n not in dropped])


def _axes(axes: Sequence[int], rank: int) -> Sequence[int]:
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"there is no axis {axis}; the rank is {rank}")
    return axes


@operator("Unsqueeze", since=1, until=12, types=TENSOR_TYPES)
def unsqueeze_by_attribute(torch: Any, x: Any, *, axes: Sequence[int]) -> Any:
    return unsqueeze(torch, x, axes)


@operator("Unsqueeze", since=13, types=TENSOR_TYPES, host=(1,))
def unsqueeze(torch: Any, x: Any, axes: Any) -> Any:
    added = numbers(axes)
    rank = x.ndim + len(added)
    places = {axis % rank for axis in _axes(added, rank)}
    if len(places) < len(added):
        raise ValueError(f"axes {added} name an axis twice")
    sizes = iter(x.shape)
    return x.reshape([1 if n in places else next(sizes) for n in range(rank)])


@operator("Transpose", types=TENSOR_TYPES)
def transpose(torch: Any, x: Any, *, perm: Sequence[int] | None = None) -> Any:
    return x.permute(tuple(reversed(range(x.ndim))) if perm is None else tuple(perm))


@operator("Concat", since=4, types=TENSOR_TYPES)
def concatenate(torch: Any, *tensors: Any, axis: int) -> Any:
    rank = tensors[0].ndim
    _axes([axis], rank)
    shape = list(tensors[0].shape)
    for each in tensors[1:]:
        # torch lets an empty tensor of one axis be anything
        if each.ndim != rank:
            raise ValueError(f"{list(each.shape)} is of another rank than {shape}")
    return torch.cat(tensors, axis)


@operator("Split", since=2, until=12, types=TENSOR_TYPES)
def split_by_attribute(
    torch: Any,
    x: Any,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    output_count: int = 1,
) -> Any:
    return split_tensor(torch, x, split, axis=axis, output_count=output_count)


@operator("Split", since=13, types=TENSOR_TYPES, host=(1,))
def split_tensor(
    torch: Any,
    x: Any,
    split: Any | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int = 1,
) -> Any:
    size = x.shape[axis]
    if split is None:
        count = num_outputs or output_count
        part = -(-size // count)
        parts = [max(min(part, size - n * part), 0) for n in range(count)]
    else:
        parts = numbers(split)
    return tuple(torch.split(x, parts, axis))


@operator("Slice", since=1, until=9, types=TENSOR_TYPES)
def slice_by_attributes(
    torch: Any,
    x: Any,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
) -> Any:
    return slice_tensor(torch, x, starts, ends, axes)


@operator("Slice", since=10, types=TENSOR_TYPES, host=(1, 2, 3, 4))
def slice_tensor(
    torch: Any,
    x: Any,
    starts: Any,
    ends: Any,
    axes: Any | None = None,
    steps: Any | None = None,
) -> Any:
    begins, stops = numbers(starts), numbers(ends)
    places = range(len(begins)) if axes is None else numbers(axes)
    strides = [1] * len(begins) if steps is None else numbers(steps)
    for begin, stop, axis, step in zip(begins, stops, places, strides, strict=True):
        _axes([axis], x.ndim)
        if step == 0:
            raise ValueError("a step of Slice is 0")
        x = slice_axis(torch, x, axis, begin, stop, step)
    return x


def slice_axis(torch: Any, x: Any, axis: int, begin: Any, end: Any, step: int) -> Any:
    """As ``x[begin:end:step]`` along *axis*, with numbers beyond its ends.

    Backwards from before its first element is from that, other than in Python.
    """
    size = x.shape[axis]
    if step > 0:
        first, last, _ = slice(begin, end, step).indices(size)
        index = [slice(None)] * x.ndim
        index[axis] = slice(first, max(first, last), step)
        return x[tuple(index)]
    first, last, _ = slice(max(begin, -size), end, step).indices(size)
    count = len(range(first, last, step))
    if not count:
        return x.narrow(axis, 0, 0)
    # what is wanted, in order from its low end, and then turned round
    low = first + (count - 1) * step
    index = [slice(None)] * x.ndim
    index[axis] = slice(low, first + 1, -step)
    rank = x.ndim
    return moved(torch, lambda x: torch.flip(x, (axis % rank,)), x[tuple(index)])


@operator("Expand", since=8, types=TENSOR_TYPES, host=(1,))
def expand(torch: Any, x: Any, shape: Any) -> Any:
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(numbers(shape))))


@operator("Tile", since=6, types=TENSOR_TYPES, host=(1,))
def tile(torch: Any, x: Any, repeats: Any) -> Any:
    return x.repeat(numbers(repeats)) if x.ndim else x


_PADS = {"edge", "reflect", "wrap"}


@operator("Pad", since=2, until=10, types=TENSOR_TYPES)
def pad_by_attributes(
    torch: Any,
    x: Any,
    *,
    pads: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    return pad(torch, x, pads, value, mode=mode)


@operator("Pad", since=11, types=TENSOR_TYPES, host=(1, 2, 3))
def pad(
    torch: Any,
    x: Any,
    pads: Any,
    value: Any | None = None,
    axes: Any | None = None,
    *,
    mode: str = "constant",
) -> Any:
    places = (
        range(x.ndim) if axes is None else [axis % x.ndim for axis in numbers(axes)]
    )
    amounts = numbers(pads)
    count = len(amounts) // 2
    around = dict(
        zip(places, zip(amounts[:count], amounts[count:], strict=True), strict=True)
    )
    if mode == "constant":
        fill = numbers(value)[0] if value is not None else 0
        flat = [n for axis in reversed(range(x.ndim)) for n in around.get(axis, (0, 0))]
        return moved_pad(torch, x, flat, fill)
    if mode not in _PADS:
        raise ValueError(f"Pad has no mode {mode!r}")
    for axis, (before, after) in around.items():
        if before or after:
            x = _extend(torch, x, axis, before, after, mode)
    return x


def moved_pad(torch: Any, x: Any, flat: Sequence[int], fill: Any) -> Any:
    """Constant padding, of any element type."""
    if not any(flat):
        return x
    if not fill:
        return moved(torch, lambda x: torch.nn.functional.pad(x, flat), x)
    # which takes the value as a float64
    if x.dtype.is_floating_point or x.dtype == torch.int32:
        return torch.nn.functional.pad(x, flat, value=fill)
    mask = torch.nn.functional.pad(torch.ones_like(x, dtype=torch.bool), flat)
    padded = moved(torch, lambda x: torch.nn.functional.pad(x, flat), x)
    scalar = torch.tensor(fill, dtype=x.dtype, device=x.device)
    return torch.where(mask, padded, scalar)


def _extend(torch: Any, x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    size = x.shape[axis]
    if not size:
        raise ValueError(f"{mode} padding of an axis without elements")
    index = torch.arange(-before, size + after, device=x.device)
    if mode == "edge":
        index = index.clamp(0, size - 1)
    elif mode == "wrap":
        index = index % size
    else:
        period = max(2 * (size - 1), 1)
        index = index % period
        index = torch.minimum(index, period - index) if size > 1 else index * 0
    return moved(torch, lambda x: torch.index_select(x, axis, index), x)


@operator("DepthToSpace", types=TENSOR_TYPES)
def depth_to_space(torch: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b, depth = blocksize, c // (blocksize * blocksize)
    if mode == "DCR":
        parts = x.reshape(n, b, b, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        parts = x.reshape(n, depth, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        raise ValueError(f"DepthToSpace has no mode {mode!r}")
    return parts.reshape(n, depth, h * b, w * b)


@operator("SpaceToDepth", until=27, types=TENSOR_TYPES)
def space_to_depth_1(torch: Any, x: Any, *, blocksize: int) -> Any:
    return space_to_depth(torch, x, blocksize=blocksize)


@operator("SpaceToDepth", since=28, types=TENSOR_TYPES)
def space_to_depth(torch: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    orders = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}
    if mode not in orders:
        raise ValueError(f"SpaceToDepth has no mode {mode!r}")
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape(n, c, h // b, b, w // b, b).permute(orders[mode])
    return parts.reshape(n, c * b * b, h // b, w // b)


@operator("Trilu", since=14, types=NUMBERS | BOOL, host=(1,))
def triangle(torch: Any, x: Any, k: Any | None = None, *, upper: int = 1) -> Any:
    diagonal = 0 if k is None else numbers(k)[0]
    bound = max(x.shape[-2:]) + 1
    diagonal = max(-bound, min(bound, diagonal))
    function = torch.triu if upper else torch.tril
    return moved(torch, lambda x: function(x, diagonal), x)


@operator("ReverseSequence", since=10, types=TENSOR_TYPES, other={1: POSITIONS})
def reverse_sequence(
    torch: Any, x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> Any:
    if {batch_axis, time_axis} != {0, 1}:
        raise ValueError(f"axes {batch_axis} and {time_axis}; expected 0 and 1")
    steps = torch.arange(x.shape[time_axis], device=x.device)
    steps = steps.reshape([-1, 1] if time_axis == 0 else [1, -1])
    lengths = lengths.reshape([1, -1] if time_axis == 0 else [-1, 1])
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)
    index = guarded(torch, index, x.shape[time_axis])
    index = index.reshape([*index.shape, *[1] * (x.ndim - 2)]).expand(x.shape)
    return moved(torch, lambda x: torch.gather(x, time_axis, index), x)


@operator("Shape", types=TENSOR_TYPES)
def shape_of(torch: Any, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64, device=x.device)


@operator("Size", types=TENSOR_TYPES)
def size_of(torch: Any, x: Any) -> Any:
    return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)


@operator("ConstantOfShape", since=9, types=POSITIONS, host=(0,))
def fill(torch: Any, shape: Any, *, value: Any = None, device: Any = None) -> Any:
    if value is None:
        return torch.zeros(numbers(shape), device=device)
    from onnxplug_torch.arrays import to_tensor

    element = to_tensor(torch, value).reshape(()).to(device)
    return element.expand(numbers(shape)).contiguous()


@operator("EyeLike", since=9, types=NUMBERS | BOOL)
def eye(torch: Any, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    from onnxplug.ep import DataType
    from onnxplug_torch.dtypes import torch_dtype

    rows, columns = x.shape
    kind = x.dtype if dtype is None else torch_dtype(torch, DataType.from_onnx(dtype))
    row = torch.arange(rows, device=x.device).reshape(-1, 1)
    column = torch.arange(columns, device=x.device)
    return (column - row == k).to(kind)


@operator("Range", since=11, types=NUMBERS, host=(0, 1, 2))
def count_from(
    torch: Any,
    start: Any,
    limit: Any,
    delta: Any,
    *,
    device: Any = None,
    dtype: Any = None,
) -> Any:
    first, last, step = (numbers(each)[0] for each in (start, limit, delta))
    if step == 0:
        raise ValueError("the delta of Range is 0")
    if isinstance(step, float):
        count = max(math.ceil((last - first) / step), 0)
        whole = torch.arange(count, device=device)
        return (whole.to(torch.float64) * step + first).to(dtype)
    count = max(-(-(last - first) // step), 0)
    return (torch.arange(count, device=device) * step + first).to(dtype)
