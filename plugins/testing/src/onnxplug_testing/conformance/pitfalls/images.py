"""Pitfalls of images: windows and padding, and what makes them larger or smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from onnxplug_testing.conformance.pitfalls.row import Row, ints, real, row

_SAME: Final = ("SAME_UPPER", "SAME_LOWER", "VALID")


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _convolved()
    yield from _transposed()
    yield from _pooled()
    yield from _whole()
    yield from _resized()
    yield from _resized_before()
    yield from _sampled()


def _convolved() -> Iterator[Row]:
    x, w, b = real(2, 3, 7, 9), real(4, 3, 3, 2), real(4)
    for how in (
        {}, {"strides": [2, 1]}, {"strides": [1, 3]}, {"dilations": [2, 1]},
        {"dilations": [1, 3]}, {"dilations": [2, 3], "strides": [2, 1]},
        {"pads": [1, 0, 2, 3]}, {"pads": [0, 2, 1, 0], "strides": [2, 2]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 2], "strides": [3, 2]},
        {"kernel_shape": [3, 2]},
    ):  # fmt: skip
        attributes: dict[str, Any] = dict(how)
        yield row("Conv", x, w, b, **attributes)
        yield row("Conv", x, w, **attributes)
    for auto in _SAME:
        for strides in ([1, 1], [2, 3], [3, 2]):
            yield row("Conv", x, w, b, auto_pad=auto, strides=strides)
        yield row("Conv", x, w, auto_pad=auto, dilations=[2, 2])
        yield row("Conv", real(1, 2, 8), real(3, 2, 4), auto_pad=auto, strides=[3])
    for groups, each in ((2, 3), (4, 1), (4, 2)):
        weights = real(groups * each, 4 // groups, 3, 3)
        bias = real(groups * each)
        yield row("Conv", real(2, 4, 6, 5), weights, bias, group=groups)
        yield row("Conv", real(1, 4, 6, 5), weights, group=groups, strides=[2, 1])
    yield row("Conv", real(2, 3, 9), real(4, 3, 3), b, pads=[2, 1], strides=[2])
    yield row("Conv", real(2, 3, 9), real(4, 3, 3), dilations=[3])
    volume, kernel = real(1, 2, 4, 5, 6), real(3, 2, 2, 3, 1)
    yield row("Conv", volume, kernel, real(3), pads=[1, 0, 0, 0, 2, 1])
    yield row("Conv", volume, kernel, strides=[1, 2, 3], dilations=[2, 1, 1])
    yield row("Conv", real(2, 3, 5, 5), real(4, 3, 1, 1), b, strides=[2, 2])
    yield row("Conv", real(2, 3, 3, 3), real(4, 3, 3, 3), b)
    yield row("Conv", real(0, 3, 5, 5), real(4, 3, 3, 3), b)
    yield row("Conv", x.astype(np.float64), w.astype(np.float64), b.astype(np.float64))


def _transposed() -> Iterator[Row]:
    x, w, b = real(2, 3, 4, 5), real(3, 4, 3, 2), real(4)
    for how in (
        {}, {"strides": [2, 3]}, {"dilations": [2, 1]}, {"pads": [1, 0, 2, 1]},
        {"strides": [2, 3], "output_padding": [1, 2]},
        {"strides": [2, 3], "output_shape": [10, 15]},
        {"strides": [2, 2], "output_shape": [8, 9]},
        {"strides": [2, 2], "pads": [1, 1, 0, 0], "output_padding": [1, 0]},
        {"strides": [3, 2], "dilations": [1, 2], "pads": [0, 1, 1, 0]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [3, 1]},
        {"auto_pad": "VALID", "strides": [2, 1]},
    ):  # fmt: skip
        attributes: dict[str, Any] = dict(how)
        yield row("ConvTranspose", x, w, b, **attributes)
        yield row("ConvTranspose", x, w, **attributes)
    for groups in (2, 4):
        yield row("ConvTranspose", real(1, 4, 4, 3), real(4, 2, 2, 3), group=groups)
    yield row("ConvTranspose", real(2, 3, 5), real(3, 4, 3), b, strides=[2])
    volume = real(1, 2, 3, 2, 3), real(2, 3, 2, 2, 1)
    yield row("ConvTranspose", *volume, strides=[1, 2, 2])


def _pooled() -> Iterator[Row]:
    x = real(2, 3, 7, 8)
    hows: tuple[dict[str, Any], ...] = (
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [2, 3], "strides": [2, 1]},
        {"kernel_shape": [2, 3], "strides": [1, 3]},
        {"kernel_shape": [2, 3], "strides": [3, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 0},
        {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1]},
        {"kernel_shape": [3, 3], "pads": [0, 2, 1, 0], "strides": [2, 3]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2],
         "ceil_mode": 1},
        {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
        {"kernel_shape": [7, 8]},
        {"kernel_shape": [1, 1], "strides": [2, 2]},
        *(
            {"kernel_shape": [3, 2], "auto_pad": auto, "strides": strides}
            for auto in _SAME
            for strides in ([1, 1], [2, 2], [3, 2])
        ),
    )  # fmt: skip
    below = -np.abs(x) - 1
    for how in hows:
        yield row("MaxPool", x, **how)
        yield row("MaxPool", below, **how)
        yield row("MaxPool", x, outputs=2, **how)
        yield row("AveragePool", x, **how)
        yield row("AveragePool", x, count_include_pad=1, **how)
        yield row("LpPool", x, **how)
        if "ceil_mode" not in how:
            yield row("AveragePool", x, opset=9, **how)
            yield row("MaxPool", x, opset=9, **how)
            yield row("LpPool", x, p=1, **how)
    dilated: dict[str, Any] = {"kernel_shape": [2, 3], "dilations": [3, 2]}
    yield row("MaxPool", x, **dilated)
    yield row("MaxPool", x, outputs=2, pads=[1, 1, 0, 1], **dilated)
    yield row("AveragePool", x, **dilated)
    yield row("AveragePool", x, pads=[1, 1, 0, 1], count_include_pad=1, **dilated)
    yield row("MaxPool", x, outputs=2, storage_order=1, kernel_shape=[2, 2])
    for operator in ("MaxPool", "AveragePool", "LpPool"):
        yield row(operator, real(2, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 0])
        volume = real(1, 2, 4, 5, 6)
        yield row(operator, volume, kernel_shape=[2, 3, 1], strides=[1, 2, 3])
        yield row(operator, volume, kernel_shape=[2, 2, 2], pads=[1, 0, 0, 0, 1, 1])
    counts = (np.abs(x) * 40).astype(np.uint8)
    yield row("MaxPool", counts, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    small = (x * 20).astype(np.int8)
    yield row("MaxPool", -np.abs(small) - 1, kernel_shape=[2, 2], pads=[1, 1, 1, 1])


def _whole() -> Iterator[Row]:
    for operator in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        for shape in ((2, 3, 4, 5), (2, 3, 7), (1, 2, 3, 2, 4), (2, 3, 1, 1)):
            yield row(operator, real(*shape))
            yield row(operator, -np.abs(real(*shape)) - 1)
    yield row("GlobalLpPool", real(2, 3, 4, 5), p=3)
    rois = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 3]], np.float32)
    yield row("MaxRoiPool", real(2, 2, 5, 5), rois, pooled_shape=[2, 2])
    boxes = np.array([[0.5, 0.5, 3.2, 3.7], [1, 0, 4, 2.5]], np.float32)
    for mode in ("avg", "max"):
        for how in ("half_pixel", "output_half_pixel"):
            yield row(
                "RoiAlign", real(2, 2, 6, 5), boxes, ints(0, 1), mode=mode,
                coordinate_transformation_mode=how, output_height=2, output_width=3,
                sampling_ratio=2, spatial_scale=0.5,
            )  # fmt: skip


_COORDINATES: Final = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
    "half_pixel_symmetric",
)  # fmt: skip


def _resized() -> Iterator[Row]:
    x = real(1, 2, 4, 5)
    scales = (
        [1, 1, 2, 2], [1, 1, 0.6, 0.5], [1, 1, 1.5, 3], [1, 1, 2.5, 0.4],
    )  # fmt: skip
    sizes = ((1, 2, 7, 9), (1, 2, 1, 3), (1, 2, 3, 1), (1, 2, 4, 5))
    for how in _COORDINATES:
        for mode in ("linear", "nearest", "cubic"):
            given: dict[str, Any] = {
                "mode": mode, "coordinate_transformation_mode": how
            }  # fmt: skip
            for each in scales:
                yield row("Resize", x, None, np.array(each, np.float32), **given)
            for size in sizes:
                yield row("Resize", x, None, None, ints(*size), **given)
    for rounded in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for how in ("half_pixel", "asymmetric"):
            for each in scales:
                yield row(
                    "Resize", x, None, np.array(each, np.float32), mode="nearest",
                    nearest_mode=rounded, coordinate_transformation_mode=how,
                )  # fmt: skip
    half = np.array([1, 1, 0.5, 0.5], np.float32)
    for mode in ("linear", "cubic"):
        yield row("Resize", x, None, half, mode=mode, antialias=1)
    yield row("Resize", x, None, scales_of(scales[0]), mode="cubic", exclude_outside=1)
    yield row("Resize", x, None, scales_of(scales[1]), mode="cubic", cubic_coeff_a=-0.5)
    roi = np.array([0, 0, 0.2, 0.3, 1, 1, 0.8, 1.2], np.float32)
    for mode in ("linear", "nearest"):
        yield row(
            "Resize", x, roi, None, ints(1, 2, 3, 6), mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=9.0,
        )  # fmt: skip
    yield row("Resize", x, None, None, ints(7, 9), mode="linear", axes=[2, 3])
    yield row("Resize", x, None, None, ints(9, 7), mode="linear", axes=[3, 2])
    for policy in ("not_larger", "not_smaller"):
        yield row(
            "Resize", x, None, None, ints(6, 6), mode="nearest", axes=[2, 3],
            keep_aspect_ratio_policy=policy,
        )  # fmt: skip
    yield row("Resize", real(1, 2, 5), None, scales_of([1, 1, 2]), mode="linear")


def scales_of(numbers: Any) -> Any:
    """Factors, one of each axis."""
    return np.array(numbers, np.float32)


def _resized_before() -> Iterator[Row]:
    x, twice = real(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)
    for mode in ("nearest", "linear"):
        yield row("Upsample", x, opset=8, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
        yield row("Upsample", x, twice, opset=9, mode=mode)
        yield row("Resize", x, twice, opset=10, mode=mode)
        empty = np.zeros((0,), np.float32)
        yield row("Resize", x, empty, twice, opset=11, mode=mode)
        yield row("Resize", x, None, twice, opset=13, mode=mode)


def _sampled() -> Iterator[Row]:
    x = real(1, 2, 4, 5)
    grid = real(1, 3, 2, 2) / np.float32(2.5)
    for aligned in (0, 1):
        for padding in ("zeros", "border", "reflection"):
            for mode in ("linear", "nearest", "cubic"):
                yield row(
                    "GridSample", x, grid, mode=mode, padding_mode=padding,
                    align_corners=aligned,
                )  # fmt: skip
        theta = np.array([[[1, 0.2, 0.1], [-0.3, 0.9, 0.5]]], np.float32)
        yield row("AffineGrid", theta, ints(1, 2, 3, 4), align_corners=aligned)
