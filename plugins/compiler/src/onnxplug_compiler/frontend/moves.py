"""Which operators move elements, and compute none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug.authoring.operators import having

MOVES: Final = having("reshapes") | frozenset(
    "Concat DepthToSpace Identity MaxPool Resize Slice SpaceToDepth Split Transpose "
    "Upsample".split()
)
"""Operators whose results have elements of what they move and no others: of all inputs
of Concat, of the first one of others."""


def moves_nearest(op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a call of :data:`MOVES` with these attributes computes nothing."""
    if op_type not in ("Resize", "Upsample"):
        return True
    mode = attributes.get("mode", "nearest")
    places = attributes.get("coordinate_transformation_mode", "half_pixel")
    return bool(mode == "nearest" and places != "tf_crop_and_resize")
