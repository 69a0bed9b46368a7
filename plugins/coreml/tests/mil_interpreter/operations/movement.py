"""Operations that move elements, or make them of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


def _axes(axes: Array | Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(int(axis) % rank for axis in np.atleast_1d(axes))


def _listed(values: Any) -> list[Array]:
    return values if isinstance(values, list) else [values]


@operation("reshape")
def reshape(x: Array, shape: Array) -> Array:
    sizes = [int(size) for size in shape]
    if 0 in sizes and len(sizes) != x.ndim:
        raise NotImplementedError("a size of 0 where ranks differ")
    return x.reshape([size or x.shape[at] for at, size in enumerate(sizes)])


@operation("reshape_like")
def reshape_like(
    x: Array, ref_tensors: Any, begins: Any, ends: Any, end_masks: Any
) -> Array:
    shape: list[int] = []
    for reference, begin, end, mask in zip(
        *map(_listed, (ref_tensors, begins, ends, end_masks)), strict=True
    ):
        shape += reference.shape[int(begin) : None if mask else int(end)]
    return x.reshape(shape)


@operation("expand_dims")
def expand_dims(x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in np.atleast_1d(axes)))


@operation("squeeze")
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Other axes than those of size 1 stay, as in PyTorch."""
    over = range(x.ndim) if axes is None else _axes(axes, x.ndim)
    return np.squeeze(x, tuple(axis for axis in over if x.shape[axis] == 1))


@operation("flatten2d")
def flatten2d(x: Array, axis: Any = 1) -> Array:
    return x.reshape(int(np.prod(x.shape[: int(axis)])), -1)


@operation("transpose")
def transpose(x: Array, perm: Array) -> Array:
    return x.transpose(_axes(perm, x.ndim))


@operation("reverse")
def reverse(x: Array, axes: Array | None = None) -> Array:
    return np.flip(x, None if axes is None else _axes(axes, x.ndim))


@operation("reverse_sequence")
def reverse_sequence(
    x: Array, lengths: Array, seq_axis: Any = 0, batch_axis: Any = 0
) -> Array:
    moved = np.moveaxis(x, (int(batch_axis), int(seq_axis)), (0, 1)).copy()
    for row, length in zip(moved, lengths, strict=True):
        row[: int(length)] = row[: int(length)][::-1].copy()
    return np.moveaxis(moved, (0, 1), (int(batch_axis), int(seq_axis)))


@operation("tile")
def tile(x: Array, reps: Array) -> Array:
    if len(reps) != x.ndim:
        raise ValueError(f"{len(reps)} repetitions of rank {x.ndim}")
    return np.tile(x, [int(count) for count in reps])


@operation("concat")
def concat(values: Any, axis: Any, interleave: Any = False) -> Array:
    parts, axis = _listed(values), int(axis)
    if len({part.dtype for part in parts}) != 1:
        raise TypeError(f"parts of {[part.dtype for part in parts]}")
    if not interleave:
        return np.concatenate(parts, axis)
    axis %= parts[0].ndim
    stacked = np.stack(parts, axis + 1)
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    return stacked.reshape(shape)


@operation("stack")
def stack(values: Any, axis: Any) -> Array:
    return np.stack(_listed(values), int(axis))


@operation("split")
def split(
    x: Array, axis: Any, num_splits: Any = None, split_sizes: Array | None = None
) -> tuple[Array, ...]:
    axis = int(axis)
    if split_sizes is None:
        return tuple(np.split(x, int(num_splits), axis))
    if int(np.sum(split_sizes)) != x.shape[axis]:
        raise ValueError(f"{split_sizes} of {x.shape[axis]} elements")
    return tuple(np.split(x, np.cumsum(split_sizes)[:-1], axis))


@operation("pad")
def pad(x: Array, pad: Array, mode: str = "constant", constant_val: Any = 0.0) -> Array:
    pairs = np.reshape(pad, (-1, 2)).astype(int).tolist()
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        return np.pad(x, widths, constant_values=x.dtype.type(constant_val))
    if mode == "reflect":
        return np.pad(x, widths, mode="reflect")
    if mode == "replicate":
        return np.pad(x, widths, mode="edge")
    raise ValueError(f"padding mode {mode!r}")


@operation("slice_by_index")
def slice_by_index(x: Array, begin: Array, end: Array, **how: Any) -> Array:
    return x[_places(x, begin, end, **how)]


@operation("slice_update")
def slice_update(
    x: Array, update: Array, begin: Array, end: Array, **how: Any
) -> Array:
    result = x.copy()
    places = _places(x, begin, end, **how)
    if result[places].shape != update.shape:
        raise ValueError(f"an update of {update.shape} for {result[places].shape}")
    result[places] = update
    return result


def _places(
    x: Array,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> tuple[Any, ...]:
    if not len(begin) == len(end) == x.ndim:
        raise ValueError(f"{len(begin)} and {len(end)} indices of rank {x.ndim}")

    def masked(mask: Array | None, at: int) -> bool:
        return mask is not None and bool(mask[at])

    return tuple(
        int(begin[at])
        if masked(squeeze_mask, at)
        else slice(
            None if masked(begin_mask, at) else int(begin[at]),
            None if masked(end_mask, at) else int(end[at]),
            1 if stride is None else int(stride[at]),
        )
        for at in range(x.ndim)
    )


@operation("slice_by_size")
def slice_by_size(x: Array, begin: Array, size: Array) -> Array:
    places = []
    for at, (first, count) in enumerate(zip(begin, size, strict=True)):
        low = int(first) % x.shape[at] if x.shape[at] else 0
        high = x.shape[at] if int(count) == -1 else low + int(count)
        if high > x.shape[at]:
            raise ValueError(f"elements {low} to {high} of {x.shape[at]}")
        places.append(slice(low, high))
    return x[tuple(places)]


@operation("sliding_windows")
def sliding_windows(x: Array, axis: Any, size: Any, stride: Any = 1) -> Array:
    axis = int(axis) % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, int(size), axis)
    windows = windows[(slice(None),) * axis + (slice(None, None, int(stride)),)]
    return np.moveaxis(windows, -1, axis + 1)


@operation("depth_to_space")
def depth_to_space(x: Array, block_size: Any) -> Array:
    """Depths before channels, as TensorFlow has it."""
    size = int(block_size)
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, size, size, -1, height, width)
    return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // size**2, height * size, width * size
    )


@operation("space_to_depth")
def space_to_depth(x: Array, block_size: Any) -> Array:
    """Depths before channels, as TensorFlow has it."""
    size = int(block_size)
    batch, _, height, width = x.shape
    blocks = x.reshape(batch, -1, height // size, size, width // size, size)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(
        batch, -1, height // size, width // size
    )


@operation("pixel_shuffle")
def pixel_shuffle(x: Array, upscale_factor: Any) -> Array:
    """Channels before depths, as PyTorch has it."""
    size = int(upscale_factor)
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, -1, size, size, height, width)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(
        batch, channels // size**2, height * size, width * size
    )


@operation("pixel_unshuffle")
def pixel_unshuffle(x: Array, downscale_factor: Any) -> Array:
    """Channels before depths, as PyTorch has it."""
    size = int(downscale_factor)
    batch, _, height, width = x.shape
    blocks = x.reshape(batch, -1, height // size, size, width // size, size)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(
        batch, -1, height // size, width // size
    )


@operation("band_part")
def band_part(x: Array, lower: Any = -1, upper: Any = -1) -> Array:
    rows, columns = np.indices(x.shape[-2:])
    kept = np.ones(x.shape[-2:], bool)
    if lower >= 0:
        kept &= rows - columns <= lower
    if upper >= 0:
        kept &= columns - rows <= upper
    return np.where(kept, x, x.dtype.type(0))


@operation("fill")
def fill(shape: Array, value: Any = 0.0) -> Array:
    value = np.asarray(value)
    dtype = np.float32 if value.dtype == np.float64 else value.dtype
    return np.full([int(size) for size in shape], value, dtype)


@operation("shape")
def shape(x: Array) -> Array:
    return np.array(x.shape, np.int32)


@operation("range_1d")
def range_1d(start: Array, end: Array, step: Array) -> Array:
    return np.arange(start, end, step).astype(start.dtype)


@operation("one_hot")
def one_hot(
    indices: Array,
    one_hot_vector_size: Any,
    axis: Any = -1,
    on_value: Any = 1,
    off_value: Any = 0,
) -> Array:
    axis = int(axis) % (indices.ndim + 1)
    shape = [1] * (indices.ndim + 1)
    shape[axis] = -1
    positions = np.arange(int(one_hot_vector_size)).reshape(shape)
    return np.where(np.expand_dims(indices, axis) == positions, on_value, off_value)


@operation("non_zero")
def non_zero(x: Array) -> Array:
    return np.argwhere(x).astype(np.int32)
