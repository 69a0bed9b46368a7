"""Regions of interest: which boxes remain, and what is read of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node_oracles import reference
from .comparison import assert_near, assert_same, result_of, wide
from .strategies import Draw, examples


@examples(60)
def test_non_max_suppression(draw: Draw) -> None:
    images, classes, count = (draw.integer(1, n) for n in (2, 2, 6))
    corners = draw.integers(0, 6, (images, count, 4), np.float32)
    centered = draw.integer(0, 1)
    scores = draw.integers(0, 6, (images, classes, count), np.float32)
    limit = np.array([draw.integer(0, 4)])
    overlap = np.array([draw.one_of([0.0, 0.3, 0.6])], np.float32)
    least = np.array([draw.one_of([-1.0, 2.5])], np.float32)
    expected = []
    for image, kind in np.ndindex(images, classes):
        chosen: list[int] = []
        order = sorted(range(count), key=lambda box: -scores[image, kind, box])
        for box in order:
            rest = [corners[image, other] for other in chosen]
            if scores[image, kind, box] <= least or len(chosen) >= int(limit[0]):
                continue
            if all(
                share(corners[image, box], other, centered) <= overlap for other in rest
            ):
                chosen.append(box)
        expected += [(image, kind, box) for box in chosen]
    found = result_of(
        "NonMaxSuppression",
        corners, scores, limit, overlap, least, center_point_box=centered,
    )  # fmt: skip
    assert_same(found, np.array(expected, np.int64).reshape(-1, 3))


def share(one: Any, two: Any, centered: int) -> float:
    """Of what two boxes cover together, how much they have in common."""
    edges = []
    for box in (one, two):
        a, b, c, d = map(float, box)
        if centered:
            edges.append((a - c / 2, b - d / 2, a + c / 2, b + d / 2))
        else:
            edges.append((min(a, c), min(b, d), max(a, c), max(b, d)))
    (a0, b0, c0, d0), (a1, b1, c1, d1) = edges
    common = max(0.0, min(c0, c1) - max(a0, a1)) * max(0.0, min(d0, d1) - max(b0, b1))
    if not common:
        return 0.0
    return common / ((c0 - a0) * (d0 - b0) + (c1 - a1) * (d1 - b1) - common)


@examples(30)
def test_roi_align(draw: Draw) -> None:
    """Against ONNX's reference."""
    images, channels = draw.integer(1, 2), draw.integer(1, 2)
    x = draw.array(
        np.float32,
        (images, channels, draw.integer(2, 6), draw.integer(2, 6)),
        "ordinary",
    )
    count = draw.integer(1, 3)
    corners = draw.integers(0, 10, (count, 2), np.float32) / 2
    sides = draw.integers(1, 8, (count, 2), np.float32) / 2
    rois = np.concatenate([corners, corners + sides], axis=1)
    batch = draw.integers(0, images - 1, (count,))
    given = {
        "mode": "avg",  # of the largest, the reference differs from the text
        "output_height": draw.integer(1, 3),
        "output_width": draw.integer(1, 3),
        "sampling_ratio": draw.integer(0, 2),
        "spatial_scale": draw.one_of([1.0, 0.5]),
        "coordinate_transformation_mode": draw.one_of(
            ["half_pixel", "output_half_pixel"]
        ),
    }
    (expected,) = reference("RoiAlign", x, rois, batch, **given)
    found = result_of("RoiAlign", x, rois, batch, **given)
    assert_near(found, wide(expected), np.float32, 64, 8)
