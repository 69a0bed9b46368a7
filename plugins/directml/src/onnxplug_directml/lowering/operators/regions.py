"""Regions of pictures, and pictures made of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_CONVOLUTION_DIRECTION,
    DML_CONVOLUTION_MODE,
    DML_INTERPOLATION_MODE,
    DML_REDUCE_FUNCTION,
)
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_directml.lowering.operators.pieces import between, joined

_MOST_WEIGHTS: Final = 1 << 24
"""Of the filters by which patches are laid down, which are constants of the graph."""


@lowers("RoiAlign")
def _roi_align(call: Call) -> Value:
    call.require_rank(0, 4)
    call.require_rank(1, 2)
    build, regions = call.build, call.operand(1)
    if call.attribute("mode", "avg") != "avg":
        raise call.refuse_attribute("mode", "avg")
    samples = call.attribute("sampling_ratio", 0)
    if samples <= 0:
        raise Refused(
            ep.RefusalCode.ATTRIBUTE,
            f"sampling_ratio is {samples}; takes 1 or more, since DirectML "
            "does not say how it rounds their number",
        )
    call.ignore("output_height", "output_width")
    if regions.shape != (*call.shape(2), 4):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"regions {list(regions.shape)} of images {list(call.shape(2))}",
        )
    regions = _finite(build, regions)
    scale = call.attribute("spatial_scale", 1.0)
    default = "half_pixel" if call.since >= 16 else "output_half_pixel"
    mode = call.attribute("coordinate_transformation_mode", default)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise call.refuse_attribute(
            "coordinate_transformation_mode", "half_pixel, output_half_pixel"
        )
    half = mode == "half_pixel"
    if not scale > 0:
        raise call.refuse_attribute("spatial_scale", "positive numbers")
    if not half:
        regions = _at_least_one(build, regions, scale)
    images = _images(call, call.operand(2))
    return build(
        "ROI_ALIGN1", InputTensor=call.operand(0), ROITensor=regions,
        BatchIndicesTensor=build.cast(images, ep.DataType.UINT32),
        OutputTensor=call.result(), ReductionFunction=DML_REDUCE_FUNCTION.AVERAGE,
        InterpolationMode=DML_INTERPOLATION_MODE.LINEAR,
        SpatialScaleX=scale, SpatialScaleY=scale,
        InputPixelOffset=0.5 if half else 0.0, OutputPixelOffset=-0.5,
        OutOfBoundsInputValue=0.0, MinimumSamplesPerOutput=samples,
        MaximumSamplesPerOutput=samples, AlignRegionsToCorners=False,
    )  # fmt: skip


def _images(call: Call, images: Value) -> Value:
    """Which image of the batch each region is of."""
    batch = call.shape(0)[0]
    wrong = f"the image of a region is out of range; takes 0 to {batch - 1}"
    return held(call.build, images, 0, batch, wrong)


def _finite(build: Builder, corners: Value) -> Value:
    largest = np.finfo(corners.dtype.numpy).max
    return held(build, corners, -largest, largest, "corners of a region out of range")


def _at_least_one(build: Builder, regions: Value, scale: float) -> Value:
    """Regions [regions, 4], made as large as one element of the picture."""
    starts, ends = (between(build, regions, 1, at, at + 2) for at in (0, 2))
    least = build.unary("ELEMENT_WISE_IDENTITY", starts, ScaleBias=(1.0, 1 / scale))
    return joined(build, (starts, build.binary("ELEMENT_WISE_MAX", ends, least)), 1)


@lowers("MaxRoiPool")
def _max_roi_pool(call: Call) -> Value:
    """Corners are rounded to elements before DirectML sees them.

    It rounds them as well; which way halves go its documentation does not say.
    """
    call.require_rank(0, 4)
    call.require_rank(1, 2)
    build, regions = call.build, call.operand(1)
    pooled = call.required("pooled_shape")
    if len(pooled) != 2 or min(pooled) < 1 or regions.shape[1] != 5:
        raise call.refuse_attribute("pooled_shape", "2 numbers, and regions of 5")
    height, width = pooled
    scale = call.attribute("spatial_scale", 1.0)
    if regions.rank != 2 or regions.shape[1] != 5:
        raise Refused(ep.RefusalCode.OTHER, f"regions {list(regions.shape)}")
    batch, corners = (
        between(build, regions, 1, at, end) for at, end in ((0, 1), (1, 5))
    )
    nearest = build.unary("ELEMENT_WISE_FLOOR", corners, ScaleBias=(scale, 0.5))
    rounded = joined(build, (_images(call, batch), _finite(build, nearest)), 1)
    return build(
        "ROI_POOLING", InputTensor=call.operand(0),
        ROITensor=build.at_rank(rounded, 4), OutputTensor=call.result(),
        SpatialScale=1.0, PooledSize=(width, height),
    )  # fmt: skip


@lowers("Col2Im")
def _col2im(call: Call) -> Value:
    """Patches laid down and added where they overlap: a transposed convolution.

    Each channel of a patch has a filter with a single one, at its place in the patch.
    """
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    sizes, patch = call.integers(1), call.integers(2)
    rank = len(patch)
    if rank not in (1, 2, 3):
        raise Refused(ep.RefusalCode.RANK, f"{rank} spatial dimensions; takes 1 to 3")
    ones = (1,) * rank
    dilations = tuple(call.attribute("dilations", ones))
    strides = tuple(call.attribute("strides", ones))
    pads = tuple(call.attribute("pads", (0,) * 2 * rank))
    given = {"dilations": (dilations, rank), "strides": (strides, rank),
             "pads": (pads, 2 * rank)}  # fmt: skip
    for name, (numbers, count) in given.items():
        if len(numbers) != count or min(numbers) < (name != "pads"):
            raise call.refuse_attribute(name, f"{count} numbers that are positive")
    if len(sizes) != rank or min(*sizes, *patch) < 1:
        raise Refused(ep.RefusalCode.OTHER, f"patches {patch} of an image {sizes}")
    call.require_rank(0, 3)
    places = math.prod(patch)
    batch, channels = x.shape[0], x.shape[1] // places
    counts = [
        (sizes[i] + pads[i] + pads[i + rank] - dilations[i] * (patch[i] - 1) - 1)
        // strides[i] + 1
        for i in range(rank)
    ]  # fmt: skip
    rest = tuple(
        (sizes[i] + pads[i] + pads[i + rank] - dilations[i] * (patch[i] - 1) - 1)
        % strides[i]
        for i in range(rank)
    )
    if places * places * channels > _MOST_WEIGHTS:
        raise Refused(ep.RefusalCode.OTHER, f"patches of {places} elements")
    eye = np.eye(places, dtype=x.dtype.numpy).reshape(places, 1, *patch)
    filters = np.tile(eye, (channels, *(1,) * (rank + 1)))
    flat = rank == 1  # convolutions have two spatial dimensions or three

    def spatial(values: Sequence[int], neutral: int) -> tuple[int, ...]:
        return (neutral, *values) if flat else tuple(values)

    shape = (batch, channels, *spatial(sizes, 1))
    found = build(
        "CONVOLUTION",
        InputTensor=build.reshape(x, (batch, x.shape[1], *spatial(counts, 1))),
        FilterTensor=build.reshape(
            build.constant(filters), (x.shape[1], 1, *spatial(patch, 1))
        ),
        BiasTensor=None, OutputTensor=Result(x.dtype, shape),
        Mode=DML_CONVOLUTION_MODE.CROSS_CORRELATION,
        Direction=DML_CONVOLUTION_DIRECTION.BACKWARD,
        Strides=spatial(strides, 1), Dilations=spatial(dilations, 1),
        StartPadding=spatial(pads[:rank], 0), EndPadding=spatial(pads[rank:], 0),
        OutputPadding=spatial(rest, 0), GroupCount=channels, FusedActivation=None,
    )  # fmt: skip
    return build.reshape(found, call.output_shape())
