"""Which operators move elements, and compute none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug.authoring.operators import having

MOVES: Final = having("reshapes") | frozenset(
    "Concat DepthToSpace Identity MaxPool Pad Resize Slice SpaceToDepth Split "
    "Transpose Upsample".split()
)
"""Operators whose results have elements of what they move and no others: of all inputs
of Concat, of the first one of others; Pad may add zeros."""

_PADS_SINCE: Final = 11
"""The opset before which what is added was an attribute."""


def only_moves(op_type: str, version: int, attributes: Mapping[str, Any]) -> bool:
    """Whether a call of :data:`MOVES` with these attributes computes nothing."""
    if op_type == "Pad":
        return version >= _PADS_SINCE
    if op_type not in ("Resize", "Upsample"):
        return True
    mode = attributes.get("mode", "nearest")
    places = attributes.get("coordinate_transformation_mode", "half_pixel")
    return bool(mode == "nearest" and places != "tf_crop_and_resize")


def added_by_pad(
    attributes: Mapping[str, Any], inputs: Sequence[str | None]
) -> str | None:
    """The name of the number that a Pad adds; ``None`` for 0, or if it adds none."""
    if attributes.get("mode", "constant") != "constant":
        return None
    return inputs[2] if len(inputs) > 2 else None
