"""Resampling: Resize, Upsample, GridSample, and AffineGrid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import normal_axes, resized_lengths
from onnxplug.authoring.bounds import sizes as checked_sizes
from onnxplug.authoring.record import Record
from onnxplug_kernels.arrays import numbers, require_rank
from onnxplug_kernels.coordinates import Places, places
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.registry import PORTABLE, operator
from onnxplug_kernels.sampling import (
    Pixels,
    Tap,
    cubic_taps,
    cubic_weight,
    linear_taps,
    split,
    within_reach,
)

_CUBIC_A: Final = -0.75
_LINEAR: Final = ("linear", "bilinear", "trilinear")


@operator("Resize", since=11, portable=PORTABLE)
def resize(
    xp: Any,
    x: Any,
    roi: Any | None = None,
    scales: Any | None = None,
    sizes: Any | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = _CUBIC_A,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    """Each axis resampled in turn, as the interpolations are separable."""
    resized = resized_axes(
        xp,
        x.shape,
        roi,
        scales,
        sizes,
        antialias=antialias,
        axes=axes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )
    y = x if mode == "nearest" else xp.astype(x, _float_dtype(xp, x.dtype), copy=False)
    y = _along_all(xp, y, resized)
    for axis in resized:
        if axis.beyond is not None:
            beyond = xp.reshape(axis.beyond, (-1, *(1,) * (x.ndim - 1 - axis.axis)))
            y = xp.where(beyond, extrapolation_value, y)
    return _narrowed(xp, y, x.dtype)


@operator("Resize", since=10, until=10, portable=PORTABLE)
def resize_10(xp: Any, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return _resize_by_scales(xp, x, numbers(xp, scales, "scales"), mode)


@operator("Upsample", since=9)
def upsample(xp: Any, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return _resize_by_scales(xp, x, numbers(xp, scales, "scales"), mode)


@operator("Upsample", since=7, until=8)
def upsample_7(
    xp: Any, x: Any, *, mode: str = "nearest", scales: Sequence[float]
) -> Any:
    return _resize_by_scales(xp, x, scales, mode)


@operator("Upsample", since=1, until=6)
def upsample_1(
    xp: Any, x: Any, *, height_scale: float, mode: str = "nearest", width_scale: float
) -> Any:
    return _resize_by_scales(xp, x, (1.0, 1.0, height_scale, width_scale), mode)


@operator("GridSample", since=20)
def grid_sample(
    xp: Any,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    """[N, C, *spatial] read at points of *grid* [N, *output, axes], innermost first.

    A spatial axis reaches from -1 to 1, from the centres of its outermost elements with
    *align_corners*, from their edges without.
    """
    require_rank(x, "the input", 3)
    require_rank(grid, "the grid", 2)
    batch, *output, rank = grid.shape
    channels = x.shape[1]
    if (
        batch != x.shape[0]
        or rank != x.ndim - 2
        or mode not in ("linear", "nearest", "cubic")
    ):
        raise ValueError(
            f"GridSample of an input {x.shape} with grid {grid.shape} and mode {mode!r}"
            f": expected the same batch, a last axis of {x.ndim - 2}, and 'linear', "
            f"'nearest' or 'cubic'"
        )
    coordinates = xp.astype(
        xp.reshape(grid, (batch, math.prod(output), rank)),
        xp.computing_dtype(grid.dtype),
        copy=False,
    )
    axes: list[list[Tap]] = []
    for axis, size in enumerate(x.shape[2:]):
        edge = 0.0 if align_corners else 0.5
        low, high = -edge, size - 1 + edge
        points = coordinates[:, :, rank - 1 - axis]
        points = (points + 1) / 2 * (high - low) + low
        if padding_mode == "reflection":
            # infinity has no mirror image; ONNX leaves open what it reads
            points = xp.where(xp.isfinite(points), points, low)
        if mode == "nearest":
            points = xp.round(points)
        # the cubic curve goes on beyond the border, as in PyTorch
        if not (mode == "cubic" and padding_mode == "border"):
            points = _padded(xp, points, padding_mode, size, low, high)
        points = within_reach(xp, points, size)
        if mode == "nearest":
            taps = [(xp.astype(points, xp.int64), xp.ones_like(points))]
        elif mode == "linear":
            taps = linear_taps(*split(xp, points))
        else:
            taps = cubic_taps(xp, *split(xp, points), _CUBIC_A)
        axes.append(
            [
                (_padded_index(xp, index, padding_mode, size, low, high), weight)
                for index, weight in taps
            ]
        )
    if mode == "nearest":
        y = Pixels(xp, x).gather([index for ((index, _),) in axes], xp.arange(batch))
    else:
        pixels = Pixels(xp, xp.astype(x, _float_dtype(xp, x.dtype), copy=False))
        y = _narrowed(xp, pixels.read(axes, xp.arange(batch)), x.dtype)
    return xp.compact(xp.reshape(y, (batch, channels, *output)))


@operator("GridSample", since=16, until=19)
def grid_sample_16(
    xp: Any,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Any:
    later = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return grid_sample(
        xp,
        x,
        grid,
        align_corners=align_corners,
        mode=later,
        padding_mode=padding_mode,
    )


@operator("AffineGrid", since=20, portable=PORTABLE)
def affine_grid(xp: Any, theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """A regular grid moved by *theta* [N, axes, axes + 1]: [N, *spatial, axes].

    The coordinates of a point are innermost axis first, as GridSample takes them.
    """
    batch, _, *spatial = checked_sizes(numbers(xp, size, "size"), what="size")
    wide = xp.computing_dtype(theta.dtype)
    expected = (batch, len(spatial), len(spatial) + 1)
    if theta.shape != expected or len(spatial) not in (2, 3):
        raise ValueError(
            f"AffineGrid of size {xp.tolist(size)} has theta of shape {theta.shape}; "
            f"expected [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for [N, C, D, H, W]"
        )
    checked_sizes((batch, *spatial, len(spatial) + 1), itemsize=xp.itemsize_of(wide))
    lines = []
    for length in spatial:
        steps = xp.arange(length, dtype=wide)
        if align_corners:
            lines.append(steps * (2 / max(length - 1, 1)) - 1)
        else:
            lines.append((2 * steps + 1) / (max(length, 1)) - 1)
    mesh = xp.meshgrid(*lines, indexing="ij")
    ones = xp.ones(spatial, dtype=wide)
    points = xp.reshape(
        xp.stack([*reversed(mesh), ones], axis=-1), (-1, len(spatial) + 1)
    )
    moved = xp.matmul(points, xp.swapaxes(xp.astype(theta, wide, copy=False), 1, 2))
    grid = xp.reshape(moved, (batch, *spatial, len(spatial)))
    return xp.astype(grid, theta.dtype, copy=False)


class ResizedAxis(Record):
    """How one axis is resampled.

    Attributes:
        axis: which, from 0.
        taps: for each element of the output indices, all within the axis, and weights
            (float64); one tap without weights where elements are only chosen.
        beyond: which elements of the output lie outside the axis and are not read from
            it at all; ``None`` if none can.
    """

    axis: int
    taps: list[tuple[Any, Any | None]]
    beyond: Any | None = None


def resized_axes(
    xp: Any,
    shape: Sequence[int],
    roi: Any | None,
    scales: Any | None,
    sizes: Any | None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = _CUBIC_A,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> list[ResizedAxis]:
    """The axes of *shape* that Resize changes, in the order to take them in.

    Raises:
        ValueError: inputs or attributes do not say how.
    """
    xp = namespace_of(xp)
    for name, given in (("roi", roi), ("scales", scales), ("sizes", sizes)):
        if given is not None and given.ndim != 1:
            raise ValueError(f"{name} has shape {given.shape}, expected rank 1")
    rank = len(shape)
    chosen = normal_axes(range(rank) if axes is None else axes, rank)
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if crops and (roi is None or not xp.size(roi)):
        raise ValueError(f"Resize in mode {coordinate_transformation_mode} needs a roi")
    regions = _regions(xp, roi if crops else None, len(chosen))
    targets = _targets(
        xp, [shape[axis] for axis in chosen], scales, sizes, keep_aspect_ratio_policy
    )
    whole = list(shape)
    for axis, (size, _) in zip(chosen, targets, strict=True):
        whole[axis] = size
    _check_result(shape, whole)
    resampling = _Resampling(
        mode=mode,
        nearest_mode=nearest_mode,
        cubic_a=cubic_coeff_a,
        antialias=bool(antialias),
        exclude_outside=bool(exclude_outside),
    )
    # what shrinks first leaves less to do for the others, and inner axes are dearest
    order = sorted(
        zip(chosen, targets, regions, strict=True),
        key=lambda item: (item[1][1], -item[0]),
    )
    resized = []
    for axis, (size, scale), region in order:
        length = shape[axis]
        if size == length and scale == 1 and not crops:
            continue
        at = places(coordinate_transformation_mode, length, size, scale, region)
        taps = resampling.taps(xp, at, length, scale)
        beyond = at.beyond(xp, length) if crops else None
        resized.append(ResizedAxis(axis, taps, beyond))
    return resized


def upsampled_axes(
    xp: Any, shape: Sequence[int], scales: Sequence[float], mode: str
) -> list[ResizedAxis]:
    """The axes that Upsample changes, and Resize before opset 11.

    Raises:
        ValueError: as for :func:`resized_axes`.
    """
    xp = namespace_of(xp)
    if len(scales) != len(shape):
        raise ValueError(f"{len(scales)} scales for an input of shape {shape}")
    _check_result(shape, map(_scaled_length, shape, scales))
    resized = []
    for axis, (length, scale) in enumerate(zip(shape, scales, strict=True)):
        if scale == 1:
            continue
        # ONNX left the rounding open; its test cases and onnxruntime agree on this one
        resampling = _Resampling(
            mode="linear" if mode in _LINEAR else mode,
            nearest_mode="floor" if scale > 1 else "ceil",
        )
        at = Places.of(Fraction(0), 1 / Fraction(scale), _scaled_length(length, scale))
        taps = resampling.taps(xp, at, length, Fraction(scale))
        resized.append(ResizedAxis(axis, taps))
    return resized


@dataclass(frozen=True, slots=True)
class _Resampling:
    """How Resize reads between the elements of an axis."""

    mode: str
    nearest_mode: str = "round_prefer_floor"
    cubic_a: float = _CUBIC_A
    antialias: bool = False
    exclude_outside: bool = False

    def taps(
        self, xp: Any, at: Places, length: int, scale: Fraction
    ) -> list[tuple[Any, Any | None]]:
        """What is read at places, the output being *scale* times as long."""
        if self.mode == "nearest":
            index = at.nearest(xp, length, self.nearest_mode)
            return [(xp.clip(index, 0, length - 1), None)]
        return [
            (xp.clip(index, 0, length - 1), weight)
            for index, weight in self._taps(xp, at, length, scale)
        ]

    def _taps(self, xp: Any, at: Places, length: int, scale: Fraction) -> list[Tap]:
        if self.mode not in ("linear", "cubic"):
            raise ValueError(
                f"mode is {self.mode!r}, expected 'nearest', 'linear' or 'cubic'"
            )
        low, fraction = at.split(xp, length)
        if self.antialias and scale < 1:
            taps = self._stretched_taps(xp, low, fraction, scale)
        elif self.mode == "linear":
            taps = linear_taps(low, fraction)
        else:
            taps = cubic_taps(xp, low, fraction, self.cubic_a)
        if not self.exclude_outside:
            return taps
        taps = [
            (index, xp.where((index >= 0) & (index < length), weight, 0))
            for index, weight in taps
        ]
        return _normalized(xp, taps)

    def _stretched_taps(
        self, xp: Any, low: Any, fraction: Any, scale: Fraction
    ) -> list[Tap]:
        """The filter stretched over all elements that fall on one of the output."""
        if not xp.size(low):
            return linear_taps(low, fraction)
        radius = 1 if self.mode == "linear" else 2
        reach = math.ceil(radius / scale)
        taps = []
        for step in range(-reach, reach + 2):
            distance = (step - fraction) * float(scale)
            if self.mode == "linear":
                weight = xp.clip(1 - xp.abs(distance), 0, 1)
            else:
                weight = cubic_weight(xp, distance, self.cubic_a)
            taps.append((low + step, weight))
        return _normalized(xp, taps)


def _normalized(xp: Any, taps: list[Tap]) -> list[Tap]:
    total = sum(weight for _, weight in taps)
    total = xp.where(total == 0, 1, total)
    return [(index, weight / total) for index, weight in taps]


def _regions(xp: Any, roi: Any | None, count: int) -> list[tuple[Fraction, Fraction]]:
    """(start, end) of each axis; the whole axis unless *roi* says."""
    if roi is None or not xp.size(roi):
        return [(Fraction(0), Fraction(1))] * count
    if xp.size(roi) != 2 * count:
        raise ValueError(f"roi has {xp.size(roi)} numbers for {count} axes")
    corners = list(map(float, xp.tolist(roi)))
    if not all(map(math.isfinite, corners)):
        raise ValueError(f"roi is {corners}; expected finite numbers")
    exact = list(map(Fraction, corners))
    return list(zip(exact[:count], exact[count:], strict=True))


def _targets(
    xp: Any, lengths: Sequence[int], scales: Any | None, sizes: Any | None, policy: str
) -> list[tuple[int, Fraction]]:
    """(output length, scale) of each resized axis."""
    if sizes is not None and xp.size(sizes):
        if scales is not None and xp.size(scales):
            raise ValueError("Resize has both sizes and scales; expected one of them")
        wanted = xp.tolist(sizes)
        if min(wanted) < 0:
            raise ValueError(f"sizes are {wanted}; expected none below 0")
        if sizes.shape[0] != len(lengths):
            raise ValueError(
                f"sizes has {sizes.shape[0]} numbers for {len(lengths)} axes"
            )
        return resized_lengths(lengths, wanted, policy)
    if scales is None or scales.shape[0] != len(lengths):
        found = (
            "neither sizes nor scales"
            if scales is None
            else f"{scales.shape[0]} scales"
        )
        raise ValueError(f"Resize of {len(lengths)} axes has {found}")
    # the text multiplies by the extent of a region, too; no engine does
    return [
        (_scaled_length(length, scale), Fraction(scale))
        for length, scale in zip(lengths, xp.tolist(scales), strict=True)
    ]


def _scaled_length(length: int, scale: float) -> int:
    if not 0 < scale < math.inf:
        raise ValueError(f"a scale is {scale}; expected a finite number larger than 0")
    # in float32, as ONNX's shape inference: 10 * 0.7 is 7 there, but less in float64
    return math.floor(np.float32(length) * np.float32(scale))


def _resize_by_scales(xp: Any, x: Any, scales: Sequence[float], mode: str) -> Any:
    """Resize as it was before opset 11, asymmetric, and all of Upsample."""
    linear = mode in _LINEAR
    y = xp.astype(x, _float_dtype(xp, x.dtype), copy=False) if linear else x
    resized = upsampled_axes(xp, x.shape, scales, mode)
    return _narrowed(xp, _along_all(xp, y, resized), x.dtype)


def _along_all(xp: Any, x: Any, axes: Iterable[ResizedAxis]) -> Any:
    """*x* read at the taps of each axis in turn."""
    for axis, taps, _ in axes:
        column = (-1, *(1,) * (x.ndim - 1 - axis))
        total: Any = None
        for index, weight in taps:
            pixels = xp.take(x, index, axis=axis)
            if weight is not None:
                pixels *= xp.reshape(xp.astype(weight, x.dtype), column)
            if total is None:
                total = pixels
            else:
                total += pixels
        x = total
    return x


def _check_result(shape: Sequence[int], resized: Iterable[int]) -> None:
    """Raise :class:`ValueError` unless *shape* can be *resized*."""
    whole = checked_sizes(resized, itemsize=8, what="the resized shape")
    for axis, (length, size) in enumerate(zip(shape, whole, strict=True)):
        if size and not length:
            raise ValueError(f"axis {axis} of {shape} has nothing to be resized")


def _padded(
    xp: Any, points: Any, padding_mode: str, size: int, low: float, high: float
) -> Any:
    """*points* of an axis from *low* to *high* moved inside as *padding_mode* says."""
    match padding_mode:
        case "zeros":
            return points
        case "border":
            return xp.clip(points, 0, size - 1)
        case "reflection":
            return _reflected(xp, points, low, high)
    raise ValueError(
        f"padding_mode is {padding_mode!r}, expected 'zeros', 'border' or 'reflection'"
    )


def _reflected(xp: Any, points: Any, low: float, high: float) -> Any:
    """*points* mirrored at *low* and *high* until they are between."""
    span = high - low
    if span == 0:
        return xp.full_like(points, low)
    around = xp.remainder(points - low, 2 * span)
    return xp.where(around > span, 2 * span - around, around) + low


def _padded_index(
    xp: Any, index: Any, padding_mode: str, size: int, low: float, high: float
) -> Any:
    """*index* moved inside likewise; one outside reads zero."""
    if padding_mode == "reflection":
        index = xp.astype(
            _reflected(xp, xp.astype(index, xp.float64), low, high), xp.int64
        )
    if padding_mode != "zeros":
        index = xp.clip(index, 0, size - 1)
    return index


def _float_dtype(xp: Any, dtype: Any) -> Any:
    """The dtype to interpolate values of *dtype* in."""
    return xp.float64 if xp.kind(dtype) in "iub" else xp.computing_dtype(dtype)


def _narrowed(xp: Any, y: Any, dtype: Any) -> Any:
    """*y* in *dtype*; integers are rounded, and cut off at their limits."""
    if y.dtype == dtype:
        return y
    if xp.kind(dtype) in "iu":
        lowest, largest = xp.limits(dtype)
        y = xp.clip(xp.round(y), float(lowest), float(largest))
    return xp.astype(y, dtype)
