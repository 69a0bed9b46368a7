"""Resize, and the upsampling that it replaced."""

from __future__ import annotations

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.builder import Refused
from onnxplug_coreml.lowering.call import FLOATS, Call, front, lowers, numbers
from onnxplug_coreml.lowering.program import Value

_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@lowers("Upsample")
def _upsample(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    given = numbers(call.shape(0))
    if call.since < 7:
        raise Refused(ep.RefusalCode.OPSET, "Upsample before version 7")
    scales = (
        call.attribute("scales")
        if call.since < 9
        else [float(scale) for scale in call.content(1).reshape(-1)]
    )
    wanted = [int(size * scale) for size, scale in zip(given, scales, strict=True)]
    return _resampled(call, wanted, list(scales), "asymmetric", "floor")


@lowers("Resize")
def _resize(call: Call) -> Value:
    call.require_type(0, *FLOATS)
    given = numbers(call.shape(0))
    coordinates, rounding = "asymmetric", "floor"
    if call.since >= 11:
        coordinates = call.attribute("coordinate_transformation_mode", "half_pixel")
        rounding = call.attribute("nearest_mode", "round_prefer_floor")
    if coordinates not in _COORDINATES:
        raise call.refuse_attribute(
            "coordinate_transformation_mode", ", ".join(_COORDINATES)
        )
    for name, default in (
        ("antialias", 0),
        ("exclude_outside", 0),
    ):
        if call.attribute(name, default) != default:
            raise call.refuse_attribute(name, str(default))
    if call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise call.refuse_attribute("keep_aspect_ratio_policy", "stretch")
    call.ignore("cubic_coeff_a", "extrapolation_value")
    axes = [front(axis, len(given)) for axis in call.attribute("axes", ())]
    axes = axes or list(range(len(given)))
    scales, wanted = [1.0] * len(given), list(given)
    at = 2 if call.since >= 11 else 1
    factors = call.content(at) if call.has(at) else None
    if factors is not None and factors.size:
        for axis, factor in zip(axes, factors.tolist(), strict=True):
            scales[axis] = float(factor)
            wanted[axis] = int(given[axis] * float(factor))
    else:
        for axis, size in zip(axes, call.integers(3), strict=True):
            wanted[axis] = size
            scales[axis] = size / given[axis]
    return _resampled(call, wanted, scales, coordinates, rounding)


def _resampled(
    call: Call, wanted: list[int], scales: list[float], coordinates: str, rounding: str
) -> Value:
    build, x = call.build, call.operand(0)
    given = numbers(x.shape)
    mode = call.attribute("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear"):
        raise call.refuse_attribute("mode", "nearest and linear")
    if mode != "nearest":
        mode = "linear"
    if coordinates == "pytorch_half_pixel":
        if 1 in [b for a, b in zip(given, wanted, strict=True) if a != b]:
            raise call.refuse_attribute(
                "coordinate_transformation_mode", "half_pixel where a size becomes 1"
            )
        coordinates = "half_pixel"
    lengths = [size * scale for size, scale in zip(given, scales, strict=True)]
    if coordinates == "align_corners" and not np.allclose(lengths, wanted, 1e-6):
        # ONNX aligns lengths before they are cut to whole numbers
        coordinates = "asymmetric"
        scales = [
            (length - 1) / (size - 1) if size > 1 and length > 1 else 1.0
            for size, length in zip(given, lengths, strict=True)
        ]
    same = [
        a == b and scale == 1 for a, b, scale in zip(given, wanted, scales, strict=True)
    ]
    if all(same):
        return x
    rank = len(given)
    if rank not in (3, 4) or not all(same[:2]):
        raise Refused(
            ep.RefusalCode.RANK,
            "takes pictures: [N, C, H, W] and [N, C, L], in H, W, L",
        )
    if rank == 3:
        x = build.reshape(x, (*x.shape, 1))
        wanted, scales = [*wanted, 1], [*scales, 1.0]
    found = build(
        "resize",
        x,
        shape=tuple(wanted[2:]),
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        scales=tuple(scales[2:]),
    )
    return build.reshape(found, tuple(wanted[:rank]))
