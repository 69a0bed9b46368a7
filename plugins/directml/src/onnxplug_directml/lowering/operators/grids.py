"""Grids of points, and pictures read at them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_ROUNDING_MODE
from onnxplug_directml.lowering.builder import Builder, Refused, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.operators.arithmetic import scaled
from onnxplug_directml.lowering.operators.gathering import gathered
from onnxplug_directml.lowering.operators.pieces import between
from onnxplug_directml.lowering.operators.product import matmul

_MODES: Final = {
    "linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic",
    "bicubic": "cubic",
}  # fmt: skip
_CUBIC_A: Final = -0.75
"""The parameter of R. Keys, "Cubic Convolution Interpolation" (1981), equation (4)."""
_MOST_POINTS: Final = 1 << 26
"""Of a regular grid, which is a constant of the graph."""
_PADDINGS: Final = ("zeros", "border", "reflection")

_F32: Final = ep.DataType.FLOAT32
_I32: Final = ep.DataType.INT32


@lowers("AffineGrid")
def _affine_grid(call: Call) -> Value:
    """A regular grid times matrices [N, axes, axes + 1]: [N, *spatial, axes]."""
    call.require_type(0, *FLOATS)
    call.require_rank(0, 3)
    build, theta = call.build, call.operand(0)
    batch, _, *spatial = call.integers(1)
    if theta.shape != (batch, len(spatial), len(spatial) + 1):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"matrices {list(theta.shape)} for a picture {[batch, *spatial]}",
        )
    if not (1 < len(spatial) < 4 and 0 < math.prod(spatial) <= _MOST_POINTS):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"a grid {spatial}; takes 2 or 3 dimensions of {_MOST_POINTS} points",
        )
    lines = []
    for size in spatial:
        steps = np.arange(size)
        lines.append(
            steps * (2 / max(size - 1, 1)) - 1
            if call.attribute("align_corners", 0)
            else (2 * steps + 1) / size - 1
        )
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(spatial)], axis=-1)
    flat = points.reshape(-1, len(spatial) + 1).astype(theta.dtype.numpy)
    moved = matmul(build, build.constant(flat), build.transpose(theta, (0, 2, 1)))
    return build.reshape(moved, call.output_shape())


@lowers("GridSample")
def _grid_sample(call: Call) -> Value:
    """[N, C, *spatial] at points, as weighted rows of [N · spatial, C]."""
    call.require_type(0, *FLOATS)
    call.require_type(1, *FLOATS)
    rank = len(call.shape(0)) - 2
    if rank < 1 or len(call.shape(1)) != rank + 2 or call.shape(1)[-1] != rank:
        raise Refused(
            ep.RefusalCode.RANK, f"points {list(call.shape(1))} of {rank} dimensions"
        )
    mode = _MODES.get(call.attribute("mode", "linear"))
    if mode is None:
        raise call.refuse_attribute("mode", ", ".join(_MODES))
    padding = call.attribute("padding_mode", "zeros")
    if padding not in _PADDINGS:
        raise call.refuse_attribute("padding_mode", ", ".join(_PADDINGS))
    build, x = call.build, call.operand(0)
    count, channels, *sizes = x.shape
    pixels = math.prod(sizes)
    if count * pixels > np.iinfo(np.int32).max:
        raise Refused(ep.RefusalCode.OTHER, "more pixels than int32 can count")
    wide = build.transpose(build.cast(x, _F32), (0, *range(2, rank + 2), 1))
    rows = build.reshape(wide, (count * pixels, channels))
    points = build.cast(call.operand(1), _F32)
    points = build.reshape(points, (count, points.size // count // rank, rank))
    aligned = bool(call.attribute("align_corners", 0))
    axes = [
        # the coordinates of a point are innermost axis first
        _taps(
            build, between(build, points, 2, rank - 1 - axis, rank - axis),
            size, mode, padding, aligned,
        )
        for axis, size in enumerate(sizes)
    ]  # fmt: skip
    first = np.arange(count, dtype=np.int32).reshape(count, 1, 1)
    shares = [
        _share(build, rows, build.constant(first), sizes, taps)
        for taps in itertools.product(*axes)
    ]
    total = functools.reduce(
        functools.partial(build.binary, "ELEMENT_WISE_ADD"), shares
    )
    picture = build.reshape(build.transpose(total, (0, 2, 1)), call.output_shape())
    return build.cast(picture, x.dtype)


def _share(
    build: Builder,
    rows: Value,
    place: Value,
    sizes: Sequence[int],
    taps: Sequence[tuple[Value, Value]],
) -> Value:
    """[N, points, C]: what one element for each point adds, by its index in each axis.

    Args:
        place: the index of pictures, [N, 1, 1].
    """
    for size, (index, _) in zip(sizes, taps, strict=True):
        place = build.binary("ELEMENT_WISE_MULTIPLY", place, build.scalar(size, _I32))
        place = build.binary("ELEMENT_WISE_ADD", place, index)
    found = gathered(build, rows, 0, place)
    found = build.reshape(found, (*place.shape[:2], rows.shape[1]))
    weight = functools.reduce(
        functools.partial(build.binary, "ELEMENT_WISE_MULTIPLY"),
        (weight for _, weight in taps),
    )
    return build.binary("ELEMENT_WISE_MULTIPLY", found, weight)


def _taps(
    build: Builder, at: Value, size: int, mode: str, padding: str, aligned: bool
) -> list[tuple[Value, Value]]:
    """The elements to read along an axis, as int32, and their weights.

    Args:
        at: where points are, from -1 to 1: between the centres of the outermost
            elements if they are *aligned*, else between their edges.
    """
    edge = 0.0 if aligned else 0.5
    low, high = -edge, size - 1 + edge
    half = (high - low) / 2
    point = scaled(build, at, half, half + low)
    if mode == "nearest":
        halves = DML_ROUNDING_MODE.HALVES_TO_NEAREST_EVEN
        point = build.unary("ELEMENT_WISE_ROUND", point, RoundingMode=halves)
    if padding == "reflection":
        point = _reflected(build, point, low, high)
    # the cubic curve goes on beyond the outermost elements
    if padding != "zeros" and mode != "cubic":
        point = _clipped(build, point, 0, size - 1)
    # beyond the neighbours of the edge all is alike, and int32 has no infinity
    point = _clipped(build, point, -3, size + 2)
    taps = []
    for place, weight in _places(build, point, mode):
        if padding == "reflection":
            place = _reflected(build, place, low, high)
        inside = _clipped(build, place, 0, size - 1)
        if padding == "zeros":
            same = build.binary(
                "ELEMENT_WISE_LOGICAL_EQUALS", inside, place, ep.DataType.BOOL
            )
            # of what lies outside not even infinities count
            weight = build.select(same, weight, build.scalar(0, _F32))
        taps.append((build.cast(inside, _I32), weight))
    return taps


def _places(build: Builder, point: Value, mode: str) -> list[tuple[Value, Value]]:
    """The elements around a point, as numbers that are whole, and their weights."""
    if mode == "nearest":
        return [(point, build.scalar(1, _F32))]
    near = build.unary("ELEMENT_WISE_FLOOR", point)
    share = build.binary("ELEMENT_WISE_SUBTRACT", point, near)
    rest = scaled(build, share, -1.0, 1.0)
    if mode == "linear":
        return [(near, rest), (scaled(build, near, 1.0, 1.0), share)]
    return [
        (scaled(build, near, 1.0, -1.0), _far(build, share)),
        (near, _near(build, share)),
        (scaled(build, near, 1.0, 1.0), _near(build, rest)),
        (scaled(build, near, 1.0, 2.0), _far(build, rest)),
    ]


def _near(build: Builder, x: Value) -> Value:
    """Keys's kernel of cubic convolution at distances from 0 to 1."""
    a = _CUBIC_A
    square = build.binary("ELEMENT_WISE_MULTIPLY", x, x)
    slope = scaled(build, x, a + 2, -(a + 3))
    return scaled(build, build.binary("ELEMENT_WISE_MULTIPLY", slope, square), 1.0, 1.0)


def _far(build: Builder, x: Value) -> Value:
    """The kernel one further away: a · x · (1 - x)²."""
    rest = scaled(build, x, -1.0, 1.0)
    square = build.binary("ELEMENT_WISE_MULTIPLY", rest, rest)
    return scaled(build, build.binary("ELEMENT_WISE_MULTIPLY", x, square), _CUBIC_A)


def _clipped(build: Builder, x: Value, least: float, most: float) -> Value:
    return build.unary(
        "ELEMENT_WISE_CLIP1", x, MinMaxDataType=build.data_type(x.dtype),
        Min=float(least), Max=float(most),
    )  # fmt: skip


def _reflected(build: Builder, point: Value, low: float, high: float) -> Value:
    """Points beyond two mirrors, at *low* and *high*, as they are between them."""
    span = high - low
    if span == 0:
        return build.broadcast_to(build.scalar(low, _F32), point.shape)
    away = build.unary("ELEMENT_WISE_ABS", scaled(build, point, 1.0, -low))
    around = build.binary(
        "ELEMENT_WISE_MODULUS_FLOOR", away, build.scalar(2 * span, _F32)
    )
    nearer = build.binary(
        "ELEMENT_WISE_MIN", around, scaled(build, around, -1.0, 2 * span)
    )
    return scaled(build, nearer, 1.0, low)
