"""Parts of images read at points between their pixels."""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import at_least, sizes
from onnxplug_kernels import resize
from onnxplug_kernels.arrays import numbers
from onnxplug_kernels.gather import require_in_range
from onnxplug_microsoft.kernels import KERNELS


@KERNELS.operator("GridSample", since=1)
def grid_sample(
    xp: Any,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Any:
    """As ONNX's GridSample of opset 16."""
    return resize.grid_sample_16(
        xp,
        x,
        grid,
        align_corners=align_corners,
        mode=mode,
        padding_mode=padding_mode,
    )


@KERNELS.operator(
    "CropAndResize",
    since=1,
    allowed={"mode": ("bilinear", "nearest")},
)
def crop_and_resize(
    xp: Any,
    x: Any,
    rois: Any,
    batch_indices: Any,
    crop_size: Any,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Any:
    """Boxes [y1, x1, y2, x2] of images [N, C, H, W], all in one size.

    A box reaches from the centre of its first to the centre of its last pixel, and 0
    and 1 are those of the image.  Points outside the image have *extrapolation_value*.
    """
    height, width = at_least(
        1, numbers(xp, crop_size, "crop_size"), "crop_size", count=2
    )
    if rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ValueError(
            f"CropAndResize has rois {rois.shape} and batch_indices "
            f"{batch_indices.shape}; expected [boxes, 4] and [boxes]"
        )
    require_in_range(xp, batch_indices, x.shape[0], "the batch", least=0)
    sizes((rois.shape[0], x.shape[1], height, width), itemsize=8)
    ys = _points(xp, rois[:, 0], rois[:, 2], height, x.shape[2])
    xs = _points(xp, rois[:, 1], rois[:, 3], width, x.shape[3])
    inside = (
        ((ys >= 0) & (ys <= x.shape[2] - 1))[:, :, None]
        & ((xs >= 0) & (xs <= x.shape[3] - 1))[:, None, :]
    )[:, None]
    # what is outside, as NaN is, may be read anywhere
    ys = xp.clip(xp.where(xp.isnan(ys), 0, ys), 0, max(x.shape[2] - 1, 0))
    xs = xp.clip(xp.where(xp.isnan(xs), 0, xs), 0, max(x.shape[3] - 1, 0))
    image = batch_indices[:, None, None]

    def pixels(rows: Any, columns: Any) -> Any:
        index = (
            xp.astype(rows, xp.int64)[:, :, None],
            xp.astype(columns, xp.int64)[:, None, :],
        )
        return xp.moveaxis(x[image, :, *index], -1, 1)

    if mode == "nearest":
        # halves are rounded up: points are not negative
        y = pixels(xp.floor(ys + 0.5), xp.floor(xs + 0.5))
    else:
        top, left = xp.floor(ys), xp.floor(xs)
        down = xp.astype((ys - top)[:, None, :, None], x.dtype)
        across = xp.astype((xs - left)[:, None, None, :], x.dtype)
        bottom, right = xp.ceil(ys), xp.ceil(xs)
        above, below = pixels(top, left), pixels(bottom, left)
        above = above + (pixels(top, right) - above) * across
        below = below + (pixels(bottom, right) - below) * across
        y = above + (below - above) * down
    y = xp.where(inside, y, extrapolation_value)
    return xp.ascontiguousarray(y)


def _points(xp: Any, start: Any, end: Any, count: int, size: int) -> Any:
    """*count* points [boxes, count] from *start* to *end* of an axis of *size* pixels.

    One point is in the middle; the last one is exactly at the end.
    """
    dtype = start.dtype.type
    last = dtype(size - 1)
    if count == 1:
        # ONNX Runtime multiplies in float64 here
        middle = 0.5 * xp.astype(start + end, xp.float64) * float(last)
        return xp.astype(middle, start.dtype)[:, None]
    step = (end - start) * last / dtype(max(count - 1, 1))
    points = (start * last)[:, None] + xp.arange(count, dtype=start.dtype) * step[
        :, None
    ]
    if count:
        points[:, -1] = end * last
    return points
