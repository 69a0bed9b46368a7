"""Places of resized elements against fractions, and against what other engines do."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_kernels.resize import ResizedAxis, resized_axes

from .node_oracles import onnx_runtime, reference, run
from .resized_axis import HALF, Axis, nearest

TRANSFORMS = (
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
    "tf_half_pixel_for_nn"
).split()
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resized(length: int, size: int, roi: Any = None, **attributes: Any) -> ResizedAxis:
    (axis,) = resized_axes(
        np, (length,), roi, None, np.array([size], np.int64), **attributes
    )
    return axis


def clipped(index: int, length: int) -> int:
    return min(max(index, 0), length - 1)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_nearest_elements_of_short_axes(transform: str) -> None:
    """All lengths to all sizes: in floats a few of these come out one beside."""
    for length, size in itertools.product(range(1, 25), repeat=2):
        if length == size:
            continue
        axis = Axis(length, size, Fraction(size, length), transform)
        points = [axis.point(n) for n in range(size)]
        for rounding in ROUNDINGS:
            ((index, weight),) = resized(
                length,
                size,
                coordinate_transformation_mode=transform,
                nearest_mode=rounding,
            ).taps
            expected = [clipped(nearest(p, rounding), length) for p in points]
            assert index.tolist() == expected, (length, size, rounding)
            assert weight is None


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_point_on_an_element_is_made_of_no_other(transform: str) -> None:
    for length, size in itertools.product(range(1, 25), repeat=2):
        if length == size:
            continue
        axis = Axis(length, size, Fraction(size, length), transform)
        taps = resized(
            length, size, mode="linear", coordinate_transformation_mode=transform
        ).taps
        for n in range(size):
            point = axis.point(n)
            low = math.floor(point)
            behind = float(point - low)
            found = [(int(index[n]), float(weight[n])) for index, weight in taps]  # type: ignore[index]
            assert found == [
                (clipped(low, length), 1 - behind),
                (clipped(low + 1, length), behind),
            ]


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_lengths_of_one_ratio_are_rounded_exactly(policy: str) -> None:
    """In floats 17 / 14 * 21 is less than 25 and a half."""
    for length, size, other in (
        *((14, 17, 21), (22, 15, 11), (10, 23, 25), (26, 15, 13), (6, 13, 27)),
        *itertools.product(range(1, 8), repeat=3),
    ):
        # what the other axis is asked for does not matter
        asked = 10_000 if policy == "not_larger" else 0
        found = run(
            "Resize",
            *(np.zeros((length, other), bool), None, None),
            np.array([size, asked]),
            keep_aspect_ratio_policy=policy,
        )
        wanted = math.floor(Fraction(size, length) * other + HALF)
        assert found.shape == (size, wanted), (length, size, other)


def crop(length: int, start: float, end: float, size: int) -> Axis:
    axis = Axis(length, size, Fraction(size, length), "tf_crop_and_resize")
    axis.region = Fraction(start), Fraction(end)
    return axis


def test_random_crops() -> None:
    """Among them regions that are flipped, empty, far away, and as fine as floats."""
    generator = random.Random(0)
    ordinary = [n / 16 for n in range(-8, 25)] + [0.1, 0.3, 0.7, 0.9]
    hostile = [1e38, -1e38, 1e-40, 1e-45, 16777216.0, -1e9, 5e-10]
    for _ in range(4000):
        numbers = ordinary if generator.random() < 0.8 else ordinary + hostile * 4
        start, end = (float(np.float32(generator.choice(numbers))) for _ in range(2))
        length, size = generator.randint(1, 20), generator.randint(1, 20)
        axis = crop(length, start, end, size)
        points = [axis.point(n) for n in range(size)]
        rounding = generator.choice(ROUNDINGS)
        roi = np.array([start, end], np.float32)
        found = resized(
            *(length, size, roi),
            coordinate_transformation_mode="tf_crop_and_resize",
            nearest_mode=rounding,
        )
        outside = [not 0 <= p <= length - 1 for p in points]
        assert found.beyond is not None
        assert found.beyond.tolist() == outside, (length, size, start, end)
        ((index, _),) = found.taps
        for n, point in enumerate(points):
            if not outside[n]:
                assert index[n] == nearest(point, rounding), (length, size, start, end)
        assert ((index >= 0) & (index < length)).all()


class Decision(NamedTuple):
    """A crop on which engines differ, and what the operator's text makes of it.

    The input counts from 0, so that a result tells where it was read.
    """

    why: str
    length: int
    roi: tuple[float, float]
    target: dict[str, float]
    given: dict[str, Any]
    text: list[float]
    onnx_runtime: list[float]
    reference: list[float]


BEYOND = -1.0
"""The *extrapolation_value*."""
LINEAR = {"mode": "linear"}

DECISIONS = [
    Decision(
        "an axis that keeps its length is cropped like any other",
        *(4, (0.0, 0.5), {"sizes": 4}, LINEAR),
        text=[0, 0.5, 1, 1.5],
        onnx_runtime=[0, 1, 2, 3],
        reference=[0, 0.5, 1, 1.5],
    ),
    Decision(
        "so is one with a scale of 1",
        *(4, (0.5, 1.5), {"scales": 1}, LINEAR),
        text=[1.5, 2.5, BEYOND, BEYOND],
        onnx_runtime=[0, 1, 2, 3],
        reference=[1.5, 2.5, BEYOND, BEYOND],
    ),
    Decision(
        "a region that ends before it starts is read backwards, whatever the lengths",
        *(4, (1.0, 0.0), {"sizes": 4}, LINEAR),
        text=[3, 2, 1, 0],
        onnx_runtime=[0, 1, 2, 3],
        reference=[3, 2, 1, 0],
    ),
    Decision(
        "length_resized is how long the output is, not 4 * 0.6",
        *(4, (0.0, 1.0), {"scales": 0.6}, LINEAR),
        text=[0, 3],
        onnx_runtime=[0, 3],
        reference=[0, 3 / 1.4],
    ),
    Decision(
        "the only element is at the middle, also where 4 * 0.3 is more than one",
        *(4, (0.25, 1.5), {"scales": 0.3}, LINEAR),
        text=[2.625],
        onnx_runtime=[2.625],
        reference=[0.75],
    ),
    Decision(
        "the last place of this region is 6, which is not rounded to less",
        *(7, (0.1, 1.0), {"sizes": 3}, {"nearest_mode": "floor"}),
        text=[0, 3, 6],
        onnx_runtime=[0, 3, 5],
        reference=[0, 3, 5],
    ),
    Decision(
        "0.1 of float32 is a little more than a tenth, so 0.1 * 5 is nearer to 1",
        *(6, (0.1, 0.9), {"sizes": 5}, {"nearest_mode": "round_prefer_floor"}),
        text=[1, 1, 2, 3, 4],
        onnx_runtime=[0, 1, 2, 3, 4],
        reference=[0, 1, 2, 3, 4],
    ),
    Decision(
        "the end of the axis is within it, which float32 puts beyond",
        *(2, (0.2, 1.0), {"sizes": 6}, {"nearest_mode": "round_prefer_ceil"}),
        text=[0, 0, 1, 1, 1, 1],
        onnx_runtime=[0, 0, 1, 1, 1, 1],
        reference=[0, 0, 1, 1, 1, BEYOND],
    ),
]


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: decision.why)
def test_the_text_decides_where_engines_differ(decision: Decision) -> None:
    x = np.arange(decision.length, dtype=np.float32).reshape(1, 1, 1, -1)
    start, end = decision.roi
    roi = np.array([0, 0, 0, start, 1, 1, 1, end], np.float32)
    scales = sizes = None
    if "scales" in decision.target:
        scales = np.array([1, 1, 1, decision.target["scales"]], np.float32)
    else:
        sizes = np.array([1, 1, 1, decision.target["sizes"]], np.int64)
    attributes = {
        **decision.given,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": BEYOND,
    }
    inputs = (x, roi, scales, sizes)
    found = run("Resize", *inputs, **attributes)
    np.testing.assert_allclose(found.ravel(), decision.text, 1e-6)
    # that these differ is why the case is here
    (theirs,) = onnx_runtime("Resize", *inputs, **attributes)
    np.testing.assert_allclose(theirs.ravel(), decision.onnx_runtime, 1e-6)
    (other,) = reference("Resize", *inputs, **attributes)
    np.testing.assert_allclose(other.ravel(), decision.reference, 1e-6)
