"""Window arithmetic against positions counted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.windows import fold, pad, patches, place_windows

XP = namespace_of(np)

SHAPES: list[dict[str, Any]] = [
    {"spatial_shape": [7], "kernel_shape": [3], "strides": [2], "pads": [1, 0]},
    {"spatial_shape": [6, 5], "kernel_shape": [2, 3], "dilations": [2, 1]},
    {"spatial_shape": [5, 6], "kernel_shape": [3, 2], "pads": [0, 2, 1, 1]},
    {"spatial_shape": [4, 5, 3], "kernel_shape": [2, 1, 3], "strides": [1, 3, 1]},
    {"spatial_shape": [6], "kernel_shape": [2], "strides": [3], "ceil_mode": 1},
    {"spatial_shape": [7, 7], "kernel_shape": [4, 4], "auto_pad": "SAME_LOWER"},
]


@pytest.mark.parametrize("attributes", SHAPES)
def test_patches_are_what_the_windows_cover(attributes: dict[str, Any]) -> None:
    windows = place_windows(**attributes)
    x = np.random.default_rng(0).normal(size=(2, *attributes["spatial_shape"]))
    seen = patches(XP, pad(XP, x, windows, -9.0), windows)
    assert seen.shape == (2, *windows.kernel, *windows.count)
    rank = len(windows.kernel)
    for position in np.ndindex(*seen.shape[1:]):
        source = [
            count * stride + tap * dilation - begin
            for tap, count, stride, dilation, begin in zip(
                position[:rank],
                position[rank:],
                windows.strides,
                windows.dilations,
                windows.begin,
                strict=True,
            )
        ]
        inside = all(0 <= i < n for i, n in zip(source, x.shape[1:], strict=True))
        expected = x[(slice(None), *source)] if inside else [-9.0, -9.0]
        np.testing.assert_array_equal(seen[(slice(None), *position)], expected)


@pytest.mark.parametrize("attributes", SHAPES)
def test_fold_is_the_adjoint_of_patches(attributes: dict[str, Any]) -> None:
    windows = place_windows(**attributes)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, *attributes["spatial_shape"]))
    seen = patches(XP, pad(XP, x, windows), windows)
    elements = rng.normal(size=seen.shape)
    folded = fold(XP, elements, windows, x.shape[1:])
    assert folded.shape == x.shape
    np.testing.assert_allclose(np.sum(seen * elements), np.sum(x * folded))


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "count"),
    [
        (4, 3, 2, (0, 0), 2),
        (5, 2, 3, (0, 0), 2),
        # a third window would start in the padding after the input
        (4, 2, 2, (1, 1), 3),
        (3, 1, 2, (0, 1), 2),
        (6, 3, 2, (1, 1), 4),
    ],
)
def test_ceil_mode_adds_no_window_that_starts_after_the_input(
    size: int, kernel: int, stride: int, pads: tuple[int, int], count: int
) -> None:
    windows = place_windows([size], [kernel], strides=[stride], pads=pads, ceil_mode=1)
    assert windows.count == (count,)
    assert (count - 1) * stride < size + pads[0]


@pytest.mark.parametrize(("size", "stride"), [(5, 1), (5, 2), (6, 4), (7, 3)])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_same_padding_keeps_the_size_over_the_stride(
    size: int, stride: int, kernel: int
) -> None:
    upper = place_windows([size], [kernel], strides=[stride], auto_pad="SAME_UPPER")
    lower = place_windows([size], [kernel], strides=[stride], auto_pad="SAME_LOWER")
    assert upper.count == lower.count == (-(-size // stride),)
    assert (upper.begin, upper.end) == (lower.end, lower.begin)
    assert 0 <= upper.end[0] - upper.begin[0] <= 1


def test_errors_name_the_attribute() -> None:
    with pytest.raises(ValueError, match="strides has 1 values"):
        place_windows([4, 4], [2, 2], strides=[1])
    with pytest.raises(ValueError, match="pads has 2 values"):
        place_windows([4, 4], [2, 2], pads=[1, 1])
    with pytest.raises(ValueError, match="auto_pad is 'SAME'"):
        place_windows([4], [2], auto_pad="SAME")
    with pytest.raises(ValueError, match="spans 9 positions, but there are 4"):
        place_windows([4], [3], dilations=[4])
