"""Regions of interest: RoiAlign, MaxRoiPool, NonMaxSuppression."""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import at_least, sizes
from onnxplug_kernels.arrays import require_rank
from onnxplug_kernels.gather import require_in_range
from onnxplug_kernels.registry import PORTABLE, operator
from onnxplug_kernels.sampling import Pixels, Tap

_NO_LIMIT: Final = -math.inf

# boxes that non-maximum suppression looks at together
_CANDIDATES: Final = 64


@operator("RoiAlign", since=16, portable=PORTABLE)
def roi_align(
    xp: Any,
    x: Any,
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """[N, C, H, W] averaged over the bins of regions [x1, y1, x2, y2].

    K. He et al., "Mask R-CNN" (2017).  Each bin is read at a grid of points between
    the elements, as fine as *sampling_ratio* says or else as the elements.

    Returns:
        [regions, C, output_height, output_width].
    """
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise ValueError(
            f"coordinate_transformation_mode is {coordinate_transformation_mode!r}, "
            f"expected 'half_pixel' or 'output_half_pixel'"
        )
    if mode not in ("avg", "max"):
        raise ValueError(f"mode is {mode!r}, expected 'avg' or 'max'")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    require_rank(x, "the input", 4, 4)
    at_least(1, (output_height, output_width), "output_height and output_width")
    at_least(0, [sampling_ratio], "sampling_ratio")
    if rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ValueError(
            f"RoiAlign has rois {rois.shape} and batch_indices {batch_indices.shape}; "
            f"expected [regions, 4] and [regions]"
        )
    _require_finite(xp, rois, spatial_scale)
    require_in_range(xp, batch_indices, x.shape[0], "the batch", least=0)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    shape = (rois.shape[0], x.shape[1], output_height, output_width)
    y = xp.zeros(sizes(shape, itemsize=xp.itemsize(wide)), dtype=wide.dtype)
    corners = xp.astype(rois, xp.float64) * spatial_scale - (0.5 if half_pixel else 0.0)
    bins = (output_height, output_width)
    pixels = Pixels(xp, wide)
    pool = xp.mean if mode == "avg" else xp.max
    for index, ((x1, y1, x2, y2), image) in enumerate(
        zip(xp.tolist(corners), xp.tolist(batch_indices), strict=True)
    ):
        starts, lengths = (y1, x1), (y2 - y1, x2 - x1)
        if not half_pixel:
            # a region is at least one element large
            lengths = (max(lengths[0], 1.0), max(lengths[1], 1.0))
        grid = [
            sampling_ratio if sampling_ratio > 0 else math.ceil(length / count)
            for length, count in zip(lengths, bins, strict=True)
        ]
        if min(grid) <= 0:
            continue
        lines = [
            start
            + (xp.arange(count * fine, dtype=wide.dtype) + 0.5)
            * (length / (count * fine))
            for start, length, count, fine in zip(
                starts, lengths, bins, grid, strict=True
            )
        ]
        values = _read_crossings(xp, pixels, image, lines, x.shape[2:], mode)
        parts = xp.reshape(values, (-1, bins[0], grid[0], bins[1], grid[1]))
        y[index, ...] = pool(parts, axis=(2, 4))
    return xp.astype(y, x.dtype, copy=False)


@operator("RoiAlign", since=10, until=15)
def roi_align_10(
    xp: Any,
    x: Any,
    rois: Any,
    batch_indices: Any,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    return roi_align(
        xp,
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@operator("MaxRoiPool", since=1)
def max_roi_pool(
    xp: Any,
    x: Any,
    rois: Any,
    *,
    pooled_shape: tuple[int, int],
    spatial_scale: float = 1.0,
) -> Any:
    """The largest element of each bin of regions [image, x1, y1, x2, y2].

    R. Girshick, "Fast R-CNN" (2015): corners are rounded to elements and included, and
    bins that share an element overlap.  An empty bin is zero.
    """
    require_rank(x, "the input", 4, 4)
    at_least(1, pooled_shape, "pooled_shape", count=2)
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(f"rois have shape {rois.shape}, expected [regions, 5]")
    _require_finite(xp, rois, spatial_scale)
    require_in_range(xp, rois[:, 0], x.shape[0], "the batch", least=0)
    wide = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    shape = sizes(
        (rois.shape[0], x.shape[1], *pooled_shape), itemsize=xp.itemsize(wide)
    )
    y = xp.zeros(shape, dtype=wide.dtype)
    for index, (image, *corners) in enumerate(xp.tolist(xp.astype(rois, xp.float64))):
        x1, y1, x2, y2 = (_rounded(corner * spatial_scale) for corner in corners)
        rows = _bins(y1, y2, pooled_shape[0], x.shape[2])
        columns = _bins(x1, x2, pooled_shape[1], x.shape[3])
        for row, (top, bottom) in enumerate(rows):
            if top >= bottom:
                continue
            line = xp.max(wide[int(image), :, top:bottom, :], axis=1)
            for column, (left, right) in enumerate(columns):
                if left < right:
                    y[index, :, row, column] = xp.max(line[:, left:right], axis=1)
    return xp.astype(y, x.dtype, copy=False)


@operator("NonMaxSuppression", since=10, data_dependent=True, portable=PORTABLE)
def non_max_suppression(
    xp: Any,
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any | None = None,
    iou_threshold: Any | None = None,
    score_threshold: Any | None = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """The best boxes of each image and class that do not overlap better ones.

    *boxes* is [images, boxes, 4], *scores* [images, classes, boxes].

    Returns:
        int64 [selected, 3]: image, class, box; the best of each class first.
    """
    if (
        boxes.ndim != 3
        or scores.ndim != 3
        or boxes.shape[2] != 4
        or scores.shape[::2] != boxes.shape[:2]
    ):
        raise ValueError(
            f"NonMaxSuppression has boxes {boxes.shape} and scores {scores.shape}; "
            f"expected [images, boxes, 4] and [images, classes, boxes]"
        )
    boxes, scores = xp.to_numpy(boxes), xp.to_numpy(scores)
    limit = _scalar(xp, max_output_boxes_per_class, 0)
    overlap = _scalar(xp, iou_threshold, 0.0)
    if not 0 <= overlap <= 1:
        raise ValueError(f"iou_threshold is {overlap}; expected a number from 0 to 1")
    least = _scalar(xp, score_threshold, _NO_LIMIT)
    corners = _corners(boxes, bool(center_point_box))
    selected = [
        (image, kind, box)
        for image in range(scores.shape[0])
        for kind in range(scores.shape[1])
        for box in _select(
            corners[image], scores[image, kind], int(limit), overlap, least
        )
    ]
    return xp.from_numpy(np.array(selected, dtype=np.int64).reshape(-1, 3))


def _read_crossings(
    xp: Any,
    pixels: Pixels,
    image: int,
    lines: list[Any],
    spatial: tuple[int, int],
    mode: str,
) -> Any:
    """[1, C, points] of one image at the crossings of horizontal and vertical lines."""
    taps = [
        _clamped_taps(xp, xp.reshape(points, (1, -1)), size)
        for points, size in zip(
            xp.meshgrid(*lines, indexing="ij"), spatial, strict=True
        )
    ]
    images = xp.asarray([image])
    if mode == "avg":
        return pixels.read(taps, images)
    # of the weighted elements, not of the interpolated values: so ONNX has it
    return functools.reduce(xp.maximum, pixels.contributions(taps, images))


def _clamped_taps(xp: Any, points: Any, size: int) -> list[Tap]:
    """The neighbours of points, of which those just outside count as on the border."""
    inside = (points >= -1) & (points <= size)
    points = xp.clip(points, 0, size - 1)
    low = xp.floor(points)
    fraction = points - low
    index = xp.astype(low, xp.int64)
    after = xp.minimum(index + 1, size - 1)
    return [
        (xp.where(inside, index, -1), 1 - fraction),
        (xp.where(inside, after, -1), fraction),
    ]


def _require_finite(xp: Any, rois: Any, scale: float) -> None:
    """Raise :class:`ValueError` where a region has no size in elements."""
    corners = np.asarray(xp.tolist(xp.astype(rois, xp.float64)))
    if not (np.isfinite(corners * scale).all() and scale > 0):
        raise ValueError(
            f"regions have corners that are not finite, or spatial_scale is {scale}; "
            f"expected numbers, and a scale larger than 0"
        )


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Where each of *count* bins from *first* to *last* starts and ends in an axis."""
    length = max(last - first + 1, 1)
    return [
        (
            min(max(math.floor(i * length / count) + first, 0), size),
            min(max(math.ceil((i + 1) * length / count) + first, 0), size),
        )
        for i in range(count)
    ]


def _scalar(xp: Any, value: Any | None, default: float) -> float:
    return (
        default
        if value is None or not xp.size(value)
        else xp.tolist(xp.reshape(value, (-1,)))[0]
    )


def _corners(boxes: Any, center_point_box: bool) -> Any:
    """[..., 4] as low and high corner (y1, x1, y2, x2)."""
    if center_point_box:
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([center - half, center + half], axis=-1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate(
        [np.minimum(first, second), np.maximum(first, second)], axis=-1
    )


def _select(
    corners: Any, scores: Any, limit: int, overlap: float, least: float
) -> list[int]:
    """The boxes that remain when each takes away what overlaps it, best first."""
    candidates = np.flatnonzero(scores > least)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    sides = corners[candidates].T
    areas = (sides[2] - sides[0]) * (sides[3] - sides[1])
    measures = np.stack([*sides, areas])
    # numpy takes as long for a call as for hundreds of boxes, so candidates are looked
    # at many at a time: first beside those selected before, then beside each other
    selected: list[int] = []
    for start in range(0, len(candidates) if limit > 0 else 0, _CANDIDATES):
        places = np.arange(start, min(start + _CANDIDATES, len(candidates)))
        taken = _overlapping(measures[:, places], measures[:, selected], overlap)
        places = places[~taken.any(axis=1)]
        beside = _overlapping(measures[:, places], measures[:, places], overlap)
        remaining = np.ones(len(places), bool)
        for place, overlapped in enumerate(beside):
            if remaining[place]:
                selected.append(int(places[place]))
                if len(selected) == limit:
                    return list(candidates[selected].tolist())
                remaining &= ~overlapped
    return list(candidates[selected].tolist())


def _overlapping(some: Any, others: Any, overlap: float) -> Any:
    """Which of *some* boxes share more than *overlap* with which of *others*.

    A column of either is a box: its low corner, its high corner, its area.
    """
    top, left, bottom, right, area = some[:, :, None]
    height = np.minimum(bottom, others[2]) - np.maximum(top, others[0])
    width = np.minimum(right, others[3]) - np.maximum(left, others[1])
    common = np.maximum(height, 0) * np.maximum(width, 0)
    union = area + others[4] - common
    share = np.divide(
        common, union, out=np.zeros_like(common), where=(common > 0) & (union > 0)
    )
    return share > overlap
