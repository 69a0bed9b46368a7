"""Regions of interest, point by point and box by box."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from onnxplug_kernels import find_kernel

from .node_oracles import onnx_runtime


def run(op_type: str, *inputs: Any, version: int = 22, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=1)(*inputs)


def values(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def weighted(image: Any, y: float, x: float) -> list[float]:
    """The weighted elements around a point; none where it is too far outside."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return [0.0]
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    down, right = y - top, x - left
    bottom, after = min(top + 1, height - 1), min(left + 1, width - 1)
    return [
        float(image[top, left]) * (1 - down) * (1 - right),
        float(image[top, after]) * (1 - down) * right,
        float(image[bottom, left]) * down * (1 - right),
        float(image[bottom, after]) * down * right,
    ]


ROIS = np.array(
    [
        [0, 0, 7, 5],
        [2.3, 1.1, 9.7, 9.4],
        [-6, -5, 4, 3],
        [5, 5, 5.2, 5.1],
        [8, 8, 30, 30],
    ],
    np.float32,
)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_roi_align_reads_a_grid_of_points(
    mode: str, sampling_ratio: int, transform: str
) -> None:
    x, images = values(2, 2, 6, 7), np.array([0, 1, 1, 0, 1])
    shift = 0.5 if transform == "half_pixel" else 0.0
    expected = np.zeros((5, 2, 2, 3))
    for r, c, i, j in np.ndindex(*expected.shape):
        x1, y1, x2, y2 = (float(v) * 0.6 - shift for v in ROIS[r])
        height, width = y2 - y1, x2 - x1
        if not shift:
            height, width = max(height, 1.0), max(width, 1.0)
        rows = sampling_ratio or math.ceil(height / 2)
        columns = sampling_ratio or math.ceil(width / 3)
        points = [
            weighted(
                x[images[r], c],
                y1 + (i + (a + 0.5) / rows) * height / 2,
                x1 + (j + (b + 0.5) / columns) * width / 3,
            )
            for a in range(rows)
            for b in range(columns)
        ]
        if mode == "avg":
            expected[r, c, i, j] = sum(map(sum, points)) / len(points)
        else:
            expected[r, c, i, j] = max(map(max, points))
    attributes: dict[str, Any] = {
        "mode": mode,
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": sampling_ratio,
        "spatial_scale": 0.6,
    }
    y = run(
        "RoiAlign",
        *(x, ROIS, images),
        coordinate_transformation_mode=transform,
        **attributes,
    )
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, atol=1e-5)
    # the transformation came with opset 16, with a default that changed the results
    version, default = (10, "output_half_pixel") if not shift else (16, "half_pixel")
    assert transform == default
    old = run("RoiAlign", x, ROIS, images, version=version, **attributes)
    np.testing.assert_array_equal(old, y)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_regions_of_other_types(dtype: Any) -> None:
    x = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
    y = run(
        "RoiAlign",
        *(x, np.array([[0, 0, 4, 4]], dtype), np.array([0])),
        output_height=2,
        output_width=2,
        sampling_ratio=2,
    )
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(float), [[[[2.5, 4.5], [10.5, 12.5]]]])
    y = run("MaxRoiPool", x, np.array([[0, 0, 0, 3, 3]], dtype), pooled_shape=(2, 2))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(float), [[[[5, 7], [13, 15]]]])


def test_no_regions() -> None:
    x = values(1, 3, 4, 4)
    y = run("RoiAlign", x, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    assert y.shape == (0, 3, 1, 1)
    y = run("MaxRoiPool", x, np.zeros((0, 5), np.float32), pooled_shape=(2, 2))
    assert y.shape == (0, 3, 2, 2)


def test_max_roi_pool_takes_the_largest_of_overlapping_bins() -> None:
    x = values(2, 3, 7, 8)
    rois = np.array(
        [[0, 0, 0, 7, 6], [1, 2.4, 1.6, 6.5, 5.4], [1, 3, 3, 3, 3], [0, 5, 5, 20, 20]],
        np.float32,
    )
    y = run("MaxRoiPool", x, rois, pooled_shape=(3, 2), spatial_scale=0.8)
    expected = np.zeros((4, 3, 3, 2), np.float32)
    for r, i, j in np.ndindex(4, 3, 2):
        x1, y1, x2, y2 = (math.floor(float(v) * 0.8 + 0.5) for v in rois[r, 1:])
        height, width = y2 - y1 + 1, x2 - x1 + 1
        rows = [
            y1 + h
            for h in range(height)
            if i * height / 3 - 1 < h < (i + 1) * height / 3 and 0 <= y1 + h < 7
        ]
        columns = [
            x1 + w
            for w in range(width)
            if j * width / 2 - 1 < w < (j + 1) * width / 2 and 0 <= x1 + w < 8
        ]
        if rows and columns:
            image = x[int(rois[r, 0])]
            expected[r, :, i, j] = image[:, rows][:, :, columns].max(axis=(1, 2))
    np.testing.assert_array_equal(y, expected)


def overlap(a: Any, b: Any) -> float:
    (ay1, ax1, ay2, ax2), (by1, bx1, by2, bx2) = a, b
    common = max(min(ay2, by2) - max(ay1, by1), 0) * max(
        min(ax2, bx2) - max(ax1, bx1), 0
    )
    union = (ay2 - ay1) * (ax2 - ax1) + (by2 - by1) * (bx2 - bx1) - common
    return float(common / union)


@pytest.mark.parametrize("center_point_box", [0, 1])
@pytest.mark.parametrize("threshold", [0.1, 0.4])
@pytest.mark.parametrize("limit", [2, 10])
def test_non_max_suppression(
    center_point_box: int, threshold: float, limit: int
) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 5, (2, 12, 2))
    corners = np.concatenate([low, low + rng.uniform(1, 4, (2, 12, 2))], axis=2)
    scores = rng.permutation(48).reshape(2, 2, 12).astype(np.float32)
    expected = []
    for image, kind in np.ndindex(2, 2):
        kept: list[int] = []
        for box in sorted(range(12), key=lambda i: -scores[image, kind, i]):
            if scores[image, kind, box] > 6 and all(
                overlap(corners[image, box], corners[image, other]) <= threshold
                for other in kept
            ):
                kept.append(box)
        expected += [(image, kind, box) for box in kept[:limit]]
    if center_point_box:
        size = corners[..., 2:] - corners[..., :2]
        boxes = np.concatenate([corners[..., :2] + size / 2, size], axis=2)
    else:
        # any two opposite corners make a box
        boxes = corners[..., [2, 1, 0, 3]]
    selected = run(
        "NonMaxSuppression",
        boxes.astype(np.float32),
        scores,
        np.array(limit),
        np.array(threshold, np.float32),
        np.array([6], np.float32),
        center_point_box=center_point_box,
    )
    assert selected.dtype == np.int64
    np.testing.assert_array_equal(selected, expected)


@pytest.mark.parametrize("limit", [63, 64, 65, 400])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_non_max_suppression_of_many_boxes(threshold: float, limit: int) -> None:
    # more than are looked at together, many of them with equal scores
    rng = np.random.default_rng(1)
    low = rng.uniform(0, 60, (1, 300, 2))
    boxes = np.concatenate([low, low + rng.uniform(0, 9, (1, 300, 2))], axis=2)
    inputs = (
        boxes.astype(np.float32),
        rng.integers(0, 90, (1, 2, 300)).astype(np.float32),
        np.array([limit]),
        np.array([threshold], np.float32),
        np.array([1], np.float32),
    )
    (expected,) = onnx_runtime(
        "NonMaxSuppression", *inputs, outputs=(TensorProto.INT64,)
    )
    selected = run("NonMaxSuppression", *inputs)
    np.testing.assert_array_equal(selected, expected)


def test_non_max_suppression_selects_nothing_unless_asked() -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    selected = run("NonMaxSuppression", boxes, scores)
    assert selected.shape == (0, 3) and selected.dtype == np.int64


def test_non_max_suppression_takes_the_first_of_equals() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    scores = np.ones((1, 1, 3), np.float32)
    selected = run("NonMaxSuppression", boxes, scores, np.array(3))
    np.testing.assert_array_equal(selected, [[0, 0, 0], [0, 0, 2]])
