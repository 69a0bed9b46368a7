"""Types of what operators on images and on regions of them make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import at_least, normal_axes, resized_lengths
from onnxplug.authoring.sizes import Extent, is_natural, quotient
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import (
    NodeCall,
    Shape,
    Value,
    check_known,
    countable,
)


def _axes(call: NodeCall, rank: int) -> tuple[int, ...]:
    """The axes that an attribute names, by default all."""
    return normal_axes(call.attribute("axes") or range(rank), rank)


def _resize(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    scales, sizes = (1, None) if call.opset < 11 else (2, 3)
    axes = _axes(call, len(shape))
    found = list(shape)
    for axis in axes:
        found[axis] = call.fresh()
    if sizes is not None and call.has(sizes):
        content = call.content(sizes)
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        if content is not None:
            check_known(0, content.elements, "sizes")
            lengths = [shape[axis] for axis in axes]
            wanted = _kept_ratio(policy, lengths, content.elements)
            for axis, size in zip(axes, wanted, strict=True):
                if size is not None and is_natural(size):
                    found[axis] = size
        return Value(dtype, countable(tuple(found), "the shape asked for"))
    factors: Any = call.attribute("scales")
    if factors is None and call.has(scales):
        constant = call.constant(scales)
        factors = None if constant is None else constant.tolist()
    crops = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    if factors and not crops:
        for axis, factor in zip(axes, factors, strict=True):
            scaled = _scaled(shape[axis], factor)
            if scaled is not None:
                found[axis] = scaled
    return Value(dtype, countable(tuple(found), "the resized shape"))


def _kept_ratio(
    policy: str, lengths: Sequence[Extent], sizes: Sequence[Extent | None]
) -> Sequence[Extent | None]:
    """The *sizes* that axes of *lengths* are resized to; those that are not known by
    now are None."""
    if policy == "stretch":
        return sizes
    before = [length for length in lengths if isinstance(length, int)]
    wanted = [size for size in sizes if isinstance(size, int) and size >= 0]
    if len(before) < len(lengths) or len(wanted) < len(sizes):
        return [None] * len(sizes)
    return [size for size, _ in resized_lengths(before, wanted, policy)]


def _scaled(size: Extent, factor: float) -> Extent | None:
    """*size* times *factor*, rounded down; None if it does not follow."""
    if factor == int(factor):
        return size * int(factor)
    if factor == 0.5:
        return quotient(size, 2)
    if not isinstance(size, int):
        return None
    # in float32, as ONNX does: 10 * 0.7 is 7 there, but less in float64
    return math.floor(np.float32(size) * np.float32(factor))


def _center_crop_pad(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    axes, content = _axes(call, len(shape)), call.content(1)
    sizes = list(shape)
    wanted = [None] * len(axes) if content is None else content.elements
    check_known(0, wanted, "shape")
    for axis, size in zip(axes, wanted, strict=True):
        known = size is not None and is_natural(size)
        sizes[axis] = size if known and size is not None else call.fresh()
    return Value(dtype, countable(tuple(sizes), "the shape asked for"))


def _affine_grid(call: NodeCall) -> Value:
    """[batch, *spatial, axes], for an image [batch, channels, *spatial]."""
    dtype, content, rank = call.value().dtype, call.content(1), call.length(1)
    if content is None:
        if rank is None:
            return Value(dtype)
        sizes: tuple[Extent | None, ...] = (None,) * rank
    else:
        sizes = content.elements
    check_known(0, sizes, "size")
    batch, _, *spatial = (
        call.fresh() if size is None or not is_natural(size) else size for size in sizes
    )
    return Value(dtype, countable((batch, *spatial, len(spatial)), "the grid"))


def _grid_sample(call: NodeCall) -> Value:
    (dtype, shape), grid = call.value(), call.value(1).shape
    if shape is None or grid is None:
        return Value(dtype)
    return Value(dtype, shape[:2] + grid[1:-1])


def _regions(call: NodeCall, pooled: Shape) -> Value:
    """[regions, channels, *pooled] of [batch, channels, height, width]."""
    (dtype, shape), regions = call.value(), call.value(1).shape
    count = call.fresh() if regions is None else regions[0]
    channels = call.fresh() if shape is None else shape[1]
    return Value(dtype, (count, channels, *pooled))


def _roi_align(call: NodeCall) -> Value:
    names = ("output_height", "output_width")
    height, width = (at_least(1, (call.attribute(name, 1),), name)[0] for name in names)
    return _regions(call, (height, width))


def _max_roi_pool(call: NodeCall) -> Value:
    pooled = call.attribute("pooled_shape")
    return _regions(call, at_least(1, pooled, "pooled_shape", count=2))


def _image_decoder(call: NodeCall) -> Value:
    """[height, width, channels]; no channels either where decoding fails."""
    return Value(DataType.UINT8, tuple(call.fresh() for _ in range(3)))


def _non_max_suppression(call: NodeCall) -> Value:
    return Value(DataType.INT64, (call.fresh(), 3))


RULES: Final[dict[str, Rule]] = {
    "AffineGrid": _affine_grid,
    "CenterCropPad": _center_crop_pad,
    "GridSample": _grid_sample,
    "ImageDecoder": _image_decoder,
    "MaxRoiPool": _max_roi_pool,
    "NonMaxSuppression": _non_max_suppression,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _resize,
}
