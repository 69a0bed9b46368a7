"""Resizing, and sampling at given places."""

from __future__ import annotations

from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]


def _grid(size: int, wanted: int, mode: str) -> Array:
    """The places in a dimension of *size* that an output of *wanted* is made of."""
    at = np.arange(wanted, dtype=np.float64)
    if mode == "ALIGN_CORNERS" and wanted == 1:
        return np.array([(size - 1) / 2])
    if mode in {"STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"}:
        places = at * ((size - 1) / max(wanted - 1, 1))
    elif mode == "DEFAULT":
        places = at * (size / wanted)
    elif mode == "OFFSET_CORNERS":
        delta = max(1, size - 1) / wanted
        places = 0.5 * delta + at * delta
    elif mode == "UNALIGN_CORNERS":
        places = (at + 0.5) * (size / wanted) - 0.5
    else:
        raise ValueError(f"sampling mode {mode!r}")
    return np.clip(places, 0, size - 1)


def _resize_axis(x: Array, axis: int, places: Array) -> Array:
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    shape = [1] * x.ndim
    shape[axis] = -1
    share = (places - low).astype(x.dtype).reshape(shape)
    return x.take(low, axis) * (1 - share) + x.take(high, axis) * share


def _bilinear(x: Array, sizes: dict[int, int], mode: str) -> Array:
    for axis, wanted in sizes.items():
        x = _resize_axis(x, axis, _grid(x.shape[axis], wanted, mode))
    return x


def _nearest(x: Array, sizes: dict[int, int]) -> Array:
    """As PyTorch's mode ``nearest``, of which coremltools makes these operations."""
    for axis, wanted in sizes.items():
        places = np.floor(np.arange(wanted) * (x.shape[axis] / wanted)).astype(int)
        x = x.take(np.minimum(places, x.shape[axis] - 1), axis)
    return x


def _scaled(x: Array, height: Any, width: Any) -> dict[int, int]:
    return {
        x.ndim - 2: int(np.floor(x.shape[-2] * float(height))),
        x.ndim - 1: int(np.floor(x.shape[-1] * float(width))),
    }


@operation("upsample_nearest_neighbor")
def upsample_nearest_neighbor(
    x: Array, scale_factor_height: Any = 1, scale_factor_width: Any = 1
) -> Array:
    return _nearest(x, _scaled(x, scale_factor_height, scale_factor_width))


@operation("resize_nearest_neighbor")
def resize_nearest_neighbor(
    x: Array, target_size_height: Any, target_size_width: Any
) -> Array:
    sizes = {x.ndim - 2: int(target_size_height), x.ndim - 1: int(target_size_width)}
    return _nearest(x, sizes)


@operation("upsample_bilinear")
def upsample_bilinear(
    x: Array,
    scale_factor_height: Any = 1,
    scale_factor_width: Any = 1,
    align_corners: Any = True,
    half_pixel_centers: Any = None,
) -> Array:
    halves = not align_corners if half_pixel_centers is None else half_pixel_centers
    if align_corners and halves:
        raise NotImplementedError("aligned corners with half pixels as centres")
    mode = "DEFAULT"
    if align_corners:
        mode = "STRICT_ALIGN_CORNERS"
    elif halves:
        mode = "UNALIGN_CORNERS"
    sizes = _scaled(x, scale_factor_height, scale_factor_width)
    return _bilinear(x, sizes, mode)


@operation("resize_bilinear")
def resize_bilinear(
    x: Array,
    target_size_height: Any = 1,
    target_size_width: Any = 1,
    sampling_mode: str = "DEFAULT",
) -> Array:
    sizes = {x.ndim - 2: int(target_size_height), x.ndim - 1: int(target_size_width)}
    return _bilinear(x, sizes, sampling_mode)


@operation("resize")
def resize(
    x: Array,
    shape: Array,
    resized_dims: Any,
    interpolation_mode: str = "LINEAR",
    sampling_mode: str = "DEFAULT",
) -> Array:
    count = int(resized_dims)
    wanted = [int(size) for size in shape[len(shape) - count :]]
    sizes = {
        x.ndim - count + at: size or x.shape[x.ndim - count + at]
        for at, size in enumerate(wanted)
    }
    if interpolation_mode == "LINEAR":
        return _bilinear(x, sizes, sampling_mode)
    if interpolation_mode == "NEAREST_NEIGHBOR" and sampling_mode == "DEFAULT":
        return _nearest(x, sizes)
    raise NotImplementedError(f"{interpolation_mode} with {sampling_mode}")


@operation("crop")
def crop(x: Array, crop_height: Array, crop_width: Array) -> Array:
    height, width = x.shape[-2:]
    (top, bottom), (left, right) = crop_height, crop_width
    return x[..., int(top) : height - int(bottom), int(left) : width - int(right)]


@operation("resample")
def resample(
    x: Array,
    coordinates: Array,
    sampling_mode: str,
    padding_mode: str,
    padding_value: Any,
    coordinates_mode: str,
    align_corners: Any,
) -> Array:
    """Sample pictures [B, C, H, W] at coordinates [B, H', W', (x, y)]."""
    height, width = x.shape[-2:]
    columns = _places(coordinates[..., 0], width, coordinates_mode, align_corners)
    rows = _places(coordinates[..., 1], height, coordinates_mode, align_corners)
    if padding_mode == "border":
        columns, rows = np.clip(columns, 0, width - 1), np.clip(rows, 0, height - 1)
    elif padding_mode in {"reflection", "symmetric"}:
        margin = 0.5 if padding_mode == "symmetric" else 0
        columns = _reflect(columns, width, margin)
        rows = _reflect(rows, height, margin)
    elif padding_mode != "constant":
        raise ValueError(f"padding mode {padding_mode!r}")

    def at(row: Array, column: Array) -> Array:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        image = np.arange(len(x))[:, None, None]
        row = np.clip(row, 0, height - 1).astype(int)
        column = np.clip(column, 0, width - 1).astype(int)
        values = np.moveaxis(x[image, :, row, column], -1, 1)
        return np.where(inside[:, None], values, x.dtype.type(padding_value))

    if sampling_mode == "nearest":
        return at(np.round(rows), np.round(columns))
    if sampling_mode != "bilinear":
        raise ValueError(f"sampling mode {sampling_mode!r}")
    top, left = np.floor(rows), np.floor(columns)
    down = (rows - top)[:, None].astype(x.dtype)
    along = (columns - left)[:, None].astype(x.dtype)
    upper = at(top, left) * (1 - along) + at(top, left + 1) * along
    lower = at(top + 1, left) * (1 - along) + at(top + 1, left + 1) * along
    return upper * (1 - down) + lower * down


def _places(coordinates: Array, size: int, mode: str, align_corners: Any) -> Array:
    if mode == "unnormalized":
        return coordinates.astype(np.float64)
    unit = coordinates.astype(np.float64)
    if mode == "normalized_minus_one_to_one":
        unit = (unit + 1) / 2
    elif mode != "normalized_zero_to_one":
        raise ValueError(f"coordinates mode {mode!r}")
    return unit * (size - 1) if align_corners else unit * size - 0.5


def _reflect(places: Array, size: int, margin: float) -> Array:
    """Reflect at ``-margin`` and ``size - 1 + margin``, then stay inside."""
    span = size - 1 + 2 * margin
    if span == 0:
        return np.zeros_like(places)
    away = np.mod(places + margin, 2 * span)
    return np.clip(span - np.abs(away - span) - margin, 0, size - 1)
