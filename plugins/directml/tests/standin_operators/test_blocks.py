"""Blocks of space and depth: examples of the pages, and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .examples import assert_documented, assert_rejected, evaluate, f32, u32
from .reference import of_onnx

DEEP = u32(
    [
        [
            [[0, 1, 2], [3, 4, 5]],
            [[9, 10, 11], [12, 13, 14]],
            [[18, 19, 20], [21, 22, 23]],
            [[27, 28, 29], [30, 31, 32]],
            [[36, 37, 38], [39, 40, 41]],
            [[45, 46, 47], [48, 49, 50]],
            [[54, 55, 56], [57, 58, 59]],
            [[63, 64, 65], [66, 67, 68]],
        ]
    ]
)

WIDE = {
    "DEPTH_COLUMN_ROW": """
        0 18  1 19  2 20   36 54 37 55 38 56   3 21  4 22  5 23   39 57 40 58 41 59
        9 27 10 28 11 29   45 63 46 64 47 65  12 30 13 31 14 32   48 66 49 67 50 68
    """,
    "COLUMN_ROW_DEPTH": """
        0  9  1 10  2 11   18 27 19 28 20 29   3 12  4 13  5 14   21 30 22 31 23 32
       36 45 37 46 38 47   54 63 55 64 56 65  39 48 40 49 41 50   57 66 58 67 59 68
    """,
}


@pytest.mark.parametrize("order", WIDE)
def test_depth_and_space(order: str) -> None:
    wide = np.array(WIDE[order].split(), np.uint32).reshape(1, 2, 4, 6)
    there: dict[str, Any] = {"InputTensor": DEEP, "OutputTensor": wide, "BlockSize": 2}
    back: dict[str, Any] = {"InputTensor": wide, "OutputTensor": DEEP, "BlockSize": 2}
    assert_documented("DEPTH_TO_SPACE1", **there, Order=order)
    assert_documented("SPACE_TO_DEPTH1", **back, Order=order)
    if order == "DEPTH_COLUMN_ROW":
        assert_documented("DEPTH_TO_SPACE", **there)
        assert_documented("SPACE_TO_DEPTH", **back)
    three = {"BlockSize": 3, "Order": order}
    assert_rejected("DEPTH_TO_SPACE1", "blocks of 3", **(there | three))
    assert_rejected("SPACE_TO_DEPTH1", "blocks of 3", **(back | three))
    assert_rejected("SPACE_TO_DEPTH1", "is 0", **(back | {"BlockSize": 0}), Order=order)
    same = {"OutputTensor": DEEP, "Order": order}
    assert_rejected("DEPTH_TO_SPACE1", "OutputTensor has Sizes", **(there | same))


WINDOWS = {"DimensionCount": 2, "WindowSizes": (3, 3), "Strides": (1, 1)}
PLAIN = {**WINDOWS, "Dilations": (1, 1), "StartPadding": (0, 0), "EndPadding": (0, 0)}
HIGH = PLAIN | {"StartPadding": (1, 0), "EndPadding": (1, 0)}

FOLDED = {
    "plain": (PLAIN, (1, 1, 4, 4), 4, "0 5 13 9 14 38 54 32 38 86 102 56 26 57 65 35"),
    "padded": (
        HIGH,
        (1, 1, 4, 4),
        8,
        "26 70 102 60 78 183 231 129 84 195 243 135 82 182 214 116",
    ),
    "of two channels": (
        HIGH,
        (1, 2, 4, 4),
        8,
        """26 70 102 60 78 183 231 129 84 195 243 135 82 182 214 116
        170 358 390 204 294 615 663 345 300 627 675 351 226 470 502 260""",
    ),
}


@pytest.mark.parametrize("example", FOLDED)
def test_fold(example: str) -> None:
    windows, sizes, blocks, text = FOLDED[example]
    columns = f32(np.arange(9 * sizes[1] * blocks).reshape(1, -1, blocks))
    image = f32(text.split()).reshape(sizes)
    assert_documented("FOLD", InputTensor=columns, OutputTensor=image, **windows)


UNFOLDED = {
    "plain": (
        PLAIN,
        """
        0 1 2 5 6 7 10 11 12
        1 2 3 6 7 8 11 12 13
        2 3 4 7 8 9 12 13 14
        5 6 7 10 11 12 15 16 17
        6 7 8 11 12 13 16 17 18
        7 8 9 12 13 14 17 18 19
        10 11 12 15 16 17 20 21 22
        11 12 13 16 17 18 21 22 23
        12 13 14 17 18 19 22 23 24
        """,
    ),
    "padded": (
        HIGH,
        """
        0 0 0 0 1 2 5 6 7 10 11 12 15 16 17
        0 0 0 1 2 3 6 7 8 11 12 13 16 17 18
        0 0 0 2 3 4 7 8 9 12 13 14 17 18 19
        0 1 2 5 6 7 10 11 12 15 16 17 20 21 22
        1 2 3 6 7 8 11 12 13 16 17 18 21 22 23
        2 3 4 7 8 9 12 13 14 17 18 19 22 23 24
        5 6 7 10 11 12 15 16 17 20 21 22 0 0 0
        6 7 8 11 12 13 16 17 18 21 22 23 0 0 0
        7 8 9 12 13 14 17 18 19 22 23 24 0 0 0
        """,
    ),
}


@pytest.mark.parametrize("example", UNFOLDED)
def test_unfold(example: str) -> None:
    windows, text = UNFOLDED[example]
    image = f32(np.arange(25).reshape(1, 1, 5, 5))
    columns = f32(text.split()).reshape(1, 9, -1)
    assert_documented("UNFOLD", InputTensor=image, OutputTensor=columns, **windows)


def test_windows_with_gaps_and_steps(rng: np.random.Generator) -> None:
    """FOLD gives what ONNX's Col2Im does, and UNFOLD is its transpose."""
    windows: dict[str, Any] = {
        "DimensionCount": 2,
        "WindowSizes": (2, 3),
        "Strides": (2, 1),
        "Dilations": (1, 2),
        "StartPadding": (1, 2),
        "EndPadding": (1, 1),
    }
    columns = rng.standard_normal((2, 18, 4 * 6)).astype(np.float32)
    folded = of_onnx(
        "Col2Im",
        columns,
        np.array([6, 7]),
        np.array([2, 3]),
        dilations=[1, 2],
        pads=[1, 2, 1, 1],
        strides=[2, 1],
    )
    (found,) = evaluate("FOLD", InputTensor=columns, OutputTensor=folded, **windows)
    np.testing.assert_allclose(found, folded, rtol=1e-5, atol=1e-6)
    image = rng.standard_normal((2, 3, 6, 7)).astype(np.float32)
    taken = {"InputTensor": image, "OutputTensor": columns}
    (unfolded,) = evaluate("UNFOLD", **taken, **windows)
    products = np.sum(unfolded * columns), np.sum(image * folded)
    np.testing.assert_allclose(*products, rtol=1e-4)
    narrow = taken | {"OutputTensor": columns[:, :-1]}
    assert_rejected("UNFOLD", "OutputTensor has Sizes", **narrow, **windows)
    huge = windows | {"WindowSizes": (9, 3)}
    assert_rejected("UNFOLD", "larger than", **taken, **huge)
