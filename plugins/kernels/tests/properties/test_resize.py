"""Resampling, point by point, with the places of points as exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ..node_oracles import reference
from ..resized_axis import HALF, Axis, nearest
from .comparison import assert_near, assert_same, result_of, wide
from .strategies import Array, Draw, examples, is_float


def triangle(distance: float) -> float:
    return max(0.0, 1 - abs(distance))


def cubic(distance: float, a: float) -> float:
    x = abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def weights(
    axis: Axis, point: Fraction, given: dict[str, Any]
) -> list[tuple[int, float]]:
    """(position, weight) of what a point is made of; beyond the ends lie copies."""
    radius = 1 if given["mode"] == "linear" else 2
    stretch = axis.stretch if given.get("antialias") else Fraction(1)
    first = math.floor(point - radius * stretch)
    found = []
    for position in range(first, first + 2 * math.ceil(radius * stretch) + 3):
        distance = float((position - point) / stretch)
        if given["mode"] == "linear":
            weight = triangle(distance)
        else:
            weight = cubic(distance, given.get("cubic_coeff_a", -0.75))
        if given.get("exclude_outside") and not 0 <= position < axis.length:
            weight = 0.0
        found.append((min(max(position, 0), axis.length - 1), weight))
    if given.get("exclude_outside") or stretch > 1:
        total = math.fsum(weight for _, weight in found)
        found = [(position, weight / total) for position, weight in found]
    return [(position, weight) for position, weight in found if weight]


@examples(160)
def test_resize(draw: Draw) -> None:
    given: dict[str, Any] = {"mode": draw.one_of(["nearest", "linear", "cubic"])}
    mode = draw.one_of(
        (
            "half_pixel pytorch_half_pixel align_corners asymmetric "
            "half_pixel_symmetric tf_crop_and_resize"
        ).split()
    )
    if mode != "half_pixel" or draw.flag():
        given["coordinate_transformation_mode"] = mode
    # how an average becomes an integer is not told
    dtype = draw.dtype("Resize", "T1", None if given["mode"] == "nearest" else is_float)
    x = draw.array(dtype, draw.shape(1, 3, empty=False), "ordinary")
    chosen = draw.axes(x.ndim, fewest=1)
    if len(chosen) < x.ndim or draw.flag():
        given["axes"] = chosen
    else:
        chosen = list(range(x.ndim))
    lengths = [x.shape[axis] for axis in chosen]
    scales = sizes = roi = None
    # with a fraction of an element left over, texts differ on where corners are
    by_sizes = mode in ("align_corners", "tf_crop_and_resize") or draw.flag()
    if by_sizes:
        wanted = [draw.integer(1, 7) for _ in chosen]
        ratios = [Fraction(n, m) for n, m in zip(wanted, lengths, strict=True)]
        policy = draw.one_of(["stretch", "not_larger", "not_smaller"])
        if policy != "stretch" and not by_corners(mode):
            given["keep_aspect_ratio_policy"] = policy
            ratio = (min if policy == "not_larger" else max)(ratios)
            ratios = [ratio] * len(chosen)
        results = [
            math.floor(ratio * n + HALF)
            for ratio, n in zip(ratios, lengths, strict=True)
        ]
        sizes = np.array(wanted, np.int64)
    else:
        numbers = [draw.one_of([1.0, 0.5, 2.0, 1.5, 0.75, 3.0]) for _ in chosen]
        scales = np.array(numbers, np.float32)
        ratios = [Fraction(n) for n in numbers]
        results = [math.floor(r * n) for r, n in zip(ratios, lengths, strict=True)]
    if math.prod(results) > 400 or 0 in results:
        return
    axes = [Axis(n, n, Fraction(1), "half_pixel") for n in x.shape]
    for axis, length, size, ratio in zip(chosen, lengths, results, ratios, strict=True):
        axes[axis] = Axis(length, size, ratio, mode)
    if mode == "tf_crop_and_resize":
        corners = [
            (draw.one_of([0.0, 0.25, -0.5]), draw.one_of([1.0, 0.75, 1.5]))
            for _ in chosen
        ]
        for axis, (start, end) in zip(chosen, corners, strict=True):
            axes[axis].region = Fraction(start), Fraction(end)
        roi = np.array([*(c[0] for c in corners), *(c[1] for c in corners)], np.float32)
        given["extrapolation_value"] = draw.one_of([0.0, 7.5])
    if given["mode"] == "nearest":
        given["nearest_mode"] = draw.one_of(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    else:
        if draw.flag():
            given["antialias"] = 1
        if draw.flag():
            given["exclude_outside"] = 1
        if given["mode"] == "cubic" and draw.flag():
            given["cubic_coeff_a"] = -0.5
    if dtype.kind not in "fV" and mode == "tf_crop_and_resize":
        return  # what is put beyond the region is a float
    found = result_of("Resize", x, roi, scales, sizes, **given)
    check(found, x, axes, given)


def by_corners(mode: str) -> bool:
    """The last point is where the last element is, whatever the ratio."""
    return mode in ("align_corners", "tf_crop_and_resize")


def check(found: Array, x: Array, axes: list[Axis], given: dict[str, Any]) -> None:
    shape = tuple(axis.size for axis in axes)
    crops = "extrapolation_value" in given
    lines = [[axis.point(n) for n in range(axis.size)] for axis in axes]
    expected = np.zeros(shape, x.dtype if given["mode"] == "nearest" else np.longdouble)
    for place in np.ndindex(shape):
        points = [line[n] for line, n in zip(lines, place, strict=True)]
        beyond = crops and any(
            not 0 <= point <= axis.length - 1
            for point, axis in zip(points, axes, strict=True)
        )
        if beyond:
            expected[place] = given["extrapolation_value"]
        elif given["mode"] == "nearest":
            expected[place] = x[
                tuple(
                    min(max(nearest(point, given["nearest_mode"]), 0), axis.length - 1)
                    for point, axis in zip(points, axes, strict=True)
                )
            ]
        else:
            taps = [
                weights(axis, point, given)
                for point, axis in zip(points, axes, strict=True)
            ]
            expected[place] = sum(
                wide(x)[tuple(position for position, _ in tap)]
                * math.prod(weight for _, weight in tap)
                for tap in itertools.product(*taps)
            )
    if given["mode"] == "nearest":
        assert_same(found, expected)
        return
    size = np.abs(wide(x)).max() * 4 + 8
    assert_near(found, expected, x.dtype, 8 if x.dtype.itemsize > 2 else 1, size)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@examples(25)
def test_grid_sample(mode: str, draw: Draw) -> None:
    """Against ONNX's reference; points half way between two are left to chance."""
    dtype = np.dtype(np.float32)  # in which the reference computes
    rank = draw.integer(2, 3) if mode != "cubic" else 2
    batch, channels = draw.integer(1, 2), draw.integer(1, 2)
    spatial, output = ([draw.integer(2, 4) for _ in range(rank)] for _ in range(2))
    x = draw.array(dtype, (batch, channels, *spatial), "ordinary")
    points = np.array([0, -0.93, -0.41, 0.17, 0.59, 0.83, 1.07, -1.13, 1.71, -2.9])
    grid = draw.of(points.astype(dtype), (batch, *output, rank))
    # a cubic curve may stop at the border or go on, as it does in PyTorch and here
    paddings = ["zeros", "reflection", *([] if mode == "cubic" else ["border"])]
    given = {
        "mode": mode,
        "align_corners": draw.integer(0, 1),
        "padding_mode": draw.one_of(paddings),
    }
    (expected,) = reference("GridSample", x, grid, **given)
    found = result_of("GridSample", x, grid, **given)
    assert_near(found, wide(expected), dtype, 256, 32)


@examples(35)
def test_affine_grid(draw: Draw) -> None:
    dtype = draw.dtype("AffineGrid", "T1")
    batch, rank = draw.integer(1, 2), draw.integer(2, 3)
    spatial = [draw.integer(2, 4) for _ in range(rank)]
    theta = draw.array(dtype, (batch, rank, rank + 1), "whole")
    corners = draw.integer(0, 1)
    lines = []
    for n in spatial:
        steps = np.arange(n, dtype=np.longdouble)
        lines.append(2 * steps / (n - 1) - 1 if corners else (2 * steps + 1) / n - 1)
    exact = np.zeros((batch, *spatial, rank), np.longdouble)
    for place in np.ndindex(batch, *spatial):
        point = [line[n] for line, n in zip(lines, place[1:], strict=True)]
        # innermost first, and one for what is added
        exact[place] = wide(theta)[place[0]] @ np.array([*reversed(point), 1])
    size = np.array([batch, 1, *spatial], np.int64)
    found = result_of("AffineGrid", theta, size, align_corners=corners)
    assert_near(found, exact, dtype, 4 if dtype.itemsize > 2 else 1, 16)
