"""Nodes that resample pictures, and those of regions and patches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..single_node import Array, SingleNode
from .arrays import RANDOM, floats, halves, ints

_IMAGE: Final = floats(1, 2, 5, 7)


def _resized(
    mode: str,
    *,
    x: Array = _IMAGE,
    scales: tuple[float, ...] = (),
    sizes: tuple[int, ...] = (),
    opset: int = 19,
    roi: tuple[float, ...] = (),
    **attributes: Any,
) -> SingleNode:
    attributes["mode"] = mode
    return SingleNode(
        "Resize",
        [
            x,
            np.float32(roi) if roi else None,
            np.float32(scales) if scales else None,
            ints(*sizes) if sizes else None,
        ],
        (1, 2, 3),
        attributes,
        opset=opset,
    )


PICTURES: Final = {
    **{
        f"Resize-nearest-{mode}-{rounding}": _resized(
            "nearest",
            scales=(1, 1, scale, 0.6),
            coordinate_transformation_mode=mode,
            nearest_mode=rounding,
        )
        for mode, rounding, scale in (
            ("half_pixel", "round_prefer_floor", 2.0),
            ("half_pixel", "floor", 3.0),
            ("asymmetric", "ceil", 1.7),
            ("align_corners", "round_prefer_ceil", 2.5),
            ("pytorch_half_pixel", "floor", 0.2),
            ("half_pixel_symmetric", "ceil", 1.3),
        )
    },
    "Resize-nearest-twice": _resized(
        "nearest",
        scales=(1, 1, 2, 2),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Resize-nearest-uint8": _resized(
        "nearest",
        x=np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4),
        sizes=(1, 1, 5, 6),
    ),
    **{
        f"Resize-linear-{mode}": _resized(
            "linear",
            scales=(1, 1, 1.7, 0.6),
            coordinate_transformation_mode=mode,
        )
        for mode in (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        )
    },
    "Resize-linear-sizes": _resized("linear", sizes=(1, 2, 9, 3)),
    "Resize-linear-one": _resized("linear", sizes=(1, 2, 1, 1)),
    "Resize-linear-of-one": _resized(
        "linear", x=floats(1, 2, 1, 3), sizes=(1, 2, 4, 5)
    ),
    "Resize-linear-channels": _resized("linear", sizes=(1, 3, 5, 4)),
    "Resize-linear-axes": _resized(
        "linear",
        sizes=(9, 4),
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
    ),
    "Resize-linear-5d": _resized(
        "linear",
        x=floats(1, 2, 3, 4, 5),
        sizes=(1, 2, 5, 3, 8),
    ),
    "Resize-linear-half": _resized("linear", x=halves(1, 2, 5, 7), sizes=(1, 2, 8, 4)),
    "Resize-linear-uint8": _resized(
        "linear",
        x=RANDOM.integers(0, 255, (1, 1, 5, 6)).astype(np.uint8),
        sizes=(1, 1, 8, 4),
    ),
    "Resize-linear-antialias": _resized("linear", sizes=(1, 2, 2, 3), antialias=1),
    "Resize-linear-exclude_outside": _resized(
        "linear",
        sizes=(1, 2, 9, 3),
        exclude_outside=1,
    ),
    "Resize-linear-region": _resized(
        "linear",
        sizes=(1, 2, 4, 6),
        roi=(0, 0, 0.3, -0.2, 1, 1, 0.7, 1.1),
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
    ),
    "Resize-cubic": _resized("cubic", sizes=(1, 2, 9, 3)),
    "Resize-cubic-antialias": _resized(
        "cubic",
        sizes=(1, 2, 3, 5),
        antialias=1,
        cubic_coeff_a=-0.5,
    ),
    "Resize-cubic-int8": _resized(
        "cubic",
        x=RANDOM.integers(-128, 127, (1, 1, 5, 6)).astype(np.int8),
        sizes=(1, 1, 8, 4),
    ),
    "Resize-10": SingleNode(
        "Resize",
        [_IMAGE, np.float32([1, 1, 2, 0.5])],
        (1,),
        {"mode": "linear"},
        opset=10,
    ),
    "Upsample-9": SingleNode(
        "Upsample", [_IMAGE, np.float32([1, 1, 2, 3])], (1,), opset=9
    ),
    "Upsample-7": SingleNode(
        "Upsample",
        [_IMAGE],
        (),
        {"scales": [1.0, 1.0, 2.0, 1.5], "mode": "linear"},
        opset=7,
    ),
    **{
        f"GridSample-{mode}-{padding}-{aligned}": SingleNode(
            "GridSample",
            [floats(2, 3, 4, 5), floats(2, 3, 2, 2)],
            (),
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    },
    "GridSample-volume": SingleNode(
        "GridSample",
        [floats(1, 2, 3, 4, 2), floats(1, 2, 2, 3, 3)],
    ),
    "AffineGrid": SingleNode("AffineGrid", [floats(2, 2, 3), ints(2, 1, 3, 4)], (1,)),
    "AffineGrid-3d": SingleNode(
        "AffineGrid", [floats(1, 3, 4), ints(1, 1, 2, 3, 4)], (1,), {"align_corners": 1}
    ),
    **{
        f"RoiAlign-{mode}": SingleNode(
            "RoiAlign",
            [
                floats(2, 3, 9, 8),
                np.float32([[1, 2, 9, 12], [0, 0, 15, 15], [6, 6, 6.5, 6.25]]),
                ints(1, 0, 1),
            ],
            (),
            {
                "coordinate_transformation_mode": mode,
                "output_height": 3,
                "output_width": 2,
                "sampling_ratio": 2,
                "spatial_scale": 0.5,
            },
        )
        for mode in ("half_pixel", "output_half_pixel")
    },
    "MaxRoiPool": SingleNode(
        "MaxRoiPool",
        [floats(2, 3, 9, 8), np.float32([[1, 2, 2, 9, 12], [0, 0, 0, 13, 9]])],
        (),
        {"pooled_shape": [3, 2], "spatial_scale": 0.5},
    ),
    "Col2Im": SingleNode(
        "Col2Im", [floats(2, 2 * 6, 6), ints(3, 5), ints(2, 3)], (1, 2)
    ),
    "Col2Im-strides": SingleNode(
        "Col2Im",
        [floats(1, 2 * 4, 9), ints(5, 6), ints(2, 2)],
        (1, 2),
        {"strides": [2, 2], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
    ),
    "Col2Im-1d": SingleNode("Col2Im", [floats(1, 3, 5), ints(7), ints(3)], (1, 2)),
    "Col2Im-3d": SingleNode(
        "Col2Im", [floats(1, 8, 4), ints(2, 3, 3), ints(2, 2, 2)], (1, 2)
    ),
}
